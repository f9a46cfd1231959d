package tester_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"

	"github.com/headgate-io/headgate/rollout/tester"
)

// TestTwoInOneProcess has two test runners in one server, below paths of its own (S-48).
func TestTwoInOneProcess(t *testing.T) {
	mux := http.NewServeMux()
	for _, at := range []string{"/one", "/two"} {
		mux.Handle(at+"/", http.StripPrefix(at, newServer(t).Handler()))
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	if status, text := mustPost(t, server.URL+"/one/gate/a%2Fb/open", payload("podinfo", "{}")); status != http.StatusAccepted {
		t.Errorf("%d %s", status, text)
	}
	for at, want := range map[string]int{"/one/gate/a%2Fb/check": http.StatusOK, "/two/gate/a%2Fb/check": http.StatusForbidden} {
		if status, text := mustPost(t, server.URL+at, payload("podinfo", "{}")); status != want {
			t.Errorf("%s: %d %s", at, status, text)
		}
	}
	if status, text := mustPost(t, server.URL+"/two/", payload("podinfo", `{"type":"bash","cmd":"echo two","returnCmdOutput":"true"}`)); text != "two\n" {
		t.Errorf("%d %s", status, text)
	}
}

// TestPanic has a handler that panics answer 500, and the process go on (S-1).
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	s := &tester.Server{Log: slog.New(slog.NewTextHandler(&log, nil))} // without a book of gates
	url := "http://" + serve(t, s)
	for range 2 {
		if status, text := mustPost(t, url+"/gate/check", "{}"); status != http.StatusInternalServerError || text != "the test runner has a defect, see its log" {
			t.Errorf("%d %s", status, text)
		}
	}
	if !strings.Contains(log.String(), "nil pointer") || !strings.Contains(log.String(), "stack") {
		t.Error(log.String())
	}
}

// TestOutputIsLogged has output in the log when it is asked for, without secrets
// and control characters, and otherwise not (S-31, S-47).
func TestOutputIsLogged(t *testing.T) {
	d := openDoor(t, func(w *doorway) { w.server.Guard = guard(t, wireCallers) })
	const token = "all-of-it-0123456789"
	d.post("/", payload("silent", `{"type":"bash","cmd":"echo unseen","token":"`+token+`"}`))
	d.post("/", payload("logged", `{"type":"bash","cmd":"printf '\\033[31mone %s\\ntwo' `+token+`","logCmdOutput":"true","token":"`+token+`"}`))
	d.log.wait(t, `"line":"two"`)
	text := d.log.String()
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		if !json.Valid([]byte(line)) {
			t.Errorf("%q", line)
		}
	}
	if !strings.Contains(text, `"line":"one ***"`) || !strings.Contains(text, `"line":"two"`) {
		t.Error(text)
	}
	for _, secret := range []string{token, "unseen", `\u001b`} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is in %s", secret, text)
		}
	}
}

// FuzzPayload sends bodies to a gate, which is closed or cannot read them.
func FuzzPayload(f *testing.F) {
	for _, body := range []string{"", "null", "{}", `{"name":"a","metadata":{"gate":"b"}}`, `{"metadata":{"a":1}}`, `{"name":"\ud800"}`, "[[[[", `{"NAME":"x","name":null}`, "\xef\xbb\xbf{}", `{"metadata":{"token":"x"}}`,
		`{"nAme":"\b0000"}`, `{"gate":".."}`, `{"checksum":"` + strings.Repeat("a", 254) + `"}`, `{"gate":"a","metadata":{"gate":"\n"}}`} {
		f.Add([]byte(body))
	}
	s := newServer(f)
	handler := s.Handler()
	f.Fuzz(func(t *testing.T, body []byte) {
		var want struct {
			Name, Namespace, Phase, Checksum string
			Metadata                         map[string]string
			Gate, Mode, TTL, Reason, Actor   string
		}
		status := http.StatusForbidden
		if json.Unmarshal(body, &want) != nil {
			status = http.StatusBadRequest
		}
		for _, name := range []string{want.Name, want.Namespace, cmp.Or(want.Gate, want.Metadata["gate"])} {
			if name == "." || name == ".." {
				status = http.StatusBadRequest
			}
		}
		for _, text := range []string{want.Name, want.Namespace, want.Phase, want.Checksum, cmp.Or(want.Gate, want.Metadata["gate"])} {
			if len(text) > 253 || strings.ContainsFunc(text, unicode.IsControl) {
				status = http.StatusBadRequest
			}
		}
		if len(want.Metadata["gate"]) > 512 { // also where another counts
			status = http.StatusBadRequest
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/gate/check", bytes.NewReader(body)))
		if w.Code != status {
			t.Errorf("%q: status %d %s, want %d", body, w.Code, w.Body, status)
		}
		for _, c := range w.Body.String() {
			if c < ' ' || c == 0x7f {
				t.Errorf("%q: %q in %q", body, c, w.Body)
			}
		}
	})
}
