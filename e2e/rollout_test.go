package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// TestRollout runs rollouts on one machine with the command's proxy, load from hey, and Flagger's
// load tester as the webhook target.
func TestRollout(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	tester := serveLoadTester(t)
	t.Run("promoted", func(t *testing.T) {
		testPromotion(t, tester, "/gate", "/gate", func(s *rolloutSetup, gate string) { s.post(gate+"/open", "happy") })
	})
	t.Run("rolled back by a load test", func(t *testing.T) { testRollbackByTest(t, tester) })
	t.Run("rolled back by a switch", func(t *testing.T) { testRollbackBySwitch(t, tester) })
}

// testPromotion runs a rollout that waits at the gate start and, before the promotion, at the gate
// promotion. Both may be the same gate. It calls open to open a gate.
func testPromotion(t *testing.T, tester, start, promotion string, open func(s *rolloutSetup, gate string)) {
	s := newRolloutSetup(t, tester)
	script := write(t, filepath.Join(s.dir, "ready.sh"), "curl -sf http://"+s.canary.Listener.Addr().String()+"/ >/dev/null\n")
	load, report := heyWebhook(t, tester, s.proxy, s.dir)
	s.declare("happy",
		hook("approve", "confirm-rollout", tester+start+"/check"),
		hook("acceptance", "pre-rollout", tester+"/", "type", "bash", "cmd", "bash "+script),
		load,
		hook("promote", "confirm-promotion", tester+promotion+"/check"),
		hook("abort", "rollback", tester+"/rollback/check"),
	)
	r := s.run()
	clients := startLoad(t, s.proxy)
	if e := r.waitUntil("a closed gate", hasCode("cr-wait")); e.Hook != "approve" || e.Phase != "Waiting" || s.canaryRequests.Load() != 0 {
		t.Errorf("it waits on %q in %s, with %d requests to the canary", e.Hook, e.Phase, s.canaryRequests.Load())
	}
	open(s, start)
	r.waitUntil("an open gate", hasCode("cr-pass"))
	if start == promotion {
		s.post(promotion+"/close", "happy")
	}
	if e := r.waitUntil("a closed gate", hasCode("cp-wait")); e.Hook != "promote" || e.Weight != 60 {
		t.Errorf("it waits on %q at weight %d", e.Hook, e.Weight)
	}
	if got := s.served(); got["canary"] < 45 || got["canary"] > 75 { // the concurrent load shifts the shares
		t.Errorf("with weight 60: %v", got)
	}
	open(s, promotion)
	if e := r.waitUntil("the result", isResult); e.Outcome != "promoted" || e.Revision != "v2" || e.Status.Phase != "Succeeded" {
		t.Errorf("%+v", e)
	}
	if got := s.served(); got["canary"] != 100 { // the former canary is the primary of the proxy
		t.Errorf("promoted: %v", got)
	}
	checkReport(t, report)
	clients.end()
	r.end(0)
}

// testRollbackByTest runs a rollout with a test that fails from the second run on.
func testRollbackByTest(t *testing.T, tester string) {
	s := newRolloutSetup(t, tester)
	runs := filepath.Join(s.dir, "runs")
	load, report := heyWebhook(t, tester, s.proxy, s.dir)
	script := write(t, filepath.Join(s.dir, "test.sh"), "echo run >>"+runs+"\ntest $(wc -l <"+runs+") -lt 2 || { echo too slow; exit 1; }\n")
	s.declare("sad", load, hook("test", "rollout", tester+"/", "type", "bash", "cmd", "bash "+script))
	r := s.run()
	clients := startLoad(t, s.proxy)
	r.waitUntil("weight 40", func(e event) bool { return e.Code == "weight-advanced" && e.Weight == 40 })
	if e := r.waitUntil("a failed check", hasCode("ro-fail")); e.Hook != "test" || !strings.Contains(e.Message, "too slow") {
		t.Errorf("%+v", e)
	}
	e := r.waitUntil("the result", isResult)
	if e.Outcome != "rolled back" || e.Status.Phase != "Failed" || e.Status.CanaryWeight != 0 {
		t.Errorf("%+v", e)
	}
	checkReport(t, report)
	clients.end() // waits for pending requests
	before := s.canaryRequests.Load()
	testenv.Equal(t, s.served()["primary"], 100, "rolled back")
	if after := s.canaryRequests.Load(); after != before || before == 0 {
		t.Errorf("the canary got %d requests, then %d", before, after)
	}
	s.endDuringRequest(r, 1)
}

// endDuringRequest ends the command during a request to the proxy, which must be answered.
func (s *rolloutSetup) endDuringRequest(r *rolloutProcess, want int) {
	s.t.Helper()
	answered := make(chan string, 1)
	select {
	case <-s.begun: // left over from the load
	default:
	}
	go func() {
		conn, err := net.Dial("tcp", s.proxy)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /slow HTTP/1.1\r\nHost: proxy\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answered <- resp.Status + " " + string(body)
	}()
	<-s.begun
	r.end(want)
	if got := <-answered; got != "200 OK primary" {
		s.t.Errorf("the last request: %s", got)
	}
}

// testRollbackBySwitch opens the rollback switch while the canary waits at a gate.
func testRollbackBySwitch(t *testing.T, tester string) {
	s := newRolloutSetup(t, tester)
	s.declare("switched",
		hook("increase", "confirm-traffic-increase", s.gate("switched", 2)),
		hook("abort", "rollback", tester+"/rollback/check"),
	)
	r := s.run()
	clients := startLoad(t, s.proxy)
	if e := r.waitUntil("a closed gate", hasCode("ti-wait")); e.Phase != "Waiting" || e.Weight != 20 {
		t.Errorf("it waits in %s at weight %d", e.Phase, e.Weight)
	}
	s.post("/rollback/open", "switched")
	r.waitUntil("the rollback", hasCode("rb-fired"))
	if e := r.waitUntil("the result", isResult); e.Outcome != "rolled back" {
		t.Errorf("%+v", e)
	}
	testenv.Equal(t, s.served()["primary"], 100, "rolled back")
	clients.end()
	r.end(1)
}

// TestTesterRollout runs rollouts with the webhooks, gates and rollback switch of headgate tester,
// with tokens and the command.
func TestTesterRollout(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef0123"
	tokens := write(t, filepath.Join(t.TempDir(), "tokens.yaml"), "tokens: [{name: rollout, token: "+token+"}]\n")
	s := startTester(t, "--tokens", tokens)
	base := s.url + "/token/" + token
	t.Run("promoted", func(t *testing.T) { testTesterPromotion(t, s, base, token) })
	t.Run("rolled back by a load", func(t *testing.T) { testTesterRollback(t, base) })
	t.Run("rolled back by a switch", func(t *testing.T) { testRollbackBySwitch(t, base) })
	t.Run("rejected", func(t *testing.T) { testTesterRejection(t, s, base, token) })
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

// testTesterPromotion promotes a rollout with two gates, for the start and for the promotion.
func testTesterPromotion(t *testing.T, s *testRunner, base, token string) {
	testPromotion(t, base, "/gate/start", "/gate/promote", func(_ *rolloutSetup, gate string) {
		if gate == "/gate/promote" {
			s.gates(t, token, "gate", "open", "default/happy", "--gate", "promote", "--ttl", "1h")
			return
		}
		if list := s.gates(t, token, "gate", "list", "--waiting"); !strings.Contains(list, "happy") || !strings.Contains(list, "start") {
			t.Errorf("what waits: %s", list)
		}
		s.gates(t, token, "gate", "open", "default/happy", "--gate", "start", "--mode", "one-shot", "--reason", "looks good")
	})
	if trail := s.gates(t, token, "gate", "audit", "default/happy"); !strings.Contains(trail, "looks good") || !strings.Contains(trail, "consume") {
		t.Errorf("the audit trail: %s", trail)
	}
}

// testTesterRollback checks that a load that fails in the background fails the next iteration.
func testTesterRollback(t *testing.T, base string) {
	st := newRolloutSetup(t, base)
	st.declare("sad", hook("load", "rollout", base+"/", "cmd", "echo too slow; exit 1", "failOnError", "true"))
	r := st.run("--interval", "2s") // leaves three iterations for the load to end
	clients := startLoad(t, st.proxy)
	if e := r.waitUntil("a failed check", hasCode("ro-fail")); e.Hook != "load" || !strings.Contains(e.Message, "too slow") {
		t.Errorf("%+v", e)
	}
	if e := r.waitUntil("the result", isResult); e.Outcome != "rolled back" {
		t.Errorf("%+v", e)
	}
	clients.end()
	r.end(1)
}

// testTesterRejection checks that rejecting a waiting rollout rolls it back.
func testTesterRejection(t *testing.T, s *testRunner, base, token string) {
	st := newRolloutSetup(t, base)
	st.declare("rejected", hook("promote", "confirm-promotion", base+"/gate/check"), hook("abort", "rollback", base+"/rollback/check"))
	r := st.run()
	clients := startLoad(t, st.proxy)
	r.waitUntil("a closed gate", hasCode("cp-wait"))
	s.gates(t, token, "gate", "reject", "default/rejected", "--reason", "no")
	if e := r.waitUntil("the result", isResult); e.Outcome != "rolled back" {
		t.Errorf("%+v", e)
	}
	clients.end()
	r.end(1)
}
