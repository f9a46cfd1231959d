package rollout_test

import "testing"

// specified are the rows of the specification's tables on states, errors and
// hook types that speak of an analysis, and the decisions that follow them.
var specified = map[string][]string{
	"states: rollback hook is successful in Progressing or Waiting": {
		"Progressing: rb fires", "Progressing: at cp, rb fires", "Waiting: at cr, rb fires", "Waiting: at ti, rb fires",
	},
	"states: confirm hook is not successful": {
		"Initialized: new revision, cr closed", "Waiting: at cr, closed", "Progressing: checks pass, ti closed", "Waiting: at ti, closed",
	},
	"states: confirm hook is successful in Waiting": {"Waiting: at cr, passes", "Waiting: at ti, passes"},
	"states: pre-rollout hook fails until the threshold": {
		"Progressing: weight 0, pr fails", "Progressing: weight 0, pr fails, threshold",
	},
	"states: confirm-promotion hook is not yet successful": {
		"Progressing: at the maximum, cp closed", "Progressing: at cp, closed", "Progressing: at cp, ro fails",
	},
	"errors: hook returns non-2xx or times out": {
		"Progressing: ro fails", "Progressing: ro does not answer", "Progressing: weight 0, pr fails",
	},
	"errors: confirm-traffic-increase or confirm-promotion returns other than 200": {
		"Progressing: checks pass, ti answers 202", "Waiting: at ti, answers 202", "Progressing: at the maximum, cp answers 201",
	},
	"errors: post-rollout hook fails":                  {"Failed: post-rollout, the first fails"},
	"errors: pre-rollout failures reach the threshold": {"Progressing: weight 0, pr fails, threshold"},
	"errors: no traffic reaches the workload":          {"Progressing: metric without values", "Progressing: metric is NaN"},
	"hook types: confirm-rollout":                      {"Initialized: new revision, cr passes", "Succeeded: new revision, cr passes"},
	"hook types: pre-rollout":                          {"Progressing: weight 0, pr passes", "Progressing: weight 0, pr fails, threshold"},
	"hook types: rollout":                              {"Progressing: checks pass", "Progressing: ro fails, threshold"},
	"hook types: confirm-traffic-increase":             {"Progressing: checks pass", "Progressing: checks pass, ti closed"},
	"hook types: confirm-promotion":                    {"Progressing: at the maximum, cp passes", "Progressing: at cp, closed", "Progressing: at cp, passes"},
	"hook types: post-rollout":                         {"Succeeded: post-rollout to be done", "Failed: post-rollout to be done"},
	"hook types: rollback":                             {"Progressing: rb fires", "Waiting: at cr, rb fires"},
	"endpoints: 200 to 202 advance":                    {"Progressing: checks pass", "Initialized: new revision, cr answers 202"},
	"events: muteAlert": {
		"Initialized: new revision, cr closed, muteAlert", "Progressing: checks pass, ti closed, muteAlert", "Progressing: at the maximum, cp closed, mute",
	},
}

// TestSpecification demands a decision for each row of the specification.
// [TestDecisions] plays it.
func TestSpecification(t *testing.T) {
	for row, keys := range specified {
		for _, key := range keys {
			if scenarios[key] == nil {
				t.Errorf("%s: there is no decision %q", row, key)
			}
		}
	}
}
