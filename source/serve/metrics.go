package serve

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// metrics are the counters and histograms of a server, in its own registry. The [collector] reads the state of the
// server and its objects at each scrape.
type metrics struct {
	registry *prometheus.Registry
	handler  http.Handler
	inFlight prometheus.Gauge

	runs, lateness                                                                  *prometheus.HistogramVec
	outcomes, fetched, stored, served, events, deliveries, hooks, denials, requests *prometheus.CounterVec
}

func (m *metrics) build(s *Server) {
	m.registry = prometheus.NewRegistry()
	m.registry.MustRegister(collector{s})
	auto := promauto.With(m.registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: "headgate_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets ...float64) *prometheus.HistogramVec { // in seconds
		return auto.NewHistogramVec(prometheus.HistogramOpts{Name: "headgate_" + name, Help: help, Buckets: buckets}, []string{"kind"})
	}
	m.runs = histogram("reconcile_duration_seconds", "Time that reconciliations took.", 0.005, 0.025, 0.1, 0.25, 1, 2.5, 10, 30, 60, 300, 1800)
	m.lateness = histogram("reconcile_lateness_seconds", "Time from when a reconciliation was due to its start.", 0.01, 0.1, 0.5, 1, 3, 10, 30, 60, 300, 1800)
	m.outcomes = counter("reconcile_total", "Reconciliations that ended, by why they began and how they ended.", "kind", "trigger", "outcome")
	m.fetched = counter("fetched_bytes_total", "Bytes of the files that were fetched for new artifacts, unpacked: not what the network carried.", "kind")
	m.stored = counter("artifact_stored_bytes_total", "Bytes of the artifacts that were stored.", "kind")
	m.served = counter("artifact_served_bytes_total", "Bytes of artifacts that were sent to consumers.")
	m.events = counter("events_total", "Events of sources, by severity.", "severity")
	m.deliveries = counter("event_deliveries_total", "Events that were posted to receivers: delivered, failed at the first attempt, or lost.", "result")
	m.hooks = counter("hook_requests_total", "Calls of webhooks, by their provider and how they were answered.", "provider", "code")
	m.denials = counter("auth_failures_total", "Requests that were refused because of their sender, or where they came from.", "reason")
	m.requests = counter("http_requests_total", "Requests that were answered.", "route", "code")
	m.inFlight = auto.NewGauge(prometheus.GaugeOpts{Name: "headgate_http_requests_in_flight", Help: "Requests that wait for an answer, and streams."})
	m.zero()
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(prometheus.Gatherers{m.registry, process}, promhttp.HandlerOpts{DisableCompression: true, MaxRequestsInFlight: 4})
}

// Metrics returns the metrics of the server, to be registered in the registry of an embedding program. They are the
// metrics of /metrics without those of the process.
func (s *Server) Metrics() prometheus.Collector { return s.metrics.registry }

// zero creates the time series with known labels at 0, so that their first increment is visible as an increase.
func (m *metrics) zero() {
	m.served.WithLabelValues()
	for _, kind := range []string{"GitRepository", "OCIRepository", "Bucket", "PkgRepository", "PkgChart"} {
		m.runs.WithLabelValues(kind)
		m.lateness.WithLabelValues(kind)
		m.fetched.WithLabelValues(kind)
		m.stored.WithLabelValues(kind)
		for trigger := range triggerRank {
			for outcome := range levels {
				m.outcomes.WithLabelValues(kind, string(trigger), string(outcome))
			}
		}
	}
	for vec, values := range map[*prometheus.CounterVec]string{
		m.events: "trace info error", m.deliveries: "delivered failed lost", m.denials: "missing invalid expired namespace kind may origin host unknown",
	} {
		for value := range strings.FieldsSeq(values) {
			vec.WithLabelValues(value)
		}
	}
}

// scrape answers with the metrics in the Prometheus text format. They cover all objects: unless OpenMetrics is set,
// the caller must be allowed to read all objects.
func (c *call) scrape() error {
	if !c.config.OpenMetrics {
		if err := c.authorize(mayRead, source.Reference{}); err != nil {
			return err
		}
	}
	c.w.Header().Set("X-Content-Type-Options", "nosniff")
	c.w.Header().Set("Cache-Control", "no-store")
	c.r.Header.Del("Accept") // the text format
	c.metrics.handler.ServeHTTP(c.w, c.r)
	return nil
}

// A collector collects metrics of the current state of the server.
type collector struct{ *Server }

// Describe implements [prometheus.Collector]. It describes no metrics, because their labels depend on the objects.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (s collector) Collect(out chan<- prometheus.Metric) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("headgate_"+name, help, labels, nil)
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counter := func(d *prometheus.Desc, value int64, label string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), label)
	}
	ready := desc("source_ready", "Whether a source is ready: 1, 0, or -1 when that is not known.", "kind", "namespace", "name")
	stale := desc("source_staleness_ratio", "Time since the origin of a source last answered, over its interval; since the server began when it has not yet. Above 2 it is overdue.", "kind", "namespace", "name")
	checked := desc("source_checked_timestamp_seconds", "Unix time at which the origin of a source last answered, 0 when it has not since the server began.", "kind", "namespace", "name")
	count := map[Phase]int{Idle: 0, Queued: 0, Running: 0, Blocked: 0, Stalled: 0, Suspended: 0, Removed: 0}
	now := s.config.Now()
	for _, v := range s.Views() {
		if count[v.Phase]++; v.Phase == Removed {
			continue
		}
		ref := source.ReferenceTo(v.Object)
		labels := []string{ref.Kind, ref.Namespace, ref.Name}
		gauge(ready, map[string]float64{"True": 1, "Unknown": -1}[readyOf(v).Status], labels...)
		if v.Object.Interval() > 0 && v.Phase != Suspended { // its origin is checked regularly
			since := v.Checked
			if since.IsZero() {
				since = s.started
			}
			gauge(stale, float64(now.Sub(since))/float64(v.Object.Interval()), labels...)
			gauge(checked, unix(v.Checked), labels...)
		}
	}
	phases := desc("sources", "Sources, by what they are doing.", "phase")
	for phase, n := range count {
		gauge(phases, float64(n), string(phase))
	}
	stats := s.Stats()
	gauge(desc("defects", "Documents that cannot be read."), float64(len(s.Defects())))
	gauge(desc("queue_depth", "Sources that are due and wait for their turn."), float64(count[Queued]+count[Blocked]))
	gauge(desc("queue_oldest_seconds", "Time that the first of those that are due has waited."), stats.Oldest.Seconds())
	gauge(desc("running", "Reconciliations under way."), float64(count[Running]))
	gauge(desc("fetching", "Contents that are being fetched and packed."), float64(stats.Fetching))
	gauge(desc("start_time_seconds", "Unix time at which the server began."), unix(s.started))
	if size, free, err := s.config.Store.Volume(); err == nil {
		gauge(desc("store_size_bytes", "Bytes that the volume of the store holds in all."), float64(size))
		gauge(desc("store_free_bytes", "Bytes that are free on the volume of the store."), float64(free))
	}
	answers := desc("upstream_answers_total", "Answers of upstreams that objects can share, by whether an object asked itself or was given that to another.", "by")
	counter(answers, stats.Asked, "asked")
	counter(answers, stats.Shared, "shared")
	if s.config.Env.Cache != nil {
		cache := desc("cache_requests_total", "Lookups in the cache of content, by whether it was there.", "result")
		hits, misses := s.config.Env.Cache.Counts()
		counter(cache, hits, "hit")
		counter(cache, misses, "miss")
	}
}

// unix returns t as Unix time in seconds, 0 for the zero time.
func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// observeRequest counts a request. The caller calls answered when the answer was written.
func (s *Server) observeRequest(r *http.Request) (answered func(*httpserve.Writer)) {
	s.metrics.inFlight.Inc()
	route := routeOf(r.URL.Path)
	return func(a *httpserve.Writer) {
		s.metrics.inFlight.Dec()
		status := cmp.Or(a.Status, http.StatusOK) // net/http answers 200 if the handler writes nothing
		s.metrics.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
		if route == "artifact" && status < http.StatusMultipleChoices {
			s.metrics.served.WithLabelValues().Add(float64(a.Bytes))
		}
	}
}

// routeOf returns the value of the label route for a path.
func routeOf(path string) string {
	first, rest, _ := strings.Cut(strings.TrimLeft(path, "/"), "/")
	switch first {
	case "api", "ui", "hook", "metrics", "debug":
		return first
	case "healthz", "readyz":
		return "health"
	}
	if _, known := source.ParseKind(first); known && rest != "" {
		return "artifact"
	}
	return "other"
}

// levels are the log levels of runs by outcome.
var levels = map[source.Outcome]slog.Level{
	source.Stored:    slog.LevelInfo,
	source.Unchanged: slog.LevelDebug,
	source.Waiting:   slog.LevelWarn,
	source.Failed:    slog.LevelWarn,
	source.Stalled:   slog.LevelError,
}

// observeRun counts and logs a run; last is the outcome of the run before. It returns the run for the list of
// notable runs, or nil if the run and the one before both found nothing new.
func (s *Server) observeRun(last source.Outcome, r Run) (shown *api.Run) {
	m, kind, outcome := &s.metrics, r.Object.Kind, r.Result.Outcome
	m.runs.WithLabelValues(kind).Observe(r.Took.Seconds())
	m.lateness.WithLabelValues(kind).Observe(max(0, r.Started.Sub(r.Due).Seconds()))
	m.outcomes.WithLabelValues(kind, string(r.Trigger), string(outcome)).Inc()
	if outcome == source.Stored {
		m.stored.WithLabelValues(kind).Add(float64(r.Artifact.Size))
		m.fetched.WithLabelValues(kind).Add(float64(cmp.Or(r.Result.Report.Bytes, r.Artifact.Size))) // Size for a file stored unchanged
	}
	run, object := runOf(r), r.Object
	object.Kind = r.Kind
	level, message := levels[outcome], "run"
	if (outcome == source.Stored || outcome == source.Unchanged) && (last == source.Failed || last == source.Stalled || last == source.Waiting) {
		level, message = slog.LevelInfo, "recovered" // logged even if nothing changed
	}
	attrs := []slog.Attr{slog.String("object", object.String()), slog.String("trigger", run.Trigger), slog.String("outcome", run.Outcome)}
	if outcome != last || outcome != source.Unchanged {
		shown = &run
		attrs = append(attrs, slog.String("revision", clean(run.Revision)))
	}
	attrs = append(attrs, slog.Float64("took", r.Took.Round(time.Millisecond).Seconds()), slog.String("why", run.Why), slog.String("error", run.Error))
	attrs = slices.DeleteFunc(attrs, func(a slog.Attr) bool { return a.Value.Kind() == slog.KindString && a.Value.String() == "" })
	s.log.LogAttrs(context.Background(), level, message, attrs...)
	return shown
}

// observeEvent counts and logs an event. Its level is debug if the log line of a run contains the same information.
func (s *Server) observeEvent(e source.Event) {
	s.metrics.events.WithLabelValues(e.Severity).Inc()
	level := slog.LevelDebug
	switch e.Reason {
	case removalFailed, readFailed, verificationFailed:
		level = slog.LevelWarn
	}
	o := e.InvolvedObject
	s.log.Log(context.Background(), level, "event", "object", o.Kind+"/"+o.Namespace+"/"+o.Name, "severity", e.Severity, "reason", e.Reason, "message", clean(e.Message))
}
