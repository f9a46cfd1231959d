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

// metrics are the metrics of one server, in a registry of its own. No label holds text of
// a request.
type metrics struct {
	handler http.Handler

	started, shared, output, ended     *prometheus.CounterVec // of runs
	checks, changes, denials, requests *prometheus.CounterVec
	duration                           *prometheus.HistogramVec
	running, queued, inFlight          prometheus.Gauge
	gates, waiting                     *prometheus.GaugeVec
}

func (m *metrics) build() {
	reg := prometheus.NewRegistry()
	auto := promauto.With(prometheus.WrapRegistererWithPrefix("headgate_tester_", reg))
	m.started = auto.NewCounterVec(prometheus.CounterOpts{Name: "runs_started_total", Help: "Runs that were started."}, []string{"type"})
	m.ended = auto.NewCounterVec(prometheus.CounterOpts{Name: "runs_finished_total", Help: "Runs that ended, by how."}, []string{"type", "outcome"})
	m.shared = auto.NewCounterVec(prometheus.CounterOpts{Name: "runs_shared_total", Help: "Requests that were given the run of an equal request."}, []string{"type"})
	m.output = auto.NewCounterVec(prometheus.CounterOpts{Name: "runs_output_bytes_total", Help: "Bytes that runs wrote, kept or not."}, []string{"type"})
	m.duration = auto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "run_duration_seconds", Help: "Time from the start of a run to its end.", Buckets: []float64{0.1, 0.5, 1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600},
	}, []string{"type"})
	m.running = auto.NewGauge(prometheus.GaugeOpts{Name: "runs_running", Help: "Runs under way."})
	m.queued = auto.NewGauge(prometheus.GaugeOpts{Name: "runs_queued", Help: "Runs that wait for a place."})
	m.checks = auto.NewCounterVec(prometheus.CounterOpts{Name: "gate_checks_total", Help: "Checks of gates and rollback switches."}, []string{"kind", "result"})
	m.changes = auto.NewCounterVec(prometheus.CounterOpts{Name: "gate_changes_total", Help: "Changes of gates and rollback switches by callers."}, []string{"kind", "action"})
	m.gates = auto.NewGaugeVec(prometheus.GaugeOpts{Name: "gates", Help: "Gates and rollback switches that are known, by state."}, []string{"kind", "state"})
	m.waiting = auto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gate_waiting_since_seconds", Help: "Unix time since which a check waits at a gate, the longest; 0 if none does.",
	}, []string{"kind"})
	m.denials = auto.NewCounterVec(prometheus.CounterOpts{Name: "auth_failures_total", Help: "Requests that were refused because of who sent them, or from where."}, []string{"reason"})
	m.requests = auto.NewCounterVec(prometheus.CounterOpts{Name: "http_requests_total", Help: "Requests that were answered."}, []string{"route", "code"})
	m.inFlight = auto.NewGauge(prometheus.GaugeOpts{Name: "http_requests_in_flight", Help: "Requests that wait for an answer, and streams."})
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.InstrumentMetricHandler(reg, promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))

	// Create the series with value 0, so that the first event of each is seen as an increase.
	for _, kind := range kinds {
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

var kinds = []api.Kind{api.KindGate, api.KindRollback}

// updateGauges sets the gauges to the present state.
func (s *Server) updateGauges() {
	running, queued := s.Runs.Load()
	s.metrics.running.Set(float64(running))
	s.metrics.queued.Set(float64(queued))
	for _, kind := range kinds {
		numbers, since := map[string]float64{"open": 0, "closed": 0, "waiting": 0}, 0.0
		for _, g := range s.Gates.List(api.Filter{Kind: kind}) {
			state := "closed"
			switch waits := g.Waiting; {
			case g.Open:
				state = "open"
			case waits != nil && !waits.Stale:
				state = "waiting"
				if at := float64(waits.Since.UnixMilli()) / 1000; since == 0 || at < since {
					since = at
				}
			}
			numbers[state]++
		}
		for state, n := range numbers {
			s.metrics.gates.WithLabelValues(string(kind), state).Set(n)
		}
		s.metrics.waiting.WithLabelValues(string(kind)).Set(since)
	}
}

// serveMetrics answers with the metrics in the format of Prometheus. If callers must
// authenticate, any valid credential suffices; with OpenMetrics none is needed.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) error {
	if !s.OpenMetrics {
		if _, err := s.Guard.Identify(r, ""); err != nil {
			return err
		}
	}
	s.updateGauges()
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	s.metrics.handler.ServeHTTP(w, r)
	return nil
}

// ObserveRun counts and logs a run; it is for [run.Config] Observe.
func (s *Server) ObserveRun(r api.Run, shared bool) {
	m, log := &s.initOnce().metrics, s.Log.With("id", r.ID, "type", r.Type)
	if shared {
		m.shared.WithLabelValues(r.Type).Inc()
		log.Debug("run shared")
		return
	}
	log = log.With("namespace", logExcerpt(r.Namespace), "name", logExcerpt(r.Name))
	switch r.State {
	case api.Queued:
		log.Info("run queued")
		return
	case api.Running:
		m.started.WithLabelValues(r.Type).Inc()
		log.Info("run started", "phase", logExcerpt(r.Phase), "checksum", logExcerpt(r.Checksum), "actor", r.Actor)
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
		log.Warn("run ended", "reason", logExcerpt(r.Reason))
		return
	}
	log.Info("run ended")
}
