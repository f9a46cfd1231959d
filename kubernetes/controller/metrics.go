package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// Dashboards of the reference use the names and labels below.

var durations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name: "gotk_reconcile_duration_seconds", Help: "The duration in seconds of a reconciliation.", Buckets: prometheus.ExponentialBucketsRange(10e-3, 1800, 10),
}, []string{"kind", "name", "namespace"})

func init() { metrics.Registry.MustRegister(durations) }

var (
	conditionDesc = prometheus.NewDesc("gotk_reconcile_condition", "The status of the condition Ready of a source: 1 for the one that it has.", []string{"kind", "name", "namespace", "type", "status"}, nil)
	suspendDesc   = prometheus.NewDesc("gotk_suspend_status", "Whether a source is suspended.", []string{"kind", "name", "namespace"}, nil)
)

// gauges collects the state of the sources at each scrape.
type gauges struct{ server *serve.Server }

// Describe implements [prometheus.Collector].
func (g gauges) Describe(out chan<- *prometheus.Desc) { out <- conditionDesc; out <- suspendDesc }

// Collect implements [prometheus.Collector].
func (g gauges) Collect(out chan<- prometheus.Metric) {
	for _, v := range g.server.Views() {
		if v.Phase == serve.Removed {
			continue
		}
		about, suspended := source.Involved(v.Object), 0.0
		if v.Phase == serve.Suspended {
			suspended = 1
		}
		labels := []string{about.Kind, about.Name, about.Namespace}
		out <- prometheus.MustNewConstMetric(suspendDesc, prometheus.GaugeValue, suspended, labels...)
		if status := v.Object.Common().Condition(source.ReadyCondition).Status; status != "" {
			out <- prometheus.MustNewConstMetric(conditionDesc, prometheus.GaugeValue, 1, append(labels, source.ReadyCondition, status)...)
		}
	}
}

// register adds the metrics of a server to the registry of the manager until unregister is called.
// If a process has several servers, only the first is registered; the others get an error.
func register(server *serve.Server) (unregister func(), err error) {
	var registered []prometheus.Collector
	unregister = func() {
		for _, m := range registered {
			metrics.Registry.Unregister(m)
		}
	}
	for _, m := range []prometheus.Collector{server.Metrics(), gauges{server}} {
		if err := metrics.Registry.Register(m); err != nil {
			return unregister, err
		}
		registered = append(registered, m)
	}
	return unregister, nil
}
