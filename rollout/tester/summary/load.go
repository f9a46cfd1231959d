package summary

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// A load is what one or several runs of a tool say about requests.
type load struct {
	requests, errors int64
	rate             float64 // of the slowest run
	seconds          float64 // that the runs took, 0 when they do not tell
	p50, p95, p99    time.Duration
	failures         names
}

func (l load) add(m load) load {
	l.requests = sum(l.requests, m.requests)
	l.errors = sum(l.errors, m.errors)
	l.seconds += m.seconds
	if l.rate == 0 || m.rate > 0 && m.rate < l.rate {
		l.rate = m.rate
	}
	l.p50, l.p95, l.p99 = max(l.p50, m.p50), max(l.p95, m.p95), max(l.p99, m.p99)
	l.failures = l.failures.join(m.failures)
	return l
}

// fill writes l into s. The rate of several runs is that of all together, when
// their tool tells how long they took.
func (l load) fill(s *api.Summary, runs int) *api.Summary {
	s.Requests, s.Errors, s.Rate = l.requests, l.errors, l.rate
	if runs > 1 && l.seconds > 0 {
		s.Rate = min(float64(l.requests)/l.seconds, maxCount)
	}
	s.P50, s.P95, s.P99 = l.p50, l.p95, l.p99
	s.Failures = append(s.Failures, l.failures[:min(len(l.failures), maxNames-len(s.Failures))]...)
	return s
}

// sum adds what tools say, which is at most maxCount, and stays there.
func sum(a, b int64) int64 { return min(a+b, maxCount) }

// count reads how often something happened, 0 when that is no number.
func count(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxCount {
		return 0
	}
	return n
}

// number reads what may be shown as JSON: neither NaN nor infinite; 0 otherwise.
func number(text string) float64 {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || f < 0 || f > maxCount {
		return 0
	}
	return f
}

// span reads a duration as 19.24ms, 0 when it is none.
func span(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0
	}
	return d
}

// seconds reads a duration as 0.0193.
func seconds(text string) time.Duration {
	return time.Duration(min(number(text), 1e9) * float64(time.Second))
}

// field returns field i of a line, "" when it has not so many.
func field(line string, i int) string {
	f := strings.Fields(line)
	if i >= len(f) {
		return ""
	}
	return f[i]
}
