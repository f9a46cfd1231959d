package simulate_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/simulate"
)

// TestParseOutcome parses outcomes and formats them again, or compares the error.
func TestParseOutcome(t *testing.T) {
	for _, test := range []struct {
		of         simulate.Subject
		text, want string // want is "error: " and a part of the error, or "" for text itself
	}{
		{simulate.Hook, "load=500", ""},
		{simulate.Hook, "load=500@3-5", ""},
		{simulate.Hook, "confirm=403@1-4,200", ""},
		{simulate.Hook, "confirm=timeout@0,refused@7-", ""},
		{simulate.Hook, "a=b=200", ""},
		{simulate.Hook, "load", "error: no name"},
		{simulate.Hook, "load=", `error: value "" is not a status`},
		{simulate.Hook, "load=99", `error: value "99" is not a status from 100 to 599, timeout or refused`},
		{simulate.Hook, "load=+200", "error: is not a status"},
		{simulate.Hook, "load=200@", `error: tick ""`},
		{simulate.Hook, "load=200@5-3", "error: the last is before the first"},
		{simulate.Hook, "load=200@9999999", "error: want a number from 0 to 1000000"},
		{simulate.Hook, "load=200,", `error: value ""`},
		{simulate.Metric, "request-success-rate=99,87@4", ""},
		{simulate.Metric, "latency=-1.5e3@2-", ""},
		{simulate.Metric, "latency=none@2,error@3", ""},
		{simulate.Metric, "latency=.5,5.@4", ""},
		{simulate.Metric, "latency=1e999", "error: is not a number"},
		{simulate.Metric, "latency=NaN", "error: is not a number, none or error"},
		{simulate.Metric, "latency=Inf", "error: is not a number"},
		{simulate.Target, "promote=error@4", ""},
		{simulate.Canary, "broken@2", "error: is not ready, not-ready or stuck"},
		{simulate.Primary, "stuck@3-", ""},
		{simulate.Revision, "v2@6", "v2@6-"},
		{simulate.Revision, "v2@6-8,v3@9", "v2@6-8,v3@9-"},
		{simulate.Revision, "user@host@6", "user@host@6-"},
		{simulate.Revision, "v2\x1b[2J@6", `error: is not a text of printable characters`},
		{simulate.Suspend, "on@3-5", ""},
		{simulate.Suspend, "yes", "error: is not on or off"},
		{"weather", "sunny", `error: unknown subject "weather"`},
	} {
		o, err := simulate.ParseOutcome(test.of, test.text)
		if part, isError := strings.CutPrefix(test.want, "error: "); isError {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s %q: %v, want an error with %q", test.of, test.text, err, part)
			}
			continue
		}
		want := test.want
		if want == "" {
			want = test.text
		}
		if err != nil || o.String() != want {
			t.Errorf("%s %q: %q, %v, want %q", test.of, test.text, o, err, want)
		}
	}
}

// TestScriptCheck checks the errors for names that the canary does not have.
func TestScriptCheck(t *testing.T) {
	c := &rollout.Canary{Spec: rollout.CanarySpec{Analysis: rollout.Settings{
		Webhooks: []rollout.Hook{{Name: "load"}, {Name: "approve", Type: rollout.HookConfirmRollout}},
	}}}
	for _, test := range []struct {
		of         simulate.Subject
		text, want string
	}{
		{simulate.Hook, "load=500", ""},
		{simulate.Hook, "rollout=500", ""},
		{simulate.Hook, "confirm-rollout=500", ""},
		{simulate.Hook, "laod=500", `hook "laod": no such name; there are "load", "rollout", "approve", "confirm-rollout"`},
		{simulate.Metric, "latency=1", `metric "latency": the canary has none`},
		{simulate.Target, "promot=error", `target "promot": no such name; there are "scale-up", "scale-down", "promote", "revision"`},
		{simulate.Canary, "stuck", ""},
	} {
		o, err := simulate.ParseOutcome(test.of, test.text)
		must(t, err)
		got := ""
		if err := (simulate.Script{o}).Check(c); err != nil {
			got = err.Error()
		}
		testenv.Equal(t, got, test.want, "%s %s", test.of, test.text)
	}
}
