package traffic_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// A clock is set by the test.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

var (
	rate     = rollout.Metric{Name: "request-success-rate"}
	duration = rollout.Metric{Name: "request-duration"}
)

// newMeasuredProxy returns a proxy whose canary answers with the status in the path, after the
// clock has advanced by the duration in the path.
func newMeasuredProxy(t *testing.T) (p *traffic.Proxy, c *clock, send func(path string)) {
	c = &clock{at: time.Unix(1e9, 0)}
	canary := serve(t, func(w http.ResponseWriter, req *http.Request) {
		status, took, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
		d, err := time.ParseDuration(took)
		if err != nil {
			t.Error(err)
		}
		c.pass(d)
		code, err := strconv.Atoi(status)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(code)
	})
	p = &traffic.Proxy{Canary: canary.URL, Now: c.now}
	url := serveProxy(t, p).URL
	set(t, p, rollout.Routes{Canary: 100})
	return p, c, func(path string) {
		t.Helper()
		get(t, url+path)
		must(t, p.Drain(t.Context()))
	}
}

func value(t *testing.T, p *traffic.Proxy, m rollout.Metric) float64 {
	t.Helper()
	v, err := p.Query(t.Context(), nil, m)
	must(t, err)
	return v
}

func TestSuccessRate(t *testing.T) {
	p, c, send := newMeasuredProxy(t)
	for _, m := range []rollout.Metric{rate, duration} {
		_, err := p.Query(t.Context(), nil, m)
		if !errors.Is(err, rollout.ErrNoValues) || !strings.HasPrefix(err.Error(), "no values found for metric "+m.Name) {
			t.Error(err)
		}
	}
	for _, path := range []string{"/200/0s", "/404/0s", "/301/0s", "/500/0s"} {
		send(path)
	}
	testenv.Equal(t, value(t, p, rate), 75)
	c.pass(30 * time.Second)
	for range 4 {
		send("/503/0s")
	}
	testenv.Equal(t, value(t, p, rate), 37.5, "of a minute")
	short := rate
	short.Interval = rollout.Duration(10 * time.Second)
	testenv.Equal(t, value(t, p, short), 0, "of ten seconds")
	c.pass(30 * time.Second)
	testenv.Equal(t, value(t, p, rate), 0, "after a minute")
	long := rate
	long.Interval = rollout.Duration(time.Hour)
	c.pass(time.Hour - time.Minute - time.Second)
	testenv.Equal(t, value(t, p, long), 37.5, "of an hour")
	c.pass(time.Minute)
	if _, err := p.Query(t.Context(), nil, long); !errors.Is(err, rollout.ErrNoValues) {
		t.Error(err)
	}
	long.Interval++
	if _, err := p.Query(t.Context(), nil, long); err == nil || errors.Is(err, rollout.ErrNoValues) {
		t.Error(err)
	}
}

// The error of the 99th percentile is at most a sixteenth at every magnitude.
func TestDuration(t *testing.T) {
	for _, took := range []time.Duration{time.Millisecond, 17 * time.Millisecond, 100 * time.Millisecond, 999 * time.Millisecond, 7 * time.Second, 30 * time.Minute} {
		p, _, send := newMeasuredProxy(t)
		for range 49 {
			send("/200/" + (took / 100).String())
		}
		send("/200/" + took.String())
		m := duration
		m.Interval = rollout.Duration(time.Hour)
		got, want := value(t, p, m), float64(took/time.Millisecond)
		if got != float64(int(got)) || got < want*0.93-1 || got > want*1.07 {
			t.Errorf("%s: got %v", took, got)
		}
	}
	p, _, send := newMeasuredProxy(t)
	send("/200/1s")
	for range 200 {
		send("/200/100us")
	}
	testenv.Equal(t, value(t, p, duration), 0, "one slow request in 201")
	send("/200/100h") // beyond the range of the histogram; the other requests are out of the window
	if v := value(t, p, duration); v < float64(time.Hour/time.Millisecond) {
		t.Errorf("got %v", v)
	}
}

// Requests to an earlier canary do not count for the next one.
func TestMeasurementsBeginAnew(t *testing.T) {
	p, _, send := newMeasuredProxy(t)
	send("/500/0s")
	set(t, p, rollout.Routes{Primary: 50, Canary: 50})
	testenv.Equal(t, value(t, p, rate), 0)
	set(t, p, rollout.Routes{Primary: 100})
	testenv.Equal(t, value(t, p, rate), 0, "after the rollback")
	set(t, p, rollout.Routes{Canary: 100})
	if _, err := p.Query(t.Context(), nil, rate); !errors.Is(err, rollout.ErrNoValues) {
		t.Error(err)
	}
	send("/200/0s")
	testenv.Equal(t, value(t, p, rate), 100)
}

type constantMetrics float64

func (a constantMetrics) Query(context.Context, *rollout.Canary, rollout.Metric) (float64, error) {
	return float64(a), nil
}

func TestMetrics(t *testing.T) {
	p, _, send := newMeasuredProxy(t)
	send("/200/0s")
	custom := rollout.Metric{Name: "custom"}
	inline := rollout.Metric{Name: "request-duration", Query: "sum(x)"}
	template := rollout.Metric{Name: "request-success-rate", TemplateRef: &rollout.ObjectRef{Name: "x"}}
	for _, m := range []rollout.Metric{custom, inline, template} {
		if _, err := p.Query(t.Context(), nil, m); err == nil || !strings.Contains(err.Error(), "measures only request-success-rate and request-duration") {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
	p.Next = constantMetrics(7)
	for _, m := range []rollout.Metric{custom, inline, template} {
		if v, err := p.Query(t.Context(), nil, m); err != nil || v != 7 {
			t.Errorf("%s: %v, %v", m.Name, v, err)
		}
	}
	testenv.Equal(t, value(t, p, rate), 100)
}

// TestMeasurementsAfterARestart checks that a proxy that starts with traffic at the
// canary does not report missing traffic within the first interval, since it does not
// know earlier measurements.
func TestMeasurementsAfterARestart(t *testing.T) {
	c := &clock{at: time.Unix(1e9, 0)}
	hello := serve(t, func(http.ResponseWriter, *http.Request) {})
	canary := &rollout.Canary{}
	for name, start := range map[string]rollout.Routes{"weight": {Primary: 60, Canary: 40}, "copies": {Primary: 100, Mirrored: true}} {
		p := &traffic.Proxy{Canary: hello.URL, Start: start, Now: c.now}
		url := serveProxy(t, p).URL
		if _, err := p.Query(t.Context(), canary, rate); !errors.Is(err, rollout.ErrTooEarly) {
			t.Errorf("%s: at once: %v", name, err)
		}
		for range 10 {
			get(t, url) // the canary gets the request or a copy
		}
		if err := p.Drain(t.Context()); err != nil { // waits for the copies
			t.Fatal(err)
		}
		c.pass(canary.Interval() - time.Nanosecond)
		if _, err := p.Query(t.Context(), canary, rate); !errors.Is(err, rollout.ErrTooEarly) {
			t.Errorf("%s: before an interval: %v", name, err)
		}
		c.pass(time.Nanosecond)
		if _, err := p.Query(t.Context(), canary, rate); !errors.Is(err, rollout.ErrNoValues) || errors.Is(err, rollout.ErrTooEarly) {
			t.Errorf("%s: after an interval: %v", name, err)
		}
		if start.Canary > 0 {
			for range 3 {
				get(t, url)
			}
			if v, err := p.Query(t.Context(), canary, rate); v != 100 || err != nil {
				t.Errorf("%s: with requests: %v, %v", name, v, err)
			}
		}
	}
}

// A deployment has a primary, a canary, and a proxy in front of them.
type deployment struct {
	t              *testing.T
	clock          clock
	proxy          *traffic.Proxy
	url            string
	broken         atomic.Bool   // the canary answers 500
	slow           chan struct{} // /slow answers once it is closed
	arrived        chan struct{} // gets a value for each request to /slow at the canary
	target         stopping
	onAllToPrimary func() // called after all traffic was routed to the primary
}

// SetRoutes and Routes implement [rollout.Traffic].
func (m *deployment) SetRoutes(ctx context.Context, r rollout.Routes) error {
	err := m.proxy.SetRoutes(ctx, r)
	if r.Canary == 0 {
		m.onAllToPrimary()
	}
	return err
}

func (m *deployment) Routes(ctx context.Context) (rollout.Routes, error) { return m.proxy.Routes(ctx) }

func newDeployment(t *testing.T) *deployment {
	m := &deployment{t: t, clock: clock{at: time.Unix(1e9, 0)}, slow: make(chan struct{}), arrived: make(chan struct{}, 1000), onAllToPrimary: func() {}}
	canary := serve(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/slow" {
			m.arrived <- struct{}{}
			<-m.slow
		} else if m.broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
		io.WriteString(w, "canary")
	})
	m.proxy = &traffic.Proxy{Canary: canary.URL, Now: m.clock.now}
	m.url = serveProxy(t, m.proxy).URL
	m.target = stopping{Adapter: traffic.Adapter{Values: traffic.Values{Revision: "v2"}}, server: canary, called: make(chan struct{})}
	return m
}

// run rolls out v2. Before each tick except the first, it sends 100 requests and then
// calls each.
func (m *deployment) run(each func(s rollout.Status)) rollout.Status {
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
		Traffic: m, Target: m.proxy.Target(&m.target), Metrics: m.proxy,
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
	must(m.t, err)
	return s
}

// load sends 100 requests, and returns how many of them the canary got.
func (m *deployment) load() (canary int) {
	m.t.Helper()
	for range 100 {
		switch got := get(m.t, m.url); got {
		case "primary":
		case "canary", "500 canary":
			canary++
		default:
			m.t.Errorf("got %q", got)
		}
	}
	return canary
}

// A canary that fails during the rollout is rolled back because of the measurements of
// the proxy. Its slow requests are answered before it is stopped.
func TestRolledBackByItsOwnMeasurements(t *testing.T) {
	m := newDeployment(t)
	var clients sync.WaitGroup
	m.onAllToPrimary = func() {
		if m.broken.Load() {
			answer := sync.OnceFunc(func() { close(m.slow) })
			m.onAllToPrimary = answer
			go answer() // while the analysis scales the canary down
		}
	}
	s := m.run(func(s rollout.Status) {
		if s.CanaryWeight != 30 || m.broken.Load() {
			return
		}
		for range 100 {
			clients.Go(func() {
				if got := get(t, m.url+"/slow"); got != "canary" && got != "primary" {
					t.Errorf("a slow request got %q", got)
				}
			})
		}
		for range 30 {
			<-m.arrived
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
		testenv.Equal(t, get(t, m.url), "primary", "after the rollback")
	}
	if r, err := m.proxy.Routes(t.Context()); err != nil || r != (rollout.Routes{Primary: 100}) {
		t.Errorf("%+v, %v", r, err)
	}
	testenv.Equal(t, m.proxy.Measured().Running, 0)
}
