package rollout_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// A service that runs on this machine: what a rollout needs of it.
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

// Events that are printed.
type printer struct{}

func (printer) Emit(_ context.Context, e rollout.Event) { fmt.Println(e.Phase, e.Message) }

// A rollout in three steps of a canary that nothing is held against.
func ExampleAnalysis_Run() {
	canary := &rollout.Canary{Metadata: rollout.Metadata{Name: "shop"}}
	canary.Spec.Analysis = rollout.Settings{StepWeight: 20, MaxWeight: 50}
	shop := &service{}
	analysis := &rollout.Analysis{Canary: canary, Traffic: shop, Target: shop, Sink: printer{}}

	status, err := analysis.Run(context.Background(), rollout.Status{Phase: rollout.Initialized}, rollout.Loop{
		Wait: func(context.Context, time.Duration) error { return nil }, // not in an example
		Save: func(rollout.Status) error { return nil },                 // to go on from
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
