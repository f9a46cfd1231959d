package rollout_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
)

// outcomes lists the errors of a webhook call other than a status.
var outcomes = map[string]error{
	"timeout": fmt.Errorf("no answer: %w", context.DeadlineExceeded),
	"refused": fmt.Errorf("POST: %w", &net.OpError{Op: "dial", Err: errors.New("connection refused")}),
	"tls":     fmt.Errorf("POST: %w", &tls.CertificateVerificationError{Err: errors.New("unknown authority")}),
}

var outcomeNames = []string{"200", "201", "202", "100", "203", "204", "206", "299", "301", "302", "303", "304", "307", "308", "400", "401", "403", "404", "408", "410", "425", "429", "500", "501", "502", "503", "504", "599", "timeout", "refused", "tls"}

// judgements lists the verdicts of each type: for 200, for 201 and 202, and for any other outcome.
var judgements = map[rollout.HookType][3]rollout.Verdict{
	rollout.HookConfirmRollout:         {rollout.Pass, rollout.Pass, rollout.Pause},
	rollout.HookPreRollout:             {rollout.Pass, rollout.Pass, rollout.Halt},
	rollout.HookRollout:                {rollout.Pass, rollout.Pass, rollout.Halt},
	"":                                 {rollout.Pass, rollout.Pass, rollout.Halt},
	rollout.HookConfirmTrafficIncrease: {rollout.Pass, rollout.Pause, rollout.Pause},
	rollout.HookConfirmPromotion:       {rollout.Pass, rollout.Pause, rollout.Pause},
	rollout.HookPostRollout:            {rollout.Pass, rollout.Pass, rollout.LogError},
	rollout.HookRollback:               {rollout.Fire, rollout.Fire, rollout.NoFire},
	rollout.HookEvent:                  {rollout.Pass, rollout.Pass, rollout.LogError},
	"confirm":                          {rollout.Halt, rollout.Halt, rollout.Halt},
}

func judgement(of rollout.HookType, outcome string) rollout.Verdict {
	switch outcome {
	case "200":
		return judgements[of][0]
	case "201", "202":
		return judgements[of][1]
	}
	return judgements[of][2]
}

func TestJudge(t *testing.T) {
	for of := range judgements {
		for _, name := range outcomeNames {
			err := outcomes[name]
			if code, failed := strconv.Atoi(name); failed == nil {
				err = fmt.Errorf("called: %w", &rollout.StatusError{Code: code})
			}
			testenv.Equal(t, of.Judge(err), judgement(of, name), "%q, %s", of, name)
		}
		testenv.Equal(t, of.Judge(nil), judgement(of, "200"), "%q, nil", of)
	}
}

// TestMetricJudge checks the verdicts on metrics by value and bounds.
func TestMetricJudge(t *testing.T) {
	num := func(v float64) *float64 { return &v }
	between := func(min, max *float64) *rollout.Range { return &rollout.Range{Min: min, Max: max} }
	noValues := fmt.Errorf("%w: prometheus at http://p answered an empty vector", rollout.ErrNoValues)
	refused := errors.New("connection refused")
	tests := map[string]struct {
		metric rollout.Metric
		value  float64
		err    error
		want   rollout.Verdict
		text   string // of the reason; "" for none
	}{
		"within the range":           {rollout.Metric{Name: "m", ThresholdRange: between(num(1), num(2))}, 1.5, nil, rollout.Pass, ""},
		"the minimum is within":      {rollout.Metric{Name: "m", ThresholdRange: between(num(1), num(2))}, 1, nil, rollout.Pass, ""},
		"the maximum is within":      {rollout.Metric{Name: "m", ThresholdRange: between(num(1), num(2))}, 2, nil, rollout.Pass, ""},
		"below":                      {rollout.Metric{Name: "m", ThresholdRange: between(num(1), num(2))}, 0.5, nil, rollout.Halt, "metric m of app.test is 0.5, below 1"},
		"above":                      {rollout.Metric{Name: "m", ThresholdRange: between(num(1), num(2))}, 2.5, nil, rollout.Halt, "metric m of app.test is 2.5, above 2"},
		"only a minimum":             {rollout.Metric{Name: "m", ThresholdRange: between(num(1), nil)}, 1e9, nil, rollout.Pass, ""},
		"only a maximum":             {rollout.Metric{Name: "m", ThresholdRange: between(nil, num(1))}, -1e9, nil, rollout.Pass, ""},
		"zero is a bound":            {rollout.Metric{Name: "m", ThresholdRange: between(nil, num(0))}, 0.1, nil, rollout.Halt, "metric m of app.test is 0.1, above 0"},
		"an empty range":             {rollout.Metric{Name: "m", ThresholdRange: &rollout.Range{}}, 7, nil, rollout.Pass, ""},
		"no bound":                   {rollout.Metric{Name: "m"}, 7, nil, rollout.Pass, ""},
		"a range goes before":        {rollout.Metric{Name: "m", Threshold: num(1), ThresholdRange: between(nil, num(9))}, 7, nil, rollout.Pass, ""},
		"threshold, above":           {rollout.Metric{Name: "m", Threshold: num(5), Query: "q"}, 6, nil, rollout.Halt, "metric m of app.test is 6, above 5"},
		"threshold, equal":           {rollout.Metric{Name: "m", Threshold: num(5), Query: "q"}, 5, nil, rollout.Pass, ""},
		"threshold, below":           {rollout.Metric{Name: "m", Threshold: num(5), Query: "q"}, 4, nil, rollout.Pass, ""},
		"threshold zero":             {rollout.Metric{Name: "m", Threshold: num(0), Query: "q"}, 1, nil, rollout.Halt, "metric m of app.test is 1, above 0"},
		"success rate, below":        {rollout.Metric{Name: rollout.SuccessRate, Threshold: num(99)}, 98.9, nil, rollout.Halt, "metric request-success-rate of app.test is 98.9, below 99"},
		"success rate, equal":        {rollout.Metric{Name: rollout.SuccessRate, Threshold: num(99)}, 99, nil, rollout.Pass, ""},
		"success rate, above":        {rollout.Metric{Name: rollout.SuccessRate, Threshold: num(99)}, 100, nil, rollout.Pass, ""},
		"success rate by query":      {rollout.Metric{Name: rollout.SuccessRate, Query: "q", Threshold: num(1)}, 2, nil, rollout.Halt, "metric request-success-rate of app.test is 2, above 1"},
		"duration, above":            {rollout.Metric{Name: rollout.RequestDuration, Threshold: num(500)}, 501, nil, rollout.Halt, "metric request-duration of app.test is 501, above 500"},
		"duration, fraction":         {rollout.Metric{Name: rollout.RequestDuration, Threshold: num(500)}, 500.9, nil, rollout.Pass, ""},
		"duration, bound's fraction": {rollout.Metric{Name: rollout.RequestDuration, ThresholdRange: between(num(10.9), nil)}, 10.1, nil, rollout.Pass, ""},
		"duration by query":          {rollout.Metric{Name: rollout.RequestDuration, Query: "q", Threshold: num(500)}, 500.9, nil, rollout.Halt, "metric request-duration of app.test is 500.9, above 500"},
		"+Inf above":                 {rollout.Metric{Name: "m", Threshold: num(5)}, math.Inf(1), nil, rollout.Halt, "metric m of app.test is +Inf, above 5"},
		"-Inf below":                 {rollout.Metric{Name: "m", ThresholdRange: between(num(5), nil)}, math.Inf(-1), nil, rollout.Halt, "metric m of app.test is -Inf, below 5"},
		"a bound that is no number":  {rollout.Metric{Name: "m", Threshold: num(math.NaN())}, 1, nil, rollout.Halt, "metric m of app.test is 1, above NaN"},

		"error":            {rollout.Metric{Name: "m", NoValues: rollout.NoValuesPass}, 0, refused, rollout.Halt, "metric m of app.test: connection refused"},
		"no values":        {rollout.Metric{Name: rollout.SuccessRate}, 0, noValues, rollout.Halt, "no values found for metric request-success-rate of provider istio: app.test probably gets no traffic: prometheus at http://p answered an empty vector"},
		"no values, bare":  {rollout.Metric{Name: "m", NoValues: "fail"}, 0, rollout.ErrNoValues, rollout.Halt, "no values found for metric m: app.test probably gets no traffic"},
		"no values, named": {rollout.Metric{Name: "m"}, 0, fmt.Errorf("%w for metric m: no request", rollout.ErrNoValues), rollout.Halt, "no values found for metric m: app.test probably gets no traffic: no request"},
		"no values passes": {rollout.Metric{Name: "m", NoValues: "pass"}, 0, rollout.ErrNoValues, rollout.Pass, "no values found for metric m: app.test probably gets no traffic"},
		"no values pauses": {rollout.Metric{Name: "m", NoValues: "inconclusive"}, 0, rollout.ErrNoValues, rollout.Pause, "no values found for metric m: app.test probably gets no traffic"},
		"too early":        {rollout.Metric{Name: "m", NoValues: "pass"}, 0, rollout.ErrTooEarly, rollout.Pause, "metric m of app.test: measured for less than an interval"},
		"unknown policy":   {rollout.Metric{Name: "m", NoValues: "?"}, 0, rollout.ErrNoValues, rollout.Halt, "no values found for metric m: app.test probably gets no traffic"},
		"NaN":              {rollout.Metric{Name: "m", ThresholdRange: between(num(1), nil)}, math.NaN(), nil, rollout.Halt, "no values found for metric m: app.test probably gets no traffic: the value is NaN"},
	}
	canary := &rollout.Canary{Metadata: rollout.Metadata{Name: "c", Namespace: "test"}}
	canary.Spec.Provider, canary.Spec.TargetRef.Name = "istio", "app"
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := test.metric.Judge(canary, test.value, test.err)
			testenv.Equal(t, got, test.want, "verdict")
			if text := fmt.Sprint(err); err == nil && test.text != "" || err != nil && text != test.text {
				t.Errorf("reason %q\nwant   %q", text, test.text)
			}
			if strings.HasPrefix(test.text, "no values") && !errors.Is(err, rollout.ErrNoValues) || test.err != nil && !errors.Is(err, test.err) {
				t.Errorf("%v does not wrap its cause", err)
			}
		})
	}
}
