package rollout_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/headgate-io/headgate/rollout"
)

// TestEvents checks the properties common to all events of all scenarios of the table.
func TestEvents(t *testing.T) {
	seen := map[rollout.EventCode]string{}
	for key := range scenarios {
		x := loadScenario(key)
		after, _, err := x.a.Step(t.Context(), x.time, x.s)
		must(t, err)
		alerted := x.s.RollingBack
		for i, e := range x.w.events {
			seen[e.Code] = e.Message
			if !strings.HasPrefix(e.Message, "app.test: ") || strings.ContainsAny(e.Message, "{}\n") {
				t.Errorf("%s: %s: %q", key, e.Code, e.Message)
			}
			if e.Sequence != x.s.Sequence+int64(i)+1 || !e.Time.Equal(x.time) || e.Name != "app" || e.Namespace != "test" || e.Checksum == "" {
				t.Errorf("%s: %+v", key, e)
			}
			if e.Alert != "" && e.Alert != rollout.Info && !e.Warning {
				t.Errorf("%s: %s alerts with %s and is no warning", key, e.Code, e.Alert)
			}
			alerted = alerted || e.Alert == rollout.Warn || e.Alert == rollout.Error
		}
		if after.Phase == rollout.Failed && x.s.Phase != rollout.Failed && !alerted {
			t.Errorf("%s: nobody is alerted to the failure (reference E, #1663)", key)
		}
		if n := len(x.w.events); n > 0 && after.Phase != x.s.Phase && after.Phase != rollout.Promoting && x.w.events[n-1].Phase != after.Phase {
			t.Errorf("%s: enters %s, the last event says %s (C-10)", key, after.Phase, x.w.events[n-1].Phase)
		}
	}
	for _, code := range rollout.EventCodes() {
		if seen[code] == "" {
			t.Errorf("no scenario tells %s", code)
		}
	}
}

// Receivers written for the reference implementation look for these ends of messages (reference B.7).
func TestEventMessages(t *testing.T) {
	for key, want := range map[string]string{
		"Progressing: checks pass":                         "canary weight 40",
		"Progressing: mirror, first step":                  "canary weight 0",
		"Progressing: blue/green, next iteration":          "canary iteration 2/2",
		"Progressing: a/b, first iteration":                "canary iteration 1/2",
		"Promoting: stepWeightPromotion":                   "primary weight 80",
		"Progressing: ro fails":                            "failed checks 1/2: status 500: said ro",
		"Progressing: metric out of range":                 "failed checks 1/2: metric m of app.test is 98.9, below 99",
		"Progressing: ro fails, threshold":                 "rollback, failed checks 2 reached the threshold 2",
		"Initialized: new revision, cr does not answer":    "by cr: scripted",
		"Succeeded: post-rollout to be done":               "post-rollout webhook po passed",
		"Progressing: canary stuck":                        "canary: scripted: never becomes ready",
		"Progressing: rollback to be done, routing fails":  "route 0% of the traffic to the canary: scripted",
		"Progressing: rollback to be done":                 "rolled back, all traffic goes to the primary",
		"Promoting: primary stuck":                         "primary: scripted: never becomes ready",
		"Initialized: suspended":                           "suspended, nothing is done",
		"Progressing: at the maximum, cp closed":           "of the promotion by cp: status 403: said cp",
		"Progressing: metric without values, inconclusive": "decides nothing: no values found for metric m: app.test probably gets no traffic: query: no values found",
	} {
		x := loadScenario(key)
		step(t, x.a, x.s)
		last := x.w.events[len(x.w.events)-1]
		if !strings.HasSuffix(last.Message, want) {
			t.Errorf("%s: %q does not end in %q", key, last.Message, want)
		}
	}
}

// Remote text in events and in the status is bounded, on one line, and without
// credentials.
func TestHostileText(t *testing.T) {
	hostile := "line\nbreak \x1b[2Jescape https://user:secret@host/?token=secret Authorization: Bearer secret\u202e " + strings.Repeat("long ", 20_000)
	for _, key := range slices.Sorted(maps.Keys(scenarios)) {
		x := loadScenario(key)
		x.w.body = hostile
		x.c.Metadata.Name = "app\x1b[31m\n"
		for i := range x.c.Spec.Analysis.Metrics {
			x.c.Spec.Analysis.Metrics[i].Name += "\r\n" + hostile
		}
		after := step(t, x.a, x.s)
		texts := []string{}
		if g := after.Gate; g != nil {
			texts = append(texts, g.Reason)
		}
		for _, v := range after.Values {
			texts = append(texts, v.Metric, v.Value)
		}
		for _, e := range x.w.events {
			texts = append(texts, e.Message, e.Reason, e.Hook)
		}
		for _, text := range texts {
			if len(text) > 4<<10 || strings.Contains(text, "secret") || strings.ContainsFunc(text, unicode.IsControl) || strings.ContainsRune(text, '\u202e') {
				t.Errorf("%s: %d bytes: %.200q", key, len(text), text)
			}
		}
	}
}

// Events are numbered even without a sink.
func TestNoSink(t *testing.T) {
	x := newScenario("")
	x.a.Sink = nil
	if s := step(t, x.a, x.s); s.Sequence != 1 || s.Phase != rollout.Initialized {
		t.Errorf("status %+v", s)
	}
}
