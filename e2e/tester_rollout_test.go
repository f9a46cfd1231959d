package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTesterRollout drives rollouts whose webhooks, gates and rollback switch are
// those of the test runner, by tokens and the command.
func TestTesterRollout(t *testing.T) {
	const token = "0123456789abcdef0123"
	tokens := write(t, filepath.Join(t.TempDir(), "tokens.yaml"), "tokens: [{name: rollout, token: "+token+"}]\n")
	s := startTester(t, "--tokens", tokens)
	base := s.url + "/token/" + token
	t.Run("promoted", func(t *testing.T) { testerPromotes(t, s, base, token) })
	t.Run("rolled back by a load", func(t *testing.T) { testerRollsBack(t, base) })
	t.Run("rolled back by a switch", func(t *testing.T) { testerSwitches(t, s, base, token) })
	t.Run("rejected", func(t *testing.T) { testerRejects(t, s, base, token) })
	if strings.Contains(s.log.String(), token) {
		t.Errorf("the token is in the log")
	}
}

// gates runs headgate gate or rollback against the test runner.
func (s *testRunner) gates(t *testing.T, token string, args ...string) string {
	t.Helper()
	cmd := headgate(t.Context(), t, append(args, "--server", s.url, "--token-file", write(t, filepath.Join(t.TempDir(), "token"), token))...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("headgate %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// testerPromotes opens one gate for the start and another for the promotion.
func testerPromotes(t *testing.T, s *testRunner, base, token string) {
	st := newStage(t, base)
	load, report := pressure(t, base, st.proxy, st.dir)
	st.declare("happy",
		hook("approve", "confirm-rollout", base+"/gate/start/check"),
		hook("acceptance", "pre-rollout", base+"/", "type", "bash", "cmd", "curl -sf http://"+st.canary.Listener.Addr().String()+"/ >/dev/null"),
		load,
		hook("promote", "confirm-promotion", base+"/gate/promote/check"),
		hook("abort", "rollback", base+"/rollback/check"),
	)
	r := st.run()
	if e := r.until("a closed gate", code("cr-wait")); e.Hook != "approve" || st.canaryRequests.Load() != 0 {
		t.Errorf("%+v", e)
	}
	if list := s.gates(t, token, "gate", "list", "--waiting"); !strings.Contains(list, "happy") || !strings.Contains(list, "start") {
		t.Errorf("what waits: %s", list)
	}
	s.gates(t, token, "gate", "open", "default/happy", "--gate", "start", "--mode", "one-shot", "--reason", "looks good")
	if e := r.until("a closed gate", code("cp-wait")); e.Hook != "promote" || e.Weight != 60 {
		t.Errorf("%+v", e)
	}
	s.gates(t, token, "gate", "open", "default/happy", "--gate", "promote", "--ttl", "1h")
	if e := r.until("the result", func(e event) bool { return e.Outcome != "" }); e.Outcome != "promoted" {
		t.Errorf("%+v", e)
	}
	if got := st.served(); got["canary"] != 100 {
		t.Errorf("promoted: %v", got)
	}
	checkReport(t, report)
	r.end(0)
	if trail := s.gates(t, token, "gate", "audit", "default/happy"); !strings.Contains(trail, "looks good") || !strings.Contains(trail, "consume") {
		t.Errorf("the audit trail: %s", trail)
	}
}

// testerRollsBack has a load in the background fail, which the next iteration is told.
func testerRollsBack(t *testing.T, base string) {
	st := newStage(t, base)
	st.declare("sad", hook("load", "rollout", base+"/", "cmd", "echo too slow; exit 1", "failOnError", "true"))
	r := st.run("--interval", "2s") // there are three more iterations for the load to end in
	people := gather(t, st.proxy)
	if e := r.until("a failed check", code("ro-fail")); e.Hook != "load" || !strings.Contains(e.Message, "too slow") {
		t.Errorf("%+v", e)
	}
	if e := r.until("the result", func(e event) bool { return e.Outcome != "" }); e.Outcome != "rolled back" {
		t.Errorf("%+v", e)
	}
	people.home()
	r.end(1)
}

// testerSwitches opens the rollback switch while the canary waits on a gate.
func testerSwitches(t *testing.T, s *testRunner, base, token string) {
	st := newStage(t, base)
	st.declare("switched", hook("promote", "confirm-promotion", base+"/gate/check"), hook("abort", "rollback", base+"/rollback/check"))
	r := st.run()
	people := gather(t, st.proxy)
	r.until("a closed gate", code("cp-wait"))
	s.gates(t, token, "rollback", "open", "default/switched", "--ttl", time.Hour.String())
	r.until("the rollback", code("rb-fired"))
	if e := r.until("the result", func(e event) bool { return e.Outcome != "" }); e.Outcome != "rolled back" {
		t.Errorf("%+v", e)
	}
	people.home()
	r.end(1)
}

// testerRejects rejects what waits, which rolls it back.
func testerRejects(t *testing.T, s *testRunner, base, token string) {
	st := newStage(t, base)
	st.declare("rejected", hook("promote", "confirm-promotion", base+"/gate/check"), hook("abort", "rollback", base+"/rollback/check"))
	r := st.run()
	people := gather(t, st.proxy)
	r.until("a closed gate", code("cp-wait"))
	s.gates(t, token, "gate", "reject", "default/rejected", "--reason", "no")
	if e := r.until("the result", func(e event) bool { return e.Outcome != "" }); e.Outcome != "rolled back" {
		t.Errorf("%+v", e)
	}
	people.home()
	r.end(1)
}
