package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-io/headgate/source/controller"
)

// A collector reads what the controller is now, when somebody asks.
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
var phases = []controller.Phase{
	controller.Idle, controller.Queued, controller.Running, controller.Blocked, controller.Stalled, controller.Suspended, controller.Removed,
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
	gauge(startDesc, unix(c.server.started))
	count := map[controller.Phase]int{}
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
