package tester

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// gateStates counts gates by state when somebody asks. Gates are not named: a
// caller chooses their names.
type gateStates struct{ server *Server }

var (
	gatesDesc = prometheus.NewDesc(metricPrefix+"gates", "Gates and rollback switches that are known, by state.", []string{"kind", "state"}, nil)
	waitsDesc = prometheus.NewDesc(metricPrefix+"gate_waiting_since_seconds", "Unix time since which somebody waits at a gate, of the one that waits longest; 0 when nobody does.", []string{"kind"}, nil)
)

func (g gateStates) Describe(out chan<- *prometheus.Desc) {
	out <- gatesDesc
	out <- waitsDesc
}

func (g gateStates) Collect(out chan<- prometheus.Metric) {
	for _, kind := range []api.Kind{api.KindGate, api.KindRollback} {
		states := map[string]int{"open": 0, "closed": 0, "waiting": 0}
		var since time.Time
		for _, one := range g.server.Gates.List(api.Filter{Kind: kind}) {
			switch {
			case one.Open:
				states["open"]++
			case one.Waiting == nil || one.Waiting.Stale:
				states["closed"]++
			default:
				states["waiting"]++
				if since.IsZero() || one.Waiting.Since.Before(since) {
					since = one.Waiting.Since
				}
			}
		}
		for state, n := range states {
			out <- prometheus.MustNewConstMetric(gatesDesc, prometheus.GaugeValue, float64(n), string(kind), state)
		}
		unix := 0.0
		if !since.IsZero() {
			unix = float64(since.UnixMilli()) / 1000
		}
		out <- prometheus.MustNewConstMetric(waitsDesc, prometheus.GaugeValue, unix, string(kind))
	}
}
