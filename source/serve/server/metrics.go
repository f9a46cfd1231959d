package server

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/access"
)

const metricPrefix = "headgate_"

// metrics are what a server counts, in a registry of its own. What a controller
// and its objects are is looked up when it is asked for.
type metrics struct {
	handler http.Handler

	runs     *prometheus.HistogramVec
	outcomes *prometheus.CounterVec
	late     *prometheus.HistogramVec
	fetched  *prometheus.CounterVec
	stored   *prometheus.CounterVec
	served   *prometheus.CounterVec
	events   *prometheus.CounterVec
	told     *prometheus.CounterVec
	hooks    *prometheus.CounterVec
	denials  *prometheus.CounterVec
	requests *prometheus.CounterVec
	inFlight prometheus.Gauge
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

var triggers = []serve.Trigger{
	serve.Start, serve.Tick, serve.Retry, serve.Spec, serve.Request,
	serve.Hook, serve.Input, serve.Secret, serve.Repair,
}

// refusedFor are why callers are refused.
var refusedFor = []string{"missing", "invalid", "expired", "namespace", "kind", "may", "origin", "host", "unknown"}

// deliveries are what becomes of events.
var deliveries = []string{"delivered", "failed", "lost"}

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
	m.served = counter("artifact_served_bytes_total", "Bytes of artifacts that were sent to consumers.")
	m.served.WithLabelValues()
	m.events = counter("events_total", "Events of sources, by severity.", "severity")
	m.told = counter("event_deliveries_total", "Events that were posted to receivers: delivered, failed at the first attempt, or lost.", "result")
	m.hooks = counter("hook_requests_total", "Calls of webhooks, by their provider and how they were answered.", "provider", "code")
	m.denials = counter("auth_failures_total", "Requests that were refused because of their sender, or where they came from.", "reason")
	m.requests = counter("http_requests_total", "Requests that were answered.", "route", "code")
	m.inFlight = prometheus.NewGauge(prometheus.GaugeOpts{Name: metricPrefix + "http_requests_in_flight", Help: "Requests that wait for an answer, and streams."})
	reg.MustRegister(m.inFlight)
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
// about all objects: unless OpenMetrics, the caller has to be one that may read all.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) error {
	if !s.OpenMetrics {
		if err := s.allowed(r, func(g access.Grant) error { return g.Read(source.Reference{}) }); err != nil {
			return err
		}
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	r = r.Clone(r.Context())
	r.Header.Del("Accept") // the text format
	s.metrics.handler.ServeHTTP(w, r)
	if a, ok := w.(*httpserve.Writer); ok && a.Status == http.StatusOK && r.Method != http.MethodHead {
		s.writeObjects(w) // its error is that of the connection
	}
	return nil
}

// request counts a request, and its answer when that is called.
func (m *metrics) request(r *http.Request) (answered func(*httpserve.Writer)) {
	m.inFlight.Inc()
	route := routeOf(r.URL.Path)
	return func(a *httpserve.Writer) {
		m.inFlight.Dec()
		status := a.Status
		if status == 0 {
			status = http.StatusOK // what net/http answers for a handler that says nothing
		}
		m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
		if route == "artifact" && status < http.StatusMultipleChoices {
			m.served.WithLabelValues().Add(float64(a.Bytes))
		}
	}
}

// routeOf returns the class of a path by which requests are counted.
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

// A collector reads what the controller is now, when it is asked for.
type collector struct{ server *Server }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(metricPrefix+name, help, labels, nil)
}

var (
	phasesDesc   = desc("sources", "Sources, by what they are doing.", "phase")
	defectsDesc  = desc("defects", "Documents that cannot be read.")
	queueDesc    = desc("queue_depth", "Sources that are due and wait for their turn.")
	oldestDesc   = desc("queue_oldest_seconds", "Time that the first of those that are due has waited.")
	runningDesc  = desc("running", "Reconciliations under way.")
	fetchingDesc = desc("fetching", "Contents that are being fetched and packed.")
	answersDesc  = desc("upstream_answers_total", "Answers of upstreams that objects can share, by whether an object asked itself or was given that to another.", "by")
	cacheDesc    = desc("cache_requests_total", "Lookups in the cache of content, by whether it was there.", "result")
	startDesc    = desc("start_time_seconds", "Unix time at which the server began.")
)

// phases are those that are counted from the beginning.
var phases = []serve.Phase{
	serve.Idle, serve.Queued, serve.Running, serve.Blocked, serve.Stalled, serve.Suspended, serve.Removed,
}

func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{phasesDesc, defectsDesc, queueDesc, oldestDesc, runningDesc, fetchingDesc, answersDesc, cacheDesc, startDesc} {
		out <- d
	}
}

func (c collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	stats := c.server.Controller.Stats()
	gauge(defectsDesc, float64(len(c.server.Controller.Defects())))
	gauge(queueDesc, float64(stats.Queued))
	gauge(oldestDesc, stats.Oldest.Seconds())
	gauge(runningDesc, float64(stats.Running))
	gauge(fetchingDesc, float64(stats.Fetching))
	counter := func(d *prometheus.Desc, value int64, label string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), label)
	}
	counter(answersDesc, stats.Asked, "asked")
	counter(answersDesc, stats.Shared, "shared")
	if cache := c.server.Controller.Env.Cache; cache != nil {
		hits, misses := cache.Counts()
		counter(cacheDesc, hits, "hit")
		counter(cacheDesc, misses, "miss")
	}
	gauge(startDesc, unix(c.server.began))
	count := map[serve.Phase]int{}
	for _, v := range c.server.Controller.Views() {
		count[v.Phase]++
	}
	for _, phase := range phases {
		gauge(phasesDesc, float64(count[phase]), string(phase))
	}
}

// unix returns seconds since 1970, 0 for the zero time.
func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// A gauge of objects is a metric with a series for each of them. With many
// objects these are nearly all there is: they are written as they are looked
// up, which takes a tenth of what a registry takes for them.
type objectGauge struct {
	name, help string
	value      func(v serve.View, now, began time.Time) (value float64, has bool)
}

var objectGauges = []objectGauge{
	{"source_ready", "Whether a source is ready: 1, 0, or -1 when that is not known.", func(v serve.View, _, _ time.Time) (float64, bool) {
		return readyNumbers[readyOf(v).Status], true
	}},
	{"source_staleness_ratio", "Time since the origin of a source last answered, over its interval; since the server began when it has not yet. Above 2 it is overdue.", func(v serve.View, now, began time.Time) (float64, bool) {
		since := v.Checked
		if since.Before(began) {
			since = began
		}
		return float64(now.Sub(since)) / float64(v.Object.Interval()), checked(v)
	}},
	{"source_checked_timestamp_seconds", "Unix time at which the origin of a source last answered, 0 when it has not since the server began.", func(v serve.View, _, _ time.Time) (float64, bool) {
		return unix(v.Checked), checked(v)
	}},
}

// readyNumbers is readiness as a number.
var readyNumbers = map[string]float64{"True": 1, "False": 0, "Unknown": -1}

// checked reports whether the origin of an object is asked again and again.
func checked(v serve.View) bool {
	return v.Object.Interval() > 0 && v.Phase != serve.Suspended
}

var labelEscape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// writeObjects writes the gauges of all objects in the text format of Prometheus.
func (s *Server) writeObjects(w io.Writer) error {
	const piece = 64 << 10
	views, now := s.Controller.Views(), time.Now()
	labels := make([]string, len(views))
	for i, v := range views {
		ref := source.ReferenceTo(v.Object)
		labels[i] = `{kind="` + ref.Kind + `",namespace="` + labelEscape.Replace(ref.Namespace) + `",name="` + labelEscape.Replace(ref.Name) + `"} `
	}
	text := make([]byte, 0, piece+(1<<10))
	for _, g := range objectGauges {
		text = append(text, "# HELP "+metricPrefix+g.name+" "+g.help+"\n# TYPE "+metricPrefix+g.name+" gauge\n"...)
		for i, v := range views {
			value, has := g.value(v, now, s.began)
			if !has || v.Phase == serve.Removed {
				continue
			}
			text = append(append(append(text, metricPrefix...), g.name...), labels[i]...)
			text = append(strconv.AppendFloat(text, value, 'g', -1, 64), '\n')
			if len(text) >= piece {
				if _, err := w.Write(text); err != nil {
					return err
				}
				text = text[:0]
			}
		}
	}
	_, err := w.Write(text)
	return err
}
