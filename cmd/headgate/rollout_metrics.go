package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/metric"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// metricFlags say who answers metrics.
type metricFlags struct {
	server   string
	provider string
	commands bool
}

func (f *metricFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.server, "metrics-server", "", "`URL` of the Prometheus for canaries without spec.metricsServer")
	fl.StringVar(&f.provider, "metrics-provider", "", "`NAME` of what the traffic is measured by, such as istio, for canaries without spec.provider")
	fl.BoolVar(&f.commands, "allow-commands", false, "run the commands of MetricTemplate objects of type exec")
}

// querier returns what answers the metrics of canaries with the templates of b.
func (f *metricFlags) querier(b *book, secrets rollout.Secrets) (*metric.Querier, error) {
	templates, err := collect(b, metric.Decode)
	if err != nil {
		return nil, err
	}
	q := &metric.Querier{Templates: templates, Server: f.server, Provider: f.provider, Secrets: secrets, Proxy: http.ProxyFromEnvironment}
	if f.commands {
		q.Commands = &metric.Commands{Env: commandEnv()}
	}
	return q, nil
}

// measured returns what answers the metrics of a canary: what the proxy
// measures when there is one and no server is named.
func (f *metricFlags) measured(c *rollout.Canary, q *metric.Querier, proxy *traffic.Proxy) rollout.Metrics {
	if proxy == nil || f.server != "" || c.Spec.MetricsServer != "" {
		return q
	}
	return proxy.Metrics(q)
}

// collect reads the documents of one kind from all files.
func collect[T any](b *book, decode func(string, io.Reader) ([]T, error)) ([]T, error) {
	var all []T
	var errs []error
	for _, t := range b.texts {
		some, err := decode(t.name, bytes.NewReader(t.data))
		all = append(all, some...)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}
