package tester_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
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

// TestConnectionIsUsedAgain has answers of all sizes follow each other on one connection.
func TestConnectionIsUsedAgain(t *testing.T) {
	s := newServer(t)
	address := serve(t, s)
	dials := 0
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
		dials++
		return new(net.Dialer).DialContext(ctx, network, to)
	}}}
	defer client.CloseIdleConnections()
	long := payload("long", `{"type":"bash","cmd":"head -c 100000 /dev/zero | tr '\\0' x","returnCmdOutput":"true"}`)
	for i, body := range []string{long, "{}", payload("none", "{}"), long} {
		resp, err := client.Post("http://"+address, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || body == long && len(text) != 100000 {
			t.Errorf("%d: %d bytes, %v", i, len(text), err)
		}
	}
	if dials != 1 {
		t.Errorf("%d connections", dials)
	}
}

// TestOutputIsLogged has output in the log when it is asked for, without secrets
// and control characters, and otherwise not (S-31, S-47).
func TestOutputIsLogged(t *testing.T) {
	var log bytes.Buffer
	s := newServer(t)
	s.Guard = guard(t, wireCallers)
	s.Log = slog.New(slog.NewJSONHandler(&log, nil))
	url := "http://" + serve(t, s)
	const token = "all-of-it-0123456789"
	mustPost(t, url, payload("silent", `{"type":"bash","cmd":"echo unseen","token":"`+token+`"}`))
	mustPost(t, url, payload("logged", `{"type":"bash","cmd":"printf '\\033[31mone %s\\ntwo' `+token+`","logCmdOutput":"true","token":"`+token+`"}`))
	text := log.String()
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
