package rollout_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/headgate-io/headgate/rollout"
)

// outcomes are what a webhook may come to, other than a status.
var outcomes = map[string]error{
	"timeout": fmt.Errorf("no answer: %w", context.DeadlineExceeded),
	"refused": fmt.Errorf("POST: %w", &net.OpError{Op: "dial", Err: errors.New("connection refused")}),
	"tls":     fmt.Errorf("POST: %w", &tls.CertificateVerificationError{Err: errors.New("unknown authority")}),
}

var judged = []string{"200", "201", "202", "100", "203", "204", "206", "299", "301", "302", "303", "304", "307", "308", "400", "401", "403", "404", "408", "410", "425", "429", "500", "501", "502", "503", "504", "599", "timeout", "refused", "tls"}

// judgements are the verdicts of each type: of 200, of 201 and 202, of all else.
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
		for _, name := range judged {
			err := outcomes[name]
			if code, failed := strconv.Atoi(name); failed == nil {
				err = fmt.Errorf("called: %w", &rollout.StatusError{Code: code})
			}
			if got, want := of.Judge(err), judgement(of, name); got != want {
				t.Errorf("%q, %s: %s, want %s", of, name, got, want)
			}
		}
		if got, want := of.Judge(nil), judgement(of, "200"); got != want {
			t.Errorf("%q, nil: %s, want %s", of, got, want)
		}
	}
}

// What Call returns and what Judge makes of it are of one table.
func TestCallJudgesAsJudge(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.URL.Path[1:])
		w.WriteHeader(code)
	}))
	defer srv.Close()
	var c rollout.Caller
	defer c.Close()
	for of := range judgements {
		for _, name := range judged {
			code, err := strconv.Atoi(name)
			if err != nil || code < 200 {
				continue
			}
			answer, err := c.Call(t.Context(), rollout.Hook{Name: "a", Type: of, URL: srv.URL + "/" + name}, rollout.Payload{})
			if of == "confirm" {
				if err == nil || answer.Attempts != 0 {
					t.Fatalf("an unknown type was called: %+v, %v", answer, err)
				}
				continue
			}
			if answer.Status != code || answer.Attempts != 1 {
				t.Errorf("%q, %s: %+v", of, name, answer)
			}
			status, refused := errors.AsType[*rollout.StatusError](err)
			if refused && status.Code != code || !refused && err != nil {
				t.Errorf("%q, %s: error %v", of, name, err)
			}
			want := judgement(of, name)
			if got := of.Judge(err); got != want {
				t.Errorf("%q, %s: %s, want %s", of, name, got, want)
			}
			if accepted := want == rollout.Pass || want == rollout.Fire; accepted != (err == nil) {
				t.Errorf("%q, %s: error %v with verdict %s", of, name, err, want)
			}
		}
	}
}
