package rollout_test

import (
	"slices"
	"testing"

	"github.com/headgate-io/headgate/rollout"
)

// Maximum weight is a cap: a step of 20 to at most 50 gives 20, 40, 50 (C-20).
func TestRunPromotes(t *testing.T) {
	w := newWorld()
	loop := clock()
	var saved []rollout.Status
	loop.Save = func(s rollout.Status) error { saved = append(saved, s); return nil }
	c := canary(rollout.HookConfirmRollout, rollout.HookPreRollout, rollout.HookRollout, rollout.HookConfirmTrafficIncrease,
		rollout.HookConfirmPromotion, rollout.HookPostRollout, rollout.HookRollback, rollout.HookEvent)
	s, err := w.analysis(c).Run(t.Context(), rollout.Status{Phase: rollout.Initialized}, loop)
	if err != nil {
		t.Fatal(err)
	}
	if s.Phase != rollout.Succeeded || s.PromotedSpec != "v2" || !s.Ended() {
		t.Errorf("ended as %+v", s)
	}
	if w.routes != (rollout.Routes{Primary: 100}) {
		t.Errorf("routes are %+v", w.routes)
	}
	var weights []int
	for i, s := range saved {
		if i == 0 || saved[i-1].CanaryWeight != s.CanaryWeight {
			weights = append(weights, s.CanaryWeight)
		}
	}
	if want := []int{0, 20, 40, 50, 0}; !slices.Equal(weights, want) {
		t.Errorf("weights %v, want %v", weights, want)
	}
	want := `1 Initialized cr-pass: app.test: the rollout is approved by confirm-rollout
2 Progressing revision-new: app.test: a new revision is rolled out
3 Progressing analysis-start: app.test: the analysis starts
4 Progressing pr-pass: app.test: pre-rollout webhook pre-rollout passed
5 Progressing ti-pass: app.test: more traffic is approved by confirm-traffic-increase
6 Progressing weight-advanced: app.test: traffic goes to the canary, canary weight 20
7 Progressing ti-pass: app.test: more traffic is approved by confirm-traffic-increase
8 Progressing weight-advanced: app.test: traffic goes to the canary, canary weight 40
9 Progressing ti-pass: app.test: more traffic is approved by confirm-traffic-increase
10 Progressing weight-advanced: app.test: traffic goes to the canary, canary weight 50
11 Progressing cp-pass: app.test: the promotion is approved by confirm-promotion
12 Promoting promote-copy: app.test: the revision is copied to the primary
13 Finalising route-primary: app.test: all traffic goes to the primary
14 Succeeded promoted: app.test: promoted, the canary is scaled down
15 Succeeded po-pass: app.test: post-rollout webhook post-rollout passed
`
	if got := told(w.events); got != want {
		t.Errorf("told\n%swant\n%s", got, want)
	}
}
