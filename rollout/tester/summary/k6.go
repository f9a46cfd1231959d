package summary

import (
	"bytes"
	"strings"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// k6 reads the text that k6 prints at the end of a run, that before version 1
// too. All its lines are indented; another line ends it.
type k6 struct {
	total tally
	load  load
	runs  int

	in      bool // in indented lines
	found   bool // that are k6's
	tally   tally
	run     load
	section section
	metric  string // that the thresholds or submetrics that follow are about
}

type section int

const (
	results    section = iota
	thresholds         // of version 1
	totals             // of version 1
	parts              // of groups and scenarios, which are in the totals
)

// Metrics that every run has one of.
var k6Metrics = map[string]bool{
	"checks": true, "checks_total": true, "http_reqs": true, "http_req_duration": true,
	"iterations": true, "iteration_duration": true, "data_received": true,
}

func (k *k6) look(raw []byte) {
	if raw[0] != ' ' {
		if k.in {
			k.finish()
		}
		return
	}
	k.in = true
	line := bytes.TrimLeft(raw, " ")
	switch {
	case bytes.HasPrefix(line, []byte("█ ")):
		k.title(strings.TrimSpace(string(line[len("█ "):])))
	case k.section == parts:
	case bytes.HasPrefix(line, []byte("✓ ")):
		k.verdict(string(line[len("✓ "):]), true)
	case bytes.HasPrefix(line, []byte("✗ ")):
		k.verdict(string(line[len("✗ "):]), false)
	case k.section == thresholds:
		k.subject(string(line))
	case bytes.Contains(line, []byte("..:")):
		name, values, _ := strings.Cut(string(line), "..:")
		k.measure(strings.TrimRight(name, "."), values)
	}
}

func (k *k6) title(title string) {
	switch {
	case title == "THRESHOLDS":
		if k.found {
			k.finish()
		}
		k.section = thresholds
	case title == "TOTAL RESULTS":
		k.section = totals
	case k.section == totals && (strings.HasPrefix(title, "GROUP:") || strings.HasPrefix(title, "SCENARIO:")):
		k.section = parts
	}
}

// subject is the metric of thresholds, or which part of it.
func (k *k6) subject(name string) {
	if strings.HasPrefix(name, "{") {
		name = part(k.metric, name)
	}
	k.metric = name
}

// part returns the name of a submetric as k6 spells it, as http_reqs{kind:slow}.
func part(metric, tags string) string {
	metric, _, _ = strings.Cut(metric, "{")
	return metric + strings.ReplaceAll(tags, " ", "")
}

// verdict is that of a check or a threshold. Before version 1 a threshold was
// told by the line of its metric.
func (k *k6) verdict(text string, ok bool) {
	name, values, isMetric := strings.Cut(text, "..:")
	switch {
	case k.section == thresholds:
		text = k.metric + ": " + quoted(text)
	case isMetric:
		name = strings.TrimRight(name, ".")
		k.measure(name, values)
		if text = name; strings.HasPrefix(name, "{") {
			text = part(k.metric, name)
		}
		text = "threshold on " + text
	}
	k.tally.seen++
	if !ok {
		k.tally.failed++
		k.tally.failures = k.tally.failures.add(text)
	}
}

// quoted returns what stands in quotes at the start of text.
func quoted(text string) string {
	after, ok := strings.CutPrefix(text, "'")
	if expression, _, ends := strings.Cut(after, "' "); ok && ends {
		return expression
	}
	return text
}

// measure looks at the values of a metric.
func (k *k6) measure(name, values string) {
	if !strings.HasPrefix(name, "{") {
		k.metric = name
		k.found = k.found || k6Metrics[name]
	}
	switch name {
	case "http_reqs":
		k.run.requests = count(field(values, 0))
		k.run.rate = number(strings.TrimSuffix(field(values, 1), "/s"))
	case "http_req_failed":
		k.run.errors = failed(values)
	case "http_req_duration":
		for _, value := range strings.Fields(values) {
			k.percentile(value)
		}
	}
}

func (k *k6) percentile(value string) {
	name, value, _ := strings.Cut(value, "=")
	switch name {
	case "med", "p(50)":
		k.run.p50 = span(value)
	case "p(95)":
		k.run.p95 = span(value)
	case "p(99)":
		k.run.p99 = span(value)
	}
}

// failed reads: 40.00% 8 out of 20, or, of old versions, 40.00% ✓ 8 ✗ 12.
func failed(values string) int64 {
	if n := field(values, 1); n != "✓" {
		return count(n)
	}
	return count(field(values, 2))
}

// finish ends the summary of one run.
func (k *k6) finish() {
	if k.found {
		k.total.seen += k.tally.seen
		k.total.failed += k.tally.failed
		k.total.failures = k.total.failures.join(k.tally.failures)
		k.load = k.load.add(k.run)
		k.runs++
	}
	*k = k6{total: k.total, load: k.load, runs: k.runs}
}

func (k k6) summary() *api.Summary {
	k.finish()
	if k.runs == 0 {
		return nil
	}
	return k.load.fill(k.total.summary("k6"), k.runs)
}
