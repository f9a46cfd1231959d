package main

import (
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/chart/index"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
)

// TestSearchBounds checks that the number of charts is bounded, including charts
// with pre-releases only, and that only the newest version of each chart is kept.
func TestSearchBounds(t *testing.T) {
	measure.WithoutRace(t)
	charts := func(from, to int, version string) iter.Seq2[index.Entry, error] { // two entries each
		return func(yield func(index.Entry, error) bool) {
			for i := 2 * from; i < 2*to && yield(index.Entry{Name: fmt.Sprintf("chart-%d", i/2), Version: version}, nil); i++ {
			}
		}
	}
	for _, version := range []string{"1.0.0", "1.0.0-rc.1"} {
		s := new(search)
		must(t, s.prepare(nil))
		testenv.Equal(t, s.collect(t.Context(), charts(0, maxCharts, version)), nil, "%s: %d charts", version, maxCharts)
		if n := len(s.found["chart-0"].versions); n > 1 {
			t.Errorf("%d versions are kept of a chart", n)
		}
		if err := s.collect(t.Context(), charts(maxCharts, maxCharts+1, version)); err == nil || !strings.Contains(err.Error(), "more than 100000 charts") {
			t.Errorf("%s: one chart more: %v", version, err)
		}
	}
}
