package summary

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// hey reads what hey prints at its end.
type hey struct {
	total   load
	runs    int
	run     load
	section string // heading of the lines that follow
	found   bool   // a rate, in the run that is read
}

func (h *hey) look(raw []byte) {
	if raw[0] != ' ' {
		switch {
		case bytes.Equal(raw, []byte("Summary:")):
			h.finish()
			h.section = "Summary:"
		case h.section != "" && raw[len(raw)-1] == ':':
			h.section = string(raw)
		default:
			h.section = ""
		}
		return
	}
	if h.section == "" {
		return
	}
	line := strings.TrimSpace(string(raw))
	switch h.section {
	case "Summary:":
		if text, ok := strings.CutPrefix(line, "Requests/sec:"); ok {
			h.run.rate, h.found = number(field(text, 0)), true
		}
		if text, ok := strings.CutPrefix(line, "Total:"); ok {
			h.run.seconds = number(field(text, 0))
		}
	case "Latency distribution:":
		h.latency(line)
	case "Status code distribution:":
		h.status(line)
	case "Error distribution:":
		n, text := bracketed(line)
		h.errors(count(n), fmt.Sprintf("%s × %s", n, text))
	}
}

func (h *hey) latency(line string) {
	percent, after, _ := strings.Cut(line, "% in ")
	d := seconds(field(after, 0))
	switch strings.TrimRight(percent, "%") {
	case "50":
		h.run.p50 = d
	case "95":
		h.run.p95 = d
	case "99":
		h.run.p99 = d
	}
}

// status reads how many answers had which status: [200] 157 responses.
func (h *hey) status(line string) {
	code, text := bracketed(line)
	n := count(field(text, 0))
	if count(code) >= 400 {
		h.errors(n, fmt.Sprintf("%d × status %s", n, code))
		return
	}
	h.run.requests = sum(h.run.requests, n)
}

func (h *hey) errors(n int64, what string) {
	if n == 0 {
		return
	}
	h.run.requests = sum(h.run.requests, n)
	h.run.errors = sum(h.run.errors, n)
	h.run.failures = h.run.failures.add(what)
}

func bracketed(line string) (in, after string) {
	in, after, _ = strings.Cut(strings.TrimPrefix(line, "["), "]")
	return in, strings.TrimSpace(after)
}

func (h *hey) finish() {
	if h.found {
		h.total = h.total.add(h.run)
		h.runs++
	}
	h.run, h.found = load{}, false
}

func (h hey) summary() *api.Summary {
	h.finish()
	if h.runs == 0 {
		return nil
	}
	return h.total.fill(&api.Summary{Format: "hey"}, h.runs)
}
