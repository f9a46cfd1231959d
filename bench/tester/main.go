// Tester compares the test runner with Flagger's load tester, on one machine in
// one run: gate checks per second.
//
// Each is a process on one processor, and the common client runs on another.
// headgate keeps its gates in files, the load tester in memory. They take turns,
// so that other load on the machine affects both alike, and the numbers are
// medians. The load tester listens on all interfaces, so the benchmark runs in
// its own network namespace, which requires Linux. See docs/benchmarks.md for how to read the numbers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/headgate-io/headgate/bench/contest"
)

// namespaceEnv is the variable with the path of headgate. It is set inside the network namespace.
const namespaceEnv = "HEADGATE_BENCH_TESTER"

func main() {
	contest.Main("nothing", func(ctx context.Context, o contest.Options) (int, error) {
		if command := os.Getenv(namespaceEnv); command != "" {
			return run(ctx, command, o)
		}
		return runInNamespace(ctx)
	})
}

// runInNamespace builds headgate from this checkout and runs this program again in a network namespace. It
// returns an error if that run fails.
func runInNamespace(ctx context.Context) (missed int, err error) {
	temp, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(temp)
	command := filepath.Join(temp, "headgate")
	build := exec.CommandContext(ctx, "go", "build", "-C", "..", "-trimpath", "-o", command, "./cmd/headgate")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as in make build
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("go build: %w\n%s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	args := append([]string{"-rn", "sh", "-ec", `ip link set lo up; exec "$0" "$@"`, "taskset", "-c", "0", self}, os.Args[1:]...)
	inside := exec.CommandContext(ctx, "unshare", args...)
	inside.Env = append(os.Environ(), namespaceEnv+"="+command, "TMPDIR="+temp)
	inside.Stdout, inside.Stderr = os.Stdout, os.Stderr
	return 0, inside.Run()
}

// These are the names of the contestants.
const (
	ours   = "headgate tester"
	theirs = "load tester of Flagger"
)

// defaultLogSuffix is appended to the names of contestants with the default log level.
const defaultLogSuffix = ", logging as by default"

type bench struct {
	temp    string
	runs    int
	servers []*server
	numbers map[string][]float64 // checks per second, by contestant and measurement
}

func run(ctx context.Context, command string, o contest.Options) (missed int, err error) {
	temp, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(temp)
	b := &bench{temp: temp, runs: o.Runs, numbers: map[string][]float64{}}
	defer func() { err = errors.Join(err, b.stop()) }()
	if err := b.start(ctx, command, o.OnlyHeadgate); err != nil {
		return 0, err
	}
	for n := -1; n < o.Runs; n++ {
		if err := b.round(n >= 0); err != nil {
			return 0, err
		}
	}
	return b.report(os.Stdout), nil
}

// start starts the contestants, each on its own port.
func (b *bench) start(ctx context.Context, command string, only bool) error {
	reference, err := loadTester()
	if err != nil {
		return err
	}
	for _, s := range []*server{
		{name: ours, args: []string{command, "tester", "--addr", "127.0.0.1:8081", "--state", filepath.Join(b.temp, "state"), "--log-level", "error"}, addr: "127.0.0.1:8081"},
		{name: theirs, args: []string{reference, "-port", "8082", "-log-level", "error"}, addr: "127.0.0.1:8082"},
		{name: ours + defaultLogSuffix, args: []string{command, "tester", "--addr", "127.0.0.1:8083", "--state", filepath.Join(b.temp, "state-2")}, addr: "127.0.0.1:8083"},
		{name: theirs + defaultLogSuffix, args: []string{reference, "-port", "8084"}, addr: "127.0.0.1:8084"},
	} {
		if only && strings.HasPrefix(s.name, theirs) {
			continue
		}
		if err := s.start(ctx, b.temp); err != nil {
			return err
		}
		b.servers = append(b.servers, s)
	}
	return nil
}

func (b *bench) stop() (err error) {
	for _, s := range b.servers {
		err = errors.Join(err, s.stop())
	}
	return err
}

// loadTester returns the path of the load tester that .ci/servers built.
func loadTester() (string, error) {
	text, err := os.ReadFile(filepath.Join("..", ".ci", "versions"))
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if module, found := strings.CutPrefix(strings.TrimSpace(line), "LOADTESTER="); found {
			_, version, _ := strings.Cut(module, "@")
			path := filepath.Join(cache, "headgate", "e2e", "bin", "loadtester@"+version)
			_, err := os.Stat(path)
			return path, err
		}
	}
	return "", errors.New(".ci/versions has no LOADTESTER")
}

// These are the names of the measurements.
const (
	openGate   = "checks/s, open"
	closedGate = "checks/s, closed"
)

// round runs all measurements once and records the numbers if note is set.
func (b *bench) round(note bool) error {
	for _, gate := range []struct{ what, path, status string }{
		{openGate, "/gate/open", "200"}, {closedGate, "/gate/close", "403"},
	} {
		for _, s := range b.servers {
			if err := s.post(gate.path, `{"name":"podinfo","namespace":"test"}`); err != nil {
				return err
			}
		}
		if err := b.check(gate.what, gate.status, note); err != nil {
			return err
		}
	}
	return nil
}

// check measures gate checks of the contestants in short turns, so that other load on the machine
// affects all of them alike.
func (b *bench) check(what, status string, note bool) error {
	answers := map[*server]int64{}
	for range turns {
		for _, s := range b.servers {
			n, err := countChecks(s.addr, status)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", s.name, what, err)
			}
			answers[s] += n
		}
	}
	for s, n := range answers {
		if note {
			b.numbers[s.name+what] = append(b.numbers[s.name+what], float64(n)/(turns*turn).Seconds())
		}
	}
	return nil
}

// ratio returns the median of the ratios a/z of all rounds. It is negative if there are none.
func (b *bench) ratio(a, z, what string) float64 {
	var all []float64
	for i, number := range b.numbers[z+what] {
		all = append(all, b.numbers[a+what][i]/number)
	}
	if len(all) == 0 {
		return -1
	}
	return contest.Median(all)
}

// minRatio is the minimum ratio of headgate's checks per second to the reference's.
const minRatio = 0.7

// report prints the results and returns how many goals were missed.
func (b *bench) report(out io.Writer) (missed int) {
	fmt.Fprintf(out, "%s/%s, %s; medians of %d runs\n\n", runtime.GOOS, runtime.GOARCH, runtime.Version(), b.runs)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\t%s\t%s\t\n", openGate, closedGate)
	for _, s := range b.servers {
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t\n", s.name, contest.Median(b.numbers[s.name+openGate]), contest.Median(b.numbers[s.name+closedGate]))
	}
	w.Flush()
	fmt.Fprintln(out)
	return contest.Judge(out, []contest.Goal{
		{What: "time of a check of an open gate against the reference", Number: b.ratio(theirs, ours, openGate), Limit: 1 / minRatio},
		{What: "time of a check of a closed gate against the reference", Number: b.ratio(theirs, ours, closedGate), Limit: 1 / minRatio},
		{What: "the same, open, logging as by default", Number: b.ratio(theirs+defaultLogSuffix, ours+defaultLogSuffix, openGate), Limit: 1 / minRatio},
		{What: "the same, closed, logging as by default", Number: b.ratio(theirs+defaultLogSuffix, ours+defaultLogSuffix, closedGate), Limit: 1 / minRatio},
	})
}
