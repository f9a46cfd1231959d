package traffic_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// A machine is one with a primary, a canary and the proxy before them.
type machine struct {
	t      *testing.T
	clock  clock
	proxy  *traffic.Proxy
	url    string
	broken atomic.Bool   // the canary answers 500
	slow   chan struct{} // what /slow waits for
	at     chan struct{} // /slow has begun at the canary
	target stopping
	home   func() // called when all traffic was given to the primary
}

// SetRoutes makes a machine the traffic of its rollout.
func (m *machine) SetRoutes(ctx context.Context, r rollout.Routes) error {
	err := m.proxy.SetRoutes(ctx, r)
	if r.Canary == 0 {
		m.home()
	}
	return err
}

func (m *machine) Routes(ctx context.Context) (rollout.Routes, error) { return m.proxy.Routes(ctx) }

func newMachine(t *testing.T) *machine {
	m := &machine{t: t, clock: clock{at: time.Unix(1e9, 0)}, slow: make(chan struct{}), at: make(chan struct{}, 1000), home: func() {}}
	canary := serve(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/slow" {
			m.at <- struct{}{}
			<-m.slow
		} else if m.broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
		io.WriteString(w, "canary")
	})
	m.proxy = &traffic.Proxy{Canary: canary.URL, Now: m.clock.now}
	m.url = front(t, m.proxy).URL
	m.target = stopping{Adapter: traffic.Adapter{ID: "v2"}, server: canary, called: make(chan struct{})}
	return m
}

// run rolls v2 out. Before each tick but the first 100 clients ask, and then
// what each says happens.
func (m *machine) run(each func(s rollout.Status)) rollout.Status {
	m.t.Helper()
	low := 99.0
	analysis := &rollout.Analysis{
		Canary: &rollout.Canary{
			Metadata: rollout.Metadata{Name: "app", Namespace: "test"},
			Spec: rollout.CanarySpec{Analysis: rollout.Settings{
				Interval: rollout.Duration(time.Minute), Threshold: 1, StepWeight: 10, MaxWeight: 50,
				Metrics: []rollout.Metric{{Name: "request-success-rate", ThresholdRange: &rollout.Range{Min: &low}}},
			}},
		},
		Traffic: m, Target: m.proxy.Target(&m.target), Metrics: m.proxy.Metrics(nil),
	}
	var status rollout.Status
	loop := rollout.Loop{
		Now:  m.clock.now,
		Save: func(s rollout.Status) error { status = s; return nil },
		Wait: func(_ context.Context, d time.Duration) error {
			m.clock.pass(d)
			if got := m.load(); got != status.CanaryWeight && status.Phase == rollout.Progressing {
				m.t.Errorf("the canary got %d requests with weight %d", got, status.CanaryWeight)
			}
			each(status)
			return nil
		},
	}
	s, err := analysis.Run(m.t.Context(), rollout.Status{Phase: rollout.Initialized, AppliedSpec: "v1", PromotedSpec: "v1"}, loop)
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

// load sends 100 requests, and returns how many of them the canary got.
func (m *machine) load() (canary int) {
	m.t.Helper()
	for range 100 {
		switch got := ask(m.t, m.url); got {
		case "primary":
		case "canary", "500 canary":
			canary++
		default:
			m.t.Errorf("got %q", got)
		}
	}
	return canary
}

// A canary that breaks half-way is rolled back by what the proxy measures. Its
// slow requests are answered before it is stopped, and nobody notices that.
func TestRolledBackByItsOwnMeasurements(t *testing.T) {
	m := newMachine(t)
	var clients sync.WaitGroup
	m.home = func() {
		if m.broken.Load() {
			answer := sync.OnceFunc(func() { close(m.slow) })
			m.home = answer
			go answer() // while the analysis goes on to scale the canary down
		}
	}
	s := m.run(func(s rollout.Status) {
		if s.CanaryWeight != 30 || m.broken.Load() {
			return
		}
		for range 100 {
			clients.Go(func() {
				if got := ask(t, m.url+"/slow"); got != "canary" && got != "primary" {
					t.Errorf("a slow request got %q", got)
				}
			})
		}
		for range 30 {
			<-m.at
		}
		m.broken.Store(true)
		m.load()
	})
	clients.Wait()
	if s.Phase != rollout.Failed || s.CanaryWeight != 0 {
		t.Errorf("%+v", s)
	}
	<-m.target.called
	for range 20 {
		if got := ask(t, m.url); got != "primary" {
			t.Errorf("after the rollback: %q", got)
		}
	}
	if r, err := m.proxy.Routes(t.Context()); err != nil || r != (rollout.Routes{Primary: 100}) {
		t.Errorf("%+v, %v", r, err)
	}
	if st := m.proxy.Stats(); st.Running != [2]int{} {
		t.Errorf("%+v", st)
	}
}

func TestPromotedByItsOwnMeasurements(t *testing.T) {
	m := newMachine(t)
	var weights []int
	s := m.run(func(s rollout.Status) {
		if s.Phase == rollout.Progressing {
			weights = append(weights, s.CanaryWeight)
		}
	})
	if s.Phase != rollout.Succeeded || !slices.Equal(slices.Compact(weights), []int{0, 10, 20, 30, 40, 50}) {
		t.Errorf("%+v after %v", s, weights)
	}
	<-m.target.called
	if st := m.proxy.Stats(); st.Canary.Failed+st.Primary.Failed != 0 {
		t.Errorf("%+v", st)
	}
}
