package rollout_test

import (
	"context"
	"fmt"
	"strings"
	"time"

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

// A service implements the traffic and the target of a rollout.
type service struct{ share int }

func (s *service) Routes(context.Context) (rollout.Routes, error) {
	return rollout.Routes{Primary: 100 - s.share, Canary: s.share}, nil
}
func (s *service) SetRoutes(_ context.Context, r rollout.Routes) error {
	s.share = r.Canary
	return nil
}
func (s *service) Revision(context.Context) (string, error) { return "v2", nil }
func (s *service) PrimaryReady(context.Context) error       { return nil }
func (s *service) CanaryReady(context.Context) error        { return nil }
func (s *service) ScaleUp(context.Context) error            { return nil }
func (s *service) ScaleDown(context.Context) error          { return nil }
func (s *service) Promote(context.Context) error            { return nil }

// A printer is a sink that prints events.
type printer struct{}

func (printer) Emit(_ context.Context, e rollout.Event) { fmt.Println(e.Phase, e.Message) }

// This rollout promotes a canary in three steps.
func ExampleAnalysis_Run() {
	canary := &rollout.Canary{Metadata: rollout.Metadata{Name: "shop"}}
	canary.Spec.Analysis = rollout.Settings{StepWeight: 20, MaxWeight: 50}
	shop := &service{}
	analysis := &rollout.Analysis{Canary: canary, Traffic: shop, Target: shop, Sink: printer{}}

	status, err := analysis.Run(context.Background(), rollout.Status{Phase: rollout.Initialized}, rollout.Loop{
		Wait: func(context.Context, time.Duration) error { return nil }, // an example does not wait
		Save: func(rollout.Status) error { return nil },                 // a real program stores the status
	})
	fmt.Println(status.Phase, err)
	// Output:
	// Progressing shop.default: a new revision is rolled out
	// Progressing shop.default: the analysis starts
	// Progressing shop.default: traffic goes to the canary, canary weight 20
	// Progressing shop.default: traffic goes to the canary, canary weight 40
	// Progressing shop.default: traffic goes to the canary, canary weight 50
	// Promoting shop.default: the revision is copied to the primary
	// Finalising shop.default: all traffic goes to the primary
	// Succeeded shop.default: promoted, the canary is scaled down
	// Succeeded <nil>
}
