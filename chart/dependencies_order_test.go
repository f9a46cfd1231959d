package chart

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// TestFetchesAtOnce: 20 charts of one repository are fetched several at a time, after
// its index was fetched once.
func TestFetchesAtOnce(t *testing.T) {
	var mu sync.Mutex
	var now, most int
	full := make(chan struct{})
	site := testenv.StartCharts(t, testenv.ChartsConfig{Allow: func(r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/index.yaml") {
			return true
		}
		mu.Lock()
		if now++; now > most {
			if most = now; most == parallelFetches {
				close(full)
			}
		}
		mu.Unlock()
		select {
		case <-full:
		case <-r.Context().Done():
		}
		mu.Lock()
		now--
		mu.Unlock()
		return true
	}})
	var list []string
	for i := range 20 {
		name := fmt.Sprintf("c%02d", i)
		site.Put(testenv.ChartVersion{Name: name, Version: "1.0.0", Archive: archiveOf(t, name, "1.0.0")})
		list = append(list, name+" * "+site.URL())
	}
	got, err := completed(t, newSupply(t, ""), umbrella(list...), ".")
	if err != nil || strings.Count(got, "\n") != 20 {
		t.Errorf("%v\n%s", err, got)
	}
	if most < parallelFetches { // TestArchivesThatAreTooMuchTogether: nor are there more
		t.Errorf("%d requests at once", most)
	}
	if n := site.Count(testenv.GetIndex); n != 1 {
		t.Errorf("the index was fetched %d times", n)
	}
}

// TestTheFirstFailureEndsTheRest: a repository that stalls is not waited for
// when a dependency before it has failed, and nothing is left behind.
func TestTheFirstFailureEndsTheRest(t *testing.T) {
	stalls := testenv.StartCharts(t, testenv.ChartsConfig{Defect: &testenv.Defect{Phase: testenv.GetIndex, Do: testenv.Stall}})
	gone := testenv.StartCharts(t, testenv.ChartsConfig{Allow: func(r *http.Request) bool {
		select {
		case <-stalls.Stalled():
		case <-r.Context().Done():
		}
		return true
	}})
	patient := strings.Replace(repositoryObject("stalls", stalls.URL(), ""), "interval: 1h", "timeout: 600m", 1)
	sourcetest.NoLeaks(t, func(ctx context.Context) {
		_, err := completedWithin(ctx, t, newSupply(t, patient), umbrella("none * "+gone.URL(), "lib * "+stalls.URL()), ".")
		demandFailure(t, err, `"none"`)
	})
}

// slowSources answers for one object once a channel is closed.
type slowSources struct {
	source.Sources
	after <-chan struct{}
}

func (s *slowSources) Source(ctx context.Context, ref source.Reference) (source.Object, error) {
	<-s.after
	return s.Sources.Source(ctx, ref)
}

// TestAnEndLeavesNothing ends the context while an index or a chart is fetched.
func TestAnEndLeavesNothing(t *testing.T) {
	for _, phase := range []testenv.Phase{testenv.GetIndex, testenv.GetChart} {
		t.Run(string(phase), func(t *testing.T) {
			site := testenv.StartCharts(t, testenv.ChartsConfig{Defect: &testenv.Defect{Phase: phase, Do: testenv.Stall}})
			site.Put(testenv.ChartVersion{Name: "lib", Version: "1.0.0", Archive: archiveOf(t, "lib", "1.0.0")})
			s, files := newSupply(t, ""), &spools{t: t}
			s.env.Limits.Temp = files.create
			sourcetest.NoLeaks(t, func(ctx context.Context) {
				ctx, cancel := context.WithCancel(ctx)
				go func() {
					<-site.Stalled()
					cancel()
				}()
				if _, err := completedWithin(ctx, t, s, umbrella("lib * "+site.URL()), "."); !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
			})
			files.demandClosed()
		})
	}
}
