package tester

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

const metricPrefix = "headgate_tester_"

// metrics are what a server counts, in a registry of its own. Counters of
// paths that are taken often are looked up beforehand.
type metrics struct {
	once    sync.Once
	handler http.Handler

	runs struct {
		started, shared, output, ended *prometheus.CounterVec
		duration                       *prometheus.HistogramVec
		running, queued                prometheus.Gauge
		waiting                        sync.Map // by ID
	}
	checks   [2][2]prometheus.Counter // of gates and of rollback switches, closed and open
	changes  *prometheus.CounterVec
	denials  *prometheus.CounterVec
	requests *prometheus.CounterVec
	inFlight atomic.Int64
	counted  [len(routes)][600]atomic.Pointer[prometheus.Counter] // requests by route and status
}

// durationBuckets are the bounds of durations of runs, in seconds.
var durationBuckets = []float64{0.1, 0.5, 1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600}

// outcomes are the states in which runs end while somebody counts.
var outcomes = []api.RunState{api.Succeeded, api.Failed, api.TimedOut, api.Cancelled, api.Stopped}

// actions are the changes of gates that callers make.
var actions = []string{"open", "close", "reject", "link"}

// denials are why callers are refused.
var denials = []string{"missing", "invalid", "expired", "namespace", "type", "gate", "kind", "read-only", "origin", "host"}

// measures returns the metrics of a server.
func (s *Server) measures() *metrics {
	s.metrics.once.Do(func() { s.metrics.build(s) })
	return &s.metrics
}

func (m *metrics) build(s *Server) {
	reg := prometheus.NewRegistry()
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricPrefix + name, Help: help}, labels)
		reg.MustRegister(v)
		return v
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: metricPrefix + name, Help: help})
		reg.MustRegister(g)
		return g
	}
	m.runs.started = counter("runs_started_total", "Runs that were started.", "type")
	m.runs.ended = counter("runs_finished_total", "Runs that ended, by how.", "type", "outcome")
	m.runs.shared = counter("runs_shared_total", "Requests that were given the run of an equal request.", "type")
	m.runs.output = counter("runs_output_bytes_total", "Bytes that runs wrote, kept or not.", "type")
	m.runs.running = gauge("runs_running", "Runs under way.")
	m.runs.queued = gauge("runs_queued", "Runs that wait for a place.")
	m.runs.duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: metricPrefix + "run_duration_seconds", Help: "Time from the start of a run to its end.", Buckets: durationBuckets,
	}, []string{"type"})
	checks := counter("gate_checks_total", "Checks of gates and rollback switches.", "kind", "result")
	m.changes = counter("gate_changes_total", "Changes of gates and rollback switches by callers.", "kind", "action")
	m.denials = counter("auth_failures_total", "Requests that were refused because of who sent them, or from where.", "reason")
	m.requests = counter("http_requests_total", "Requests that were answered.", "route", "code")
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: metricPrefix + "http_requests_in_flight", Help: "Requests that wait for an answer, and streams.",
	}, func() float64 { return float64(m.inFlight.Load()) }))
	m.zero(checks)
	reg.MustRegister(m.runs.duration, gateStates{s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.InstrumentMetricHandler(reg, promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
}

// zero makes the series that are there from the beginning, so that the first
// event of each is seen as an increase.
func (m *metrics) zero(checks *prometheus.CounterVec) {
	for i, kind := range []api.Kind{api.KindGate, api.KindRollback} {
		m.checks[i] = [2]prometheus.Counter{checks.WithLabelValues(string(kind), "closed"), checks.WithLabelValues(string(kind), "open")}
		for _, action := range actions {
			m.changes.WithLabelValues(string(kind), action)
		}
	}
	for _, reason := range denials {
		m.denials.WithLabelValues(reason)
	}
	for _, name := range api.Types() {
		m.runs.started.WithLabelValues(name)
		m.runs.shared.WithLabelValues(name)
		m.runs.output.WithLabelValues(name)
		m.runs.duration.WithLabelValues(name)
		for _, outcome := range outcomes {
			m.runs.ended.WithLabelValues(name, string(outcome))
		}
	}
}
