package main

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// webhooks starts the webhook server of rollouts. At $HOOKS, the path /STATUS answers with that
// status, /hostile with control characters, /flaky with 500 to every odd request, /locked with 401
// without the token, /gate with 403 until the command "gate open", /echo with the request. /tattle
// answers with the credentials of the request, /number with a document that has 42, and /bare with
// 42 alone. $TLSHOOKS does the same over TLS with the certificate in $WORK/ca.crt.
func webhooks(_ *testing.T, env *testscript.Env) error {
	d := new(hookServer)
	d.called = sync.NewCond(&d.mu)
	env.Values[hookServerKey{}] = d
	plain := httptest.NewServer(d)
	env.Defer(plain.Close)
	env.Setenv("HOOKS", plain.URL)
	secure := httptest.NewUnstartedServer(d)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	env.Defer(secure.Close)
	env.Setenv("TLSHOOKS", secure.URL)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	return os.WriteFile(filepath.Join(env.WorkDir, "ca.crt"), text, 0o600)
}

type hookServerKey struct{}

// A hookServer serves the webhooks and records the calls.
type hookServer struct {
	mu    sync.Mutex
	open  bool
	flaky int
	calls []string

	called *sync.Cond // signals another call
}

func (d *hookServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, fmt.Sprintf("%s %s\n", r.URL.RequestURI(), body))
	d.called.Broadcast()
	var status int
	switch _, err := fmt.Sscanf(r.URL.Path, "/%d", &status); {
	case err == nil && status >= 200 && status < 600:
		w.WriteHeader(status)
		fmt.Fprintf(w, "answer %d", status)
	case r.URL.Path == "/hostile":
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, "no\x1b[2J\x1b]0;owned\x07\r\nsecond \u202eline\x00\xff")
	case r.URL.Path == "/flaky":
		d.flaky++
		if d.flaky%2 == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	case r.URL.Path == "/gate" && !d.open:
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, "Forbidden")
	case r.URL.Path == "/locked" && r.Header.Get("Authorization")+r.Header.Get("X-Team")+r.Header.Get("X-Other") != "Bearer s3cret-tokenweba: b":
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path == "/tattle":
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "no: %s, see http://ci:s3cret@127.0.0.1/?token=s3cret", r.Header.Get("Authorization"))
	case r.URL.Path == "/bare":
		io.WriteString(w, "42\n")
	case r.URL.Path == "/number":
		io.WriteString(w, `{"value": 42}`)
	case r.URL.Path == "/echo":
		r.Header.Write(w)
		w.Write(body)
	}
}

// checkCalls checks that the recorded calls match patterns, or with "!" that they do not: called
// PATTERN… Without "!" it clears the record.
func checkCalls(ts *testscript.TestScript, not bool, args []string) {
	d := ts.Value(hookServerKey{}).(*hookServer)
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := strings.Join(d.calls, "")
	if !not {
		d.calls = nil
	}
	for _, pattern := range args {
		re, err := regexp.Compile(pattern)
		ts.Check(err)
		if re.MatchString(calls) == not {
			ts.Fatalf("%q: were the calls\n%s", pattern, calls)
		}
	}
}

// waitForCalls waits for a call that matches each pattern in turn, and clears the record: until PATTERN…
func waitForCalls(ts *testscript.TestScript, _ bool, args []string) {
	d := ts.Value(hookServerKey{}).(*hookServer)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, pattern := range args {
		re, err := regexp.Compile(pattern)
		ts.Check(err)
		for !re.MatchString(strings.Join(d.calls, "")) {
			d.called.Wait()
		}
		d.calls = nil
	}
}

// setGate opens or closes the path /gate: gate open|close.
func setGate(ts *testscript.TestScript, _ bool, args []string) {
	d := ts.Value(hookServerKey{}).(*hookServer)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = args[0] == "open"
}
