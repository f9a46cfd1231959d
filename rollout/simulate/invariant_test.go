package simulate

import (
	"encoding/json"
	"slices"

	"github.com/headgate-io/headgate/rollout"
)

var allPhases = []rollout.Phase{"", rollout.Initialized, rollout.Waiting, rollout.Progressing, rollout.Promoting, rollout.Finalising, rollout.Succeeded, rollout.Failed}

// payloadPhases are the phases that a webhook may be told.
var payloadPhases = map[rollout.HookType][]rollout.Phase{
	rollout.HookConfirmRollout:         allPhases[1:], // the one that the new revision finds
	rollout.HookPreRollout:             {rollout.Progressing},
	rollout.HookRollout:                {rollout.Progressing, rollout.Waiting},
	rollout.HookConfirmTrafficIncrease: {rollout.Progressing, rollout.Waiting},
	rollout.HookConfirmPromotion:       {rollout.Progressing},
	rollout.HookPostRollout:            {rollout.Succeeded, rollout.Failed},
	rollout.HookRollback:               {rollout.Progressing, rollout.Waiting},
}

// encoded is a status as it is stored.
func encoded(s rollout.Status) string {
	data, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// An observation is what is known after a tick.
type observation struct {
	*witness
	*Tick
	spec     rollout.CanarySpec
	cut      bool // the context ended
	troubled bool // a rollback may be half done
	exact    bool // no step of the run crashed
}

// look checks what holds after each tick.
func (r *chance) look(t *Tick) {
	w := r.witness
	cut := w.cancel != nil && w.calls >= w.crash
	o := observation{w, t, r.canary.Spec, cut, cut || r.canary.Spec.Suspend || r.now["traffic"] != "" || r.now["target scale-down"] != "", r.exact}
	if t.After.Phase == rollout.Promoting && t.Before.Phase != rollout.Promoting {
		w.decides()
	}
	for _, i := range invariants {
		if i.broken(o) {
			w.bad("%s", i.what)
		}
	}
	if t.After.Phase == rollout.Failed {
		w.fired = false
	}
}

func analysed(p rollout.Phase) bool { return p == rollout.Progressing || p == rollout.Waiting }

func over(p rollout.Phase) bool { return p == rollout.Succeeded || p == rollout.Failed }

// promoting reports whether the revision is copied to the primary.
func promoting(p rollout.Phase) bool { return p == rollout.Promoting || p == rollout.Finalising }

// goesOn reports whether the tick was one of the analysis of a revision, and not its last.
func (o observation) goesOn() bool {
	return analysed(o.Before.Phase) && analysed(o.After.Phase) && o.Before.AppliedSpec == o.After.AppliedSpec && o.seen == o.After.AppliedSpec && !o.After.RollingBack
}

// invariants are what must not be after a tick.
var invariants = []struct {
	what   string
	broken func(o observation) bool
}{
	{"the status has the number of another event", func(o observation) bool { return o.After.Sequence != o.sequence }},
	{"the phase is lost", func(o observation) bool { return o.After.Phase == "" && o.Before.Phase != "" }},
	{"a failed check is counted, and none failed", func(o observation) bool {
		counted := o.After.FailedChecks - o.Before.FailedChecks
		return counted > 1 || counted == 1 && !o.denied[rollout.HookPreRollout] && !o.denied[rollout.HookRollout] && o.queried == 0 && o.says(Traffic) == ""
	}},
	{"failed checks fall", func(o observation) bool { return o.goesOn() && o.After.FailedChecks < o.Before.FailedChecks }},
	{"iterations fall", func(o observation) bool { return o.goesOn() && o.After.Iterations < o.Before.Iterations }},
	{"the weight falls", func(o observation) bool { return o.goesOn() && o.Tick.Routes.Canary < o.was.routes.Canary }},
	{"as many failed checks as the threshold, and the analysis goes on", func(o observation) bool {
		return analysed(o.After.Phase) && o.After.FailedChecks >= max(1, o.spec.Analysis.Threshold) && !o.After.RollingBack && !o.spec.SkipAnalysis
	}},
	{"a failed canary has traffic", func(o observation) bool {
		return o.After.Phase == rollout.Failed && o.Tick.Routes.Canary > 0 && (o.Before.RollingBack || !promoting(o.Before.Phase)) && o.Before.Phase != rollout.Failed
	}},
	{"a rollout ended, and the canary runs or has traffic", func(o observation) bool {
		ended := over(o.After.Phase) && !over(o.Before.Phase) && (o.Before.RollingBack || o.After.Phase == rollout.Succeeded)
		return ended && (o.scaled || o.Tick.Routes != rollout.Routes{Primary: 100})
	}},
	{"the primary does not have the revision that was promoted last", func(o observation) bool {
		return o.After.PromotedSpec != "" && o.exact && o.primary != o.After.PromotedSpec
	}},
	{"a rollout failed or is to be rolled back, and nobody is alerted", func(o observation) bool {
		alerted := slices.ContainsFunc(o.Events, func(e rollout.Event) bool { return e.Alert == rollout.Warn || e.Alert == rollout.Error })
		ends := o.After.RollingBack || o.After.Phase == rollout.Failed && o.Before.Phase != rollout.Failed
		return ends && !o.Before.RollingBack && !alerted
	}},
	{"a closed gate is told again", func(o observation) bool {
		same := o.Before.Gate != nil && o.After.Gate != nil && o.Before.Gate.Name == o.After.Gate.Name && o.Before.Gate.Since.Equal(o.After.Gate.Since)
		return same && slices.ContainsFunc(o.Events, func(e rollout.Event) bool {
			return e.Code == rollout.EventRolloutWaits || e.Code == rollout.EventTrafficWaits || e.Code == rollout.EventPromotionWaits
		})
	}},
	{"a canary that does not run has traffic", func(o observation) bool { return (o.Tick.Routes.Canary > 0 || o.Tick.Routes.Mirrored) && !o.scaled }},
	{"post-rollout webhooks are forgotten", func(o observation) bool {
		began := analysed(o.Before.Phase) || promoting(o.Before.Phase)
		return began && over(o.After.Phase) && o.After.PostRollout != (len(o.hooks(rollout.HookPostRollout)) > 0)
	}},
	{"not all post-rollout webhooks were called", func(o observation) bool {
		return o.Before.PostRollout && !o.After.PostRollout && o.asked[rollout.HookPostRollout] != len(o.hooks(rollout.HookPostRollout))
	}},
	{"confirm-traffic-increase is asked, and the checks of a canary with traffic have not passed", func(o observation) bool {
		checked := o.queried >= len(o.spec.Analysis.Metrics) && o.all(rollout.HookRollout, o.passed)
		return o.asked[rollout.HookConfirmTrafficIncrease] > 0 && o.was.routes != rollout.Routes{Primary: 100} && !checked
	}},
	{"a canary is checked that gets neither requests nor copies", func(o observation) bool {
		return o.weighted() && o.was.routes == rollout.Routes{Primary: 100} && (o.queried > 0 || o.asked[rollout.HookRollout] > 0)
	}},
	{"confirm-traffic-increase is closed, and the weight rises", func(o observation) bool {
		return o.denied[rollout.HookConfirmTrafficIncrease] && o.Tick.Routes.Canary > o.was.routes.Canary
	}},
	{"Waiting is not the phase of a gate before the rollout or before more traffic", func(o observation) bool {
		return (o.After.Phase == rollout.Waiting) != (waitsOn(o.After, rollout.HookConfirmRollout) || waitsOn(o.After, rollout.HookConfirmTrafficIncrease))
	}},
	{"a gate outside the analysis", func(o observation) bool { return o.After.Gate != nil && !analysed(o.After.Phase) }},
	{"rollback webhooks were not asked", func(o observation) bool {
		quiet := o.cut || o.spec.Suspend || o.spec.SkipAnalysis || o.Before.RollingBack
		return analysed(o.Before.Phase) && !quiet && o.asked[rollout.HookRollback] == 0 && len(o.hooks(rollout.HookRollback)) > 0
	}},
	{"a rollback was decided, and is not done", func(o observation) bool {
		return o.Before.RollingBack && !o.troubled && o.After.Phase != rollout.Failed
	}},
	{"a rollback webhook fired, and that is forgotten", func(o observation) bool {
		return o.fired && analysed(o.After.Phase) && !o.After.RollingBack
	}},
	{"the primary has the revision, and it is rolled back", func(o observation) bool {
		return o.After.RollingBack && promoting(o.After.Phase) && o.After.PromotedSpec == o.After.AppliedSpec
	}},
	{"suspended, and something is done", func(o observation) bool {
		return o.spec.Suspend && (o.After.Phase != o.Before.Phase || len(o.asked) > 0 || o.After.FailedChecks != o.Before.FailedChecks || o.Tick.Routes != o.was.routes)
	}},
}

func waitsOn(s rollout.Status, of rollout.HookType) bool { return s.Gate != nil && s.Gate.Type == of }
