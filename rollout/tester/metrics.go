package tester

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

const metricPrefix = "headgate_tester_"

// metrics are what a server counts, in a registry of its own. No text of a request is
// in a label.
type metrics struct {
	handler http.Handler

	started, shared, output, ended     *prometheus.CounterVec // of runs
	checks, changes, denials, requests *prometheus.CounterVec
	duration                           *prometheus.HistogramVec
	inFlight                           prometheus.Gauge
}

func (m *metrics) build(s *Server) {
	reg := prometheus.NewRegistry()
	auto := promauto.With(reg)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: metricPrefix + name, Help: help}, labels)
	}
	gauge := func(name, help string, value func() float64, labels prometheus.Labels) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: metricPrefix + name, Help: help, ConstLabels: labels}, value)
	}
	m.started = counter("runs_started_total", "Runs that were started.", "type")
	m.ended = counter("runs_finished_total", "Runs that ended, by how.", "type", "outcome")
	m.shared = counter("runs_shared_total", "Requests that were given the run of an equal request.", "type")
	m.output = counter("runs_output_bytes_total", "Bytes that runs wrote, kept or not.", "type")
	m.duration = auto.NewHistogramVec(prometheus.HistogramOpts{
		Name: metricPrefix + "run_duration_seconds", Help: "Time from the start of a run to its end.",
		Buckets: []float64{0.1, 0.5, 1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600},
	}, []string{"type"})
	m.checks = counter("gate_checks_total", "Checks of gates and rollback switches.", "kind", "result")
	m.changes = counter("gate_changes_total", "Changes of gates and rollback switches by callers.", "kind", "action")
	m.denials = counter("auth_failures_total", "Requests that were refused because of who sent them, or from where.", "reason")
	m.requests = counter("http_requests_total", "Requests that were answered.", "route", "code")
	m.inFlight = auto.NewGauge(prometheus.GaugeOpts{Name: metricPrefix + "http_requests_in_flight", Help: "Requests that wait for an answer, and streams."})
	gauge("runs_running", "Runs under way.", func() float64 { running, _ := s.Runs.Load(); return float64(running) }, nil)
	gauge("runs_queued", "Runs that wait for a place.", func() float64 { _, queued := s.Runs.Load(); return float64(queued) }, nil)
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.InstrumentMetricHandler(reg, promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))

	// The series that are there from the beginning, so that the first event of each is seen as an increase.
	for _, kind := range []api.Kind{api.KindGate, api.KindRollback} {
		for _, state := range []string{"open", "closed", "waiting"} {
			gauge("gates", "Gates and rollback switches that are known, by state.", func() float64 { n, _ := s.count(kind, state); return float64(n) },
				prometheus.Labels{"kind": string(kind), "state": state})
		}
		gauge("gate_waiting_since_seconds", "Unix time since which a check waits at a gate, the longest; 0 if none does.",
			func() float64 { _, since := s.count(kind, "waiting"); return since }, prometheus.Labels{"kind": string(kind)})
		for _, result := range []string{"closed", "open"} {
			m.checks.WithLabelValues(string(kind), result)
		}
		for _, action := range []string{"open", "close", "reject", "link"} {
			m.changes.WithLabelValues(string(kind), action)
		}
	}
	for _, reason := range []string{"missing", "invalid", "expired", "namespace", "type", "gate", "kind", "read-only", "origin", "host"} {
		m.denials.WithLabelValues(reason)
	}
	for _, name := range api.Types() {
		m.started.WithLabelValues(name)
		m.shared.WithLabelValues(name)
		m.output.WithLabelValues(name)
		m.duration.WithLabelValues(name)
		for _, outcome := range []api.RunState{api.Succeeded, api.Failed, api.TimedOut, api.Cancelled, api.Stopped} {
			m.ended.WithLabelValues(name, string(outcome))
		}
	}
}

// count returns how many gates are in a state, and since when the first of them has
// something that waits, as Unix time.
func (s *Server) count(kind api.Kind, state string) (n int, since float64) {
	for _, g := range s.Gates.List(api.Filter{Kind: kind}) {
		is := "closed"
		switch waits := g.Waiting; {
		case g.Open:
			is = "open"
		case waits != nil && !waits.Stale:
			is = "waiting"
			if at := float64(waits.Since.UnixMilli()) / 1000; since == 0 || at < since {
				since = at
			}
		}
		if is == state {
			n++
		}
	}
	return n, since
}

// serveMetrics answers with the metrics in the format of Prometheus. Where
// callers have to say who they are any credential will do, unless OpenMetrics.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) error {
	if !s.OpenMetrics {
		if _, err := s.Guard.Identify(r, ""); err != nil {
			return err
		}
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	s.metrics.handler.ServeHTTP(w, r)
	return nil
}

// ObserveRun counts and logs a run; it is for [run.Config] Observe.
func (s *Server) ObserveRun(r api.Run, shared bool) {
	m, log := &s.started().metrics, s.Log.With("id", r.ID, "type", r.Type)
	if shared {
		m.shared.WithLabelValues(r.Type).Inc()
		log.Debug("run shared")
		return
	}
	log = log.With("namespace", clean(r.Namespace), "name", clean(r.Name))
	switch r.State {
	case api.Queued:
		log.Info("run queued")
		return
	case api.Running:
		m.started.WithLabelValues(r.Type).Inc()
		log.Info("run started", "phase", clean(r.Phase), "checksum", clean(r.Checksum), "actor", r.Actor)
		return
	}
	m.ended.WithLabelValues(r.Type, string(r.State)).Inc()
	m.output.WithLabelValues(r.Type).Add(float64(r.Bytes))
	if !r.Started.IsZero() {
		m.duration.WithLabelValues(r.Type).Observe(r.Ended.Sub(r.Started).Seconds())
	}
	if wanted, _ := strconv.ParseBool(r.Metadata["logCmdOutput"]); wanted {
		for line := range strings.Lines(r.Output) {
			log.Info("output", "line", redact.String(strings.TrimRight(line, "\n")))
		}
	}
	log = log.With("state", string(r.State), "durationMs", r.Duration, "bytes", r.Bytes)
	if r.ExitCode != nil {
		log = log.With("exitCode", *r.ExitCode)
	}
	if r.State != api.Succeeded {
		log.Warn("run ended", "reason", clean(r.Reason))
		return
	}
	log.Info("run ended")
}
