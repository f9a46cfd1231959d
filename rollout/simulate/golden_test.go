package simulate_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/simulate"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata")

const minute = rollout.Duration(time.Minute)

// A strategy is a rollout strategy of the golden traces, with the ticks at which its
// events happen if nothing delays them.
type strategy struct {
	name                         string
	mid, confirm, promoted, done int  // middle of the analysis; confirm-promotion call; wait for the primary; Succeeded
	gated                        bool // calls confirm-traffic-increase
	spec                         rollout.CanarySpec
}

var strategies = []strategy{
	{"step", 3, 5, 6, 7, true, rollout.CanarySpec{Analysis: rollout.Settings{StepWeight: 20, MaxWeight: 60}}},
	{"steps", 3, 4, 5, 6, true, rollout.CanarySpec{Analysis: rollout.Settings{StepWeights: []int{10, 50}}}},
	{"mirror", 3, 5, 6, 7, true, rollout.CanarySpec{Analysis: rollout.Settings{StepWeight: 30, MaxWeight: 60, Mirror: true}}},
	{"cap", 3, 5, 6, 7, true, rollout.CanarySpec{Analysis: rollout.Settings{StepWeight: 20, MaxWeight: 50}}},
	{"stepwise-promotion", 3, 4, 5, 8, true, rollout.CanarySpec{Analysis: rollout.Settings{StepWeight: 50, StepWeightPromotion: 40}}},
	{"ab", 3, 5, 6, 7, false, rollout.CanarySpec{Analysis: rollout.Settings{Iterations: 3, Match: []rollout.Match{{Headers: map[string]rollout.StringMatch{"x-canary": {Exact: "insider"}}}}}}},
	{"blue-green", 3, 5, 7, 8, false, rollout.CanarySpec{Analysis: rollout.Settings{Iterations: 3}}},
	{"blue-green-mirror", 3, 5, 7, 8, false, rollout.CanarySpec{Analysis: rollout.Settings{Iterations: 3, Mirror: true}}},
	{"skip-analysis", 2, 2, 2, 2, false, rollout.CanarySpec{SkipAnalysis: true, Analysis: rollout.Settings{StepWeight: 50, MaxWeight: 50}}},
}

// canary returns the canary of the golden traces, with webhooks of all types but event and one metric.
func (s strategy) canary(deadline rollout.Duration) *rollout.Canary {
	lowest := 99.0
	c := &rollout.Canary{Metadata: rollout.Metadata{Name: "podinfo", Namespace: "test"}, Spec: s.spec}
	c.Spec.ProgressDeadlineSeconds = 150
	a := &c.Spec.Analysis
	a.Interval, a.Threshold, a.MaxWeight = minute, 2, cmp.Or(a.MaxWeight, 100)
	a.Metrics = []rollout.Metric{{Name: "success", ThresholdRange: &rollout.Range{Min: &lowest}, Interval: minute}}
	for _, h := range []rollout.Hook{
		{Name: "approve", Type: rollout.HookConfirmRollout, Deadline: deadline},
		{Name: "smoke", Type: rollout.HookPreRollout},
		{Name: "load", Type: rollout.HookRollout},
		{Name: "raise", Type: rollout.HookConfirmTrafficIncrease, Deadline: deadline},
		{Name: "accept", Type: rollout.HookConfirmPromotion, Deadline: deadline},
		{Name: "report", Type: rollout.HookPostRollout},
		{Name: "abort", Type: rollout.HookRollback},
	} {
		h.URL, h.Timeout = "http://tester.test/"+h.Name, rollout.Duration(5*time.Second)
		a.Webhooks = append(a.Webhooks, h)
	}
	return c
}

// A scenario is a script of outcomes. In the script, M, C, P and D stand for the
// ticks of a strategy: mid, confirm, promoted, done; M+1 is the tick after mid.
type scenario struct {
	name     string
	script   string
	deadline rollout.Duration // of every gate
	gated    bool             // only for strategies that call confirm-traffic-increase
	analysed bool             // only for strategies with an analysis
}

var scenarios = []scenario{
	{name: "all-well"},

	{name: "approve-late", script: "hook approve=403@1-3"},
	{name: "approve-202", script: "hook approve=202"},
	{name: "approve-never", script: "hook approve=403"},
	{name: "approve-deadline", script: "hook approve=timeout", deadline: 2 * minute},
	{name: "raise-first-late", script: "hook raise=403@2-3", gated: true},
	{name: "raise-first-deadline", script: "hook raise=403@2-", deadline: 2 * minute, gated: true},
	{name: "raise-mid-late", script: "hook raise=202@M-M+1", gated: true},
	{name: "raise-mid-never", script: "hook raise=403@M-", gated: true},
	{name: "raise-mid-deadline", script: "hook raise=refused@M-", deadline: 2 * minute, gated: true},
	{name: "raise-mid-metric-bad", script: "hook raise=403@M-M+2; metric success=0@M+1-M+2", gated: true},
	{name: "raise-mid-load-once", script: "hook raise=403@M-M+2; hook load=500@M+1", gated: true},
	{name: "raise-first-metric-bad", script: "hook raise=403@2-4; metric success=0@2-4; hook load=500@2-4", gated: true},
	{name: "accept-late", script: "hook accept=403@C-C+1", analysed: true},
	{name: "accept-201", script: "hook accept=201@C-", analysed: true},
	{name: "accept-never", script: "hook accept=403", analysed: true},
	{name: "accept-deadline", script: "hook accept=403", deadline: 2 * minute, analysed: true},
	{name: "accept-closed-metric-bad", script: "hook accept=403; metric success=98@C+1-", analysed: true},
	{name: "accept-closed-load-once", script: "hook accept=403@C-C+2; hook load=500@C+1", analysed: true},

	{name: "smoke-once", script: "hook smoke=500@2", analysed: true},
	{name: "smoke-threshold", script: "hook smoke=500", analysed: true},
	{name: "load-once", script: "hook load=503@M", analysed: true},
	{name: "load-twice-apart", script: "hook load=204@M,timeout@M+2", analysed: true},
	{name: "load-threshold", script: "hook load=500@M-", analysed: true},
	{name: "metric-threshold", script: "metric success=98.9@M-", analysed: true},
	{name: "metric-no-values", script: "metric success=none@M-", analysed: true},
	{name: "metric-error", script: "metric success=error@M-", analysed: true},
	{name: "report-fails", script: "hook report=500"},

	{name: "abort-progressing", script: "hook abort=202@M", analysed: true},
	{name: "abort-waiting-approve", script: "hook approve=403; hook abort=200@3"},
	{name: "abort-waiting-raise", script: "hook raise=403@M-; hook abort=200@M+2", gated: true},
	{name: "abort-waiting-accept", script: "hook accept=403; hook abort=200@C+2", analysed: true},
	{name: "abort-traffic-error", script: "hook abort=200@M; traffic error@M-M+1", analysed: true},
	{name: "abort-scale-down-error", script: "hook abort=200@M; target scale-down=error@M-M+1", analysed: true},
	{name: "threshold-traffic-error", script: "hook load=500@M-M+1; traffic set-error@M+1-M+2", analysed: true},

	{name: "canary-late", script: "canary not-ready@2-3"},
	{name: "canary-deadline", script: "canary not-ready@M-"},
	{name: "canary-stuck", script: "canary stuck@M-"},
	{name: "scale-up-error", script: "target scale-up=error@1-2"},
	{name: "primary-late", script: "primary not-ready@0-1", analysed: true},
	{name: "primary-late-start", script: "primary not-ready@1-2", analysed: true},
	{name: "primary-deadline", script: "primary not-ready@M-", analysed: true},
	{name: "primary-late-promoting", script: "primary not-ready@P-P+1", analysed: true},
	{name: "primary-deadline-promoting", script: "primary not-ready@P-", analysed: true},
	{name: "primary-stuck-promoting", script: "primary stuck@P-", analysed: true},
	{name: "primary-and-canary-stuck-finalising", script: "primary stuck@D-; canary stuck@D-", analysed: true},
	{name: "primary-stuck-finalising", script: "primary stuck@D-", analysed: true},
	{name: "promote-error", script: "target promote=error@C-C+1"},
	{name: "promote-deadline", script: "target promote=error", analysed: true},
	{name: "promote-error-revision", script: "target promote=error@C-C+1; revision 3@C+1", analysed: true},
	{name: "traffic-deadline", script: "traffic set-error@M-M+4", analysed: true},
	{name: "traffic-error", script: "traffic error@M-M+1"},
	{name: "revision-error", script: "target revision=error@M"},

	{name: "revision-waiting-approve", script: "hook approve=403@1-4; revision 3@3"},
	{name: "revision-progressing", script: "hook approve=403@M; revision 3@M", analysed: true},
	{name: "revision-waiting-raise", script: "hook raise=403@M-M+2; revision 3@M+1", gated: true},
	{name: "revision-waiting-accept", script: "hook accept=403@C-C+2; revision 3@C+1", analysed: true},
	{name: "revision-promoting", script: "revision 3@P", analysed: true},
	{name: "revision-finalising", script: "revision 3@D", analysed: true},
	{name: "revision-after", script: "revision 3@D+4"},
	{name: "revision-after-rollback", script: "hook abort=200@M; revision 3@M+4", analysed: true},
	{name: "revert-waiting-approve", script: "hook approve=403@1-4; revision 2@1-2,1@3"},
	{name: "revert-and-again", script: "revision 2@1-2,1@3-6,2@7", analysed: true},
	{name: "revert-after-failed-promotion", script: "primary stuck@P-P+1; revision 2@1-P+3,1@P+4", analysed: true},
	{name: "failed-and-again", script: "hook abort=200@M; revision 2@1-3,1@7,2@10", analysed: true},
	{name: "revision-primary-unready", script: "primary not-ready@M-M+1; revision 3@M", analysed: true},
	{name: "revision-back-while-traffic-error", script: "traffic set-error@M-M+1; revision 2@1-2,3@3,2@4", analysed: true},
	{name: "revert-progressing", script: "revision 2@1-2,1@3", analysed: true},
	{name: "suspended", script: "suspend on@M-M+2"},
	{name: "suspended-never-resumed", script: "suspend on@M-"},
}

// applies reports whether a scenario can happen with a strategy.
func (s scenario) applies(to strategy) bool {
	return (!s.gated || to.gated) && (!s.analysed || !to.spec.SkipAnalysis)
}

// lines returns the outcomes of the script with the ticks of a strategy.
func (s scenario) lines(of strategy) []string {
	if s.script == "" {
		return nil
	}
	var lines []string
	for line := range strings.SplitSeq(s.script, "; ") {
		before, ticks, _ := strings.Cut(line, "@")
		for letter, n := range map[string]int{"M": of.mid, "C": of.confirm, "P": of.promoted, "D": of.done} {
			for plus := 4; plus >= 0; plus-- {
				sum := letter
				if plus > 0 {
					sum += "+" + strconv.Itoa(plus)
				}
				ticks = strings.ReplaceAll(ticks, sum, strconv.Itoa(n+plus))
			}
		}
		if ticks != "" {
			before += "@" + ticks
		}
		lines = append(lines, before)
	}
	return lines
}

func script(t *testing.T, lines []string) simulate.Script {
	t.Helper()
	var s simulate.Script
	for _, line := range lines {
		of, text, _ := strings.Cut(line, " ")
		o, err := simulate.ParseOutcome(simulate.Subject(of), text)
		must(t, err)
		s = append(s, o)
	}
	return s
}

// TestGolden compares the trace of each scenario and strategy with the trace in
// testdata. The first lines of a trace are its script.
func TestGolden(t *testing.T) {
	for _, strategy := range strategies {
		t.Run(strategy.name, func(t *testing.T) {
			file := "testdata/" + strategy.name + ".txtar"
			want := make(map[string]string)
			if archive, err := txtar.ParseFile(file); err == nil {
				for _, f := range archive.Files {
					want[f.Name] = string(f.Data)
				}
			}
			got := &txtar.Archive{}
			for _, s := range scenarios {
				if !s.applies(strategy) {
					continue
				}
				trace := golden(t, strategy, s)
				got.Files = append(got.Files, txtar.File{Name: s.name, Data: []byte(trace)})
				if want[s.name] != trace && !*update {
					t.Errorf("%s:\n%s\nwant:\n%s", s.name, trace, want[s.name])
				}
				delete(want, s.name)
			}
			if len(want) > 0 && !*update {
				t.Errorf("%s has traces of situations that there are none of: %v", file, want)
			}
			if *update {
				must(t, os.WriteFile(file, txtar.Format(got), 0o644))
			}
		})
	}
}

// golden returns the script of a scenario and its trace. It leaves out ticks at the
// beginning and at the end that equal those of a rollout without failures.
func golden(t *testing.T, strategy strategy, s scenario) string {
	t.Helper()
	var b strings.Builder
	lines := s.lines(strategy)
	for _, line := range lines {
		b.WriteString("# " + line + "\n")
	}
	if s.deadline > 0 {
		fmt.Fprintf(&b, "# deadline %s\n", time.Duration(s.deadline))
	}
	ticks := trace(t, strategy, s.deadline, lines)
	if s.script == "" {
		b.WriteString(strings.Join(ticks, "\n") + "\n")
		return b.String()
	}
	well := trace(t, strategy, 0, nil)
	start := 0
	for start < min(len(ticks), len(well)) && ticks[start] == well[start] {
		start++
	}
	end := 0
	for end < min(len(ticks), len(well))-start && after(ticks[len(ticks)-1-end]) == after(well[len(well)-1-end]) {
		end++
	}
	if start > 1 {
		fmt.Fprintf(&b, "… as all-well until %s\n", number(well[start-1]))
	}
	for _, tick := range ticks[start : len(ticks)-end] {
		b.WriteString(tick + "\n")
	}
	if end > 0 {
		fmt.Fprintf(&b, "… as all-well from %s\n", number(well[len(well)-end]))
	}
	return b.String()
}

func trace(t *testing.T, strategy strategy, deadline rollout.Duration, lines []string) []string {
	t.Helper()
	var ticks []string
	run := &simulate.Simulation{Canary: strategy.canary(deadline), Script: script(t, lines), Ticks: 40}
	for tick, err := range run.Run(t.Context()) {
		if err != nil {
			t.Fatalf("%v: %v", lines, err)
		}
		ticks = append(ticks, tick.String())
	}
	return ticks
}

// number returns the number of a tick.
func number(tick string) string { return strings.SplitN(tick, " ", 2)[0] }

// after returns a tick without its number and its time.
func after(tick string) string { return strings.SplitN(tick, " ", 3)[2] }

var must = testenv.Must
