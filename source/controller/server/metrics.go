package server

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller"
)

const metricPrefix = "headgate_"

// metrics are what a server counts, in a registry of its own. What a controller
// and its objects are is looked up when somebody asks; see collector.go.
type metrics struct {
	once    sync.Once
	handler http.Handler

	runs     *prometheus.HistogramVec
	outcomes *prometheus.CounterVec
	late     *prometheus.HistogramVec
	fetched  *prometheus.CounterVec
	stored   *prometheus.CounterVec
	served   prometheus.Counter
	events   *prometheus.CounterVec
	told     *prometheus.CounterVec
	hooks    *prometheus.CounterVec
	denials  *prometheus.CounterVec
	requests *prometheus.CounterVec
	inFlight atomic.Int64
	counted  [len(routes)][600]atomic.Pointer[prometheus.Counter] // requests by route and status
}

// Bounds of durations, in seconds: of runs, most of which ask one question, and
// of how late they begin.
var (
	runBuckets  = []float64{0.005, 0.025, 0.1, 0.25, 1, 2.5, 10, 30, 60, 300, 1800}
	lateBuckets = []float64{0.01, 0.1, 0.5, 1, 3, 10, 30, 60, 300, 1800}
)

// kinds are those that are run.
var kinds = []string{"GitRepository", "OCIRepository", "Bucket", "PkgRepository", "PkgChart"}

var outcomes = []source.Outcome{source.Stored, source.Unchanged, source.Waiting, source.Failed, source.Stalled}

var triggers = []controller.Trigger{
	controller.Start, controller.Tick, controller.Retry, controller.Spec, controller.Request,
	controller.Hook, controller.Input, controller.Secret, controller.Repair,
}

// refusedFor are why callers are refused.
var refusedFor = []string{"missing", "invalid", "expired", "namespace", "kind", "may", "origin", "host", "unknown"}

// deliveries are what becomes of events.
var deliveries = []string{"delivered", "failed", "lost"}

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
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: metricPrefix + name, Help: help, Buckets: buckets}, labels)
		reg.MustRegister(v)
		return v
	}
	m.runs = histogram("reconcile_duration_seconds", "Time that reconciliations took.", runBuckets, "kind")
	m.outcomes = counter("reconcile_total", "Reconciliations that ended, by why they began and how they ended.", "kind", "trigger", "outcome")
	m.late = histogram("reconcile_lateness_seconds", "Time from when a reconciliation was due to its start.", lateBuckets, "kind")
	m.fetched = counter("fetched_bytes_total", "Bytes of the files that were fetched for new artifacts, unpacked: not what the network carried.", "kind")
	m.stored = counter("artifact_stored_bytes_total", "Bytes of the artifacts that were stored.", "kind")
	m.served = counter("artifact_served_bytes_total", "Bytes of artifacts that were sent to consumers.").WithLabelValues()
	m.events = counter("events_total", "Events of sources, by severity.", "severity")
	m.told = counter("event_deliveries_total", "Events that were posted to receivers: delivered, failed at the first attempt, or lost.", "result")
	m.hooks = counter("hook_requests_total", "Calls of webhooks, by who calls and how they were answered.", "provider", "code")
	m.denials = counter("auth_failures_total", "Requests that were refused because of who sent them, or from where.", "reason")
	m.requests = counter("http_requests_total", "Requests that were answered.", "route", "code")
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: metricPrefix + "http_requests_in_flight", Help: "Requests that wait for an answer, and streams.",
	}, func() float64 { return float64(m.inFlight.Load()) }))
	m.zero()
	reg.MustRegister(collector{s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.InstrumentMetricHandler(reg, promhttp.HandlerFor(reg, promhttp.HandlerOpts{DisableCompression: true, MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
}

// zero makes the series that are there from the beginning, so that the first
// of each is seen as an increase.
func (m *metrics) zero() {
	for _, kind := range kinds {
		m.runs.WithLabelValues(kind)
		m.late.WithLabelValues(kind)
		m.fetched.WithLabelValues(kind)
		m.stored.WithLabelValues(kind)
		for _, outcome := range outcomes {
			for _, trigger := range triggers {
				m.outcomes.WithLabelValues(kind, string(trigger), string(outcome))
			}
		}
	}
	for _, severity := range []string{"trace", "info", "error"} {
		m.events.WithLabelValues(severity)
	}
	for _, result := range deliveries {
		m.told.WithLabelValues(result)
	}
	for _, reason := range refusedFor {
		m.denials.WithLabelValues(reason)
	}
}

// serveMetrics answers with the metrics in the format of Prometheus. They are
// about all objects: unless OpenMetrics, whoever asks has to be one who may read all.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) error {
	if !s.OpenMetrics {
		grant, err := s.Guard.Identify(r)
		if err == nil {
			err = grant.Read(source.Reference{})
		}
		if err != nil {
			return err
		}
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	r = r.Clone(r.Context())
	r.Header.Del("Accept") // the text format
	a := answer.Writing(w)
	s.measures().handler.ServeHTTP(a, r)
	if a.Status == http.StatusOK && r.Method != http.MethodHead {
		s.writeObjects(a) // its error is that of the connection
	}
	return nil
}
