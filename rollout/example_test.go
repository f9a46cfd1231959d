package rollout_test

import (
	"fmt"
	"strings"

	"github.com/headgate-io/headgate/rollout"
)

const manifest = `apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: checkout, namespace: shop}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: checkout}
  service: {port: 80, gateways: [public]} # the gateways are the cluster's
  analysis:
    interval: 30s
    threshold: 5
    stepWeight: 20
    maxWeight: 50
    webhooks:
      - name: load
        url: http://tester.shop/
        timeout: 20s
      - name: acceptance
        url: http://tester.shop/
`

func ExampleDecode() {
	canaries, warnings, err := rollout.Decode("checkout.yaml", strings.NewReader(manifest))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, w := range warnings {
		fmt.Println("warning:", w)
	}
	for _, c := range canaries {
		fmt.Printf("%s: %s", c, c.Strategy())
		for w := 0; c.NextWeight(w) != w; {
			w = c.NextWeight(w)
			fmt.Printf(" %d", w)
		}
		fmt.Println()
	}
	// Output:
	// warning: checkout.yaml:12: document 1: Canary/shop/checkout: spec.analysis.webhooks: the timeouts of the rollout webhooks add up to 30s ("load" 20s, "acceptance" 10s by default), which must be lower than the interval of 30s: raise interval or lower the timeouts
	// Canary/shop/checkout: weighted 20 40 50
}
