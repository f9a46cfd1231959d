package metric_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/metric"
)

// This example queries a metric from an endpoint that answers JSON.
func ExampleQuerier() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"service": "`+r.URL.Query().Get("service")+`", "errors": {"percent": 0.25}}`)
	}))
	defer server.Close()
	templates, err := metric.Decode("metrics.yaml", strings.NewReader(`
apiVersion: rollout.headgate.dev/v1beta1
kind: MetricTemplate
metadata: {name: errors}
spec:
  provider: {type: http, address: "`+server.URL+`/stats?service={{ service }}"}
  query: .errors.percent
`))
	if err != nil {
		log.Fatal(err)
	}
	canaries, _, err := rollout.Decode("canary.yaml", strings.NewReader(`
apiVersion: rollout.headgate.dev/v1beta1
kind: Canary
metadata: {name: checkout}
spec:
  analysis:
    interval: 10s
    threshold: 3
    stepWeight: 20
    maxWeight: 60
    metrics: [{name: errors, templateRef: {name: errors}, thresholdRange: {max: 1}}]
`))
	if err != nil {
		log.Fatal(err)
	}
	querier := &metric.Querier{Templates: templates}
	defer querier.Close()
	value, err := querier.Query(context.Background(), canaries[0], canaries[0].Spec.Analysis.Metrics[0])
	fmt.Println(value, err)
	// Output:
	// 0.25 <nil>
}
