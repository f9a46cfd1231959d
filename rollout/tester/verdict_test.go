package tester_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

// post posts a payload and returns status and body of the answer.
func post(t *testing.T, ctx context.Context, url, body string, header ...string) (int, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	must(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

func mustPost(t *testing.T, url, body string, header ...string) (int, string) {
	t.Helper()
	status, text, err := post(t, t.Context(), url, body, header...)
	must(t, err)
	return status, text
}

// payload returns a payload of a canary with a name.
func payload(name string, metadata string) string {
	return fmt.Sprintf(`{"name":%q,"namespace":"test","phase":"Progressing","checksum":"a","metadata":%s}`, name, metadata)
}

// awaitRun waits until wanted is true for a run of a canary.
func awaitRun(t *testing.T, s *tester.Server, name string, wanted func(api.Run) bool) api.Run {
	t.Helper()
	changes := s.Runs.Watch(t.Context())
	for {
		for _, r := range s.Runs.Runs(api.Filter{Name: name}, nil) {
			if wanted(r) {
				return r
			}
		}
		if _, more := <-changes; !more {
			t.Fatal("the runner has ended")
		}
	}
}

func inState(state api.RunState) func(api.Run) bool {
	return func(r api.Run) bool { return r.State == state }
}

// TestVerdictIsKept lets a test pass after its caller disconnected, and repeats the request.
// Without a checksum, or after a while, a new run starts; otherwise the answer says when
// the run ended.
func TestVerdictIsKept(t *testing.T) {
	for name, test := range map[string]struct {
		checksum, more string
		later          time.Duration
		want           string // with TIME for when the first run ended
		header         bool
		processes      int
	}{
		"with a checksum":    {"c", ``, 4 * time.Minute, "the run ended before this request, at TIME", true, 1},
		"its output":         {"c", `,"returnCmdOutput":"true"`, 4 * time.Minute, "fine\n", true, 1},
		"too late":           {"c", ``, 6 * time.Minute, "", false, 2},
		"without a checksum": {"", ``, 0, "", false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var clockOffset atomic.Int64
			s := newServerOf(t, run.Config{Now: func() time.Time { return time.Now().Add(time.Duration(clockOffset.Load())) }})
			handler := s.Handler()
			command, count := marker(t)
			body := fmt.Sprintf(`{"name":"app","namespace":"test","phase":"Progressing","checksum":%q,"metadata":{"type":"bash","cmd":"%s; echo fine"%s}}`, test.checksum, command, test.more)
			ask := func(ctx context.Context) *httptest.ResponseRecorder {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body)))
				return w
			}
			callerCtx, leave := context.WithCancel(t.Context())
			leave()
			ask(callerCtx)
			first := awaitRun(t, s, "app", inState(api.Succeeded))
			clockOffset.Store(int64(test.later))
			w := ask(t.Context())
			ended := first.Ended.Format(time.RFC3339)
			if want := strings.Replace(test.want, "TIME", ended, 1); w.Code != http.StatusOK || w.Body.String() != want {
				t.Errorf("got %d %q, want %q", w.Code, w.Body, want)
			}
			if got := w.Header().Get("Headgate-Run-Ended"); (got == ended) != test.header || (got == "") == test.header {
				t.Errorf("got %q", got)
			}
			testenv.Equal(t, count(), test.processes)
		})
	}
}

// TestFailureText shows that the text of a failure has the bounds of callers (C-7, S-29).
func TestFailureText(t *testing.T) {
	url := "http://" + serve(t, newServer(t))
	status, text := mustPost(t, url, payload("long", `{"type":"bash","cmd":"echo first; head -c 300000 /dev/zero | tr '\\0' x; echo last; exit 9"}`))
	if status != http.StatusUnprocessableEntity || len(text) > 64<<10 || len(text) < 60<<10 {
		t.Errorf("status %d, %d bytes", status, len(text))
	}
	for _, part := range []string{"command echo first", " failed: first\nxxx", "left out]\nxxx", "xxxlast\n: exit status 9"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in it", part)
		}
	}
}

// A delayedRecorder blocks a write until it is released.
type delayedRecorder struct {
	*httptest.ResponseRecorder
	writing, let chan struct{}
}

func (l delayedRecorder) Write(p []byte) (int, error) {
	close(l.writing)
	<-l.let
	return l.ResponseRecorder.Write(p)
}

// TestVerdictReceivedDuringShutdown shows that a verdict which a caller receives during a
// shutdown is not delivered again by the next test runner.
func TestVerdictReceivedDuringShutdown(t *testing.T) {
	for name, inTime := range map[string]bool{"in time": true, "too late": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := newServerOf(t, run.Config{Dir: dir})
				w := delayedRecorder{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
				go s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(payload("late", `{"type":"bash","cmd":"exit 3"}`))))
				<-w.writing
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() { ended <- s.Shutdown(ctx) }()
				synctest.Wait()
				if len(ended) > 0 {
					t.Error("shut down before the answer")
				}
				if !inTime {
					cancel()
					synctest.Wait()
				}
				close(w.let)
				testenv.Equal(t, <-ended, nil)
				synctest.Wait()
				next := httptest.NewRecorder()
				s.Handler().ServeHTTP(next, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(payload("next", `{"cmd":"true"}`))))
				if next.Code != http.StatusServiceUnavailable || !strings.Contains(next.Body.String(), "shutting down") {
					t.Errorf("afterwards: %d %s", next.Code, next.Body)
				}
				if all := newServerOf(t, run.Config{Dir: dir}).Runs.Runs(api.Filter{}, nil); len(all) != 1 || all[0].Delivered != inTime {
					t.Errorf("%+v", all)
				}
			})
		})
	}
}

// TestShutdownNamesRunsThatGoOn shows that Shutdown returns an error if a run does not end
// in time.
func TestShutdownNamesRunsThatGoOn(t *testing.T) {
	s := newServer(t)
	go s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(payload("long", `{"type":"bash","cmd":"sleep 60"}`))))
	awaitRun(t, s, "long", inState(api.Running))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testenv.ErrorSays(t, s.Shutdown(ctx), "1 of the runs did not end in time: bash of test/long")
}

// A brokenWriter accepts the header of an answer, but no body.
type brokenWriter struct{ header http.Header }

func (b brokenWriter) Header() http.Header       { return b.header }
func (b brokenWriter) WriteHeader(int)           {}
func (b brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestAnswerThatIsNotReceived shows that a verdict is kept if its answer could not be
// written, or if its caller had disconnected.
func TestAnswerThatIsNotReceived(t *testing.T) {
	s := newServer(t)
	handler := s.Handler()
	command, count := marker(t)
	body := payload("lost", fmt.Sprintf(`{"type":"bash","cmd":"%s; exit 3"}`, command))
	ask := func(w http.ResponseWriter, ctx context.Context) {
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body)))
	}
	ask(brokenWriter{http.Header{}}, t.Context())
	callerCtx, leave := context.WithCancel(t.Context())
	leave()
	ask(httptest.NewRecorder(), callerCtx)
	last := httptest.NewRecorder()
	ask(last, t.Context())
	testenv.Equal(t, last.Code, http.StatusUnprocessableEntity, "status")
	testenv.Equal(t, count(), 1)
	if r := s.Runs.Runs(api.Filter{Name: "lost"}, nil); len(r) != 1 || !r[0].Delivered {
		t.Errorf("%+v", r)
	}
}

// TestLaunchEndsWithItsCaller shows that a k6 run ends when the caller that waits disconnects.
func TestLaunchEndsWithItsCaller(t *testing.T) {
	s := newServer(t)
	url := "http://" + serve(t, s)
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := post(t, ctx, url+"/launch-test", payload("left", `{"script":"linger"}`))
		done <- err
	}()
	awaitRun(t, s, "left", inState(api.Running))
	leave()
	<-done
	if ended := awaitRun(t, s, "left", inState(api.Cancelled)); !strings.Contains(ended.Reason, "caller") {
		t.Errorf("%+v", ended)
	}
}

// get sends a GET and returns the answer, whose body the test reads as a stream.
func get(t *testing.T, url string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	must(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// noticeReader reads a stream of changes.
type noticeReader struct{ lines *bufio.Scanner }

// next returns the next change, and skips comments.
func (n noticeReader) next(t *testing.T) (notice api.Notice) {
	t.Helper()
	for n.lines.Scan() {
		if data, is := strings.CutPrefix(n.lines.Text(), "data: "); is {
			must(t, json.Unmarshal([]byte(data), &notice))
			return notice
		}
	}
	t.Fatal("the stream has ended")
	return notice
}

func TestWatch(t *testing.T) {
	s := newServer(t)
	s.Guard = guard(t, tenants)
	url := "http://" + serve(t, s)
	resp := get(t, url+"/api/v1/watch", "Authorization", "Bearer team-token-0123456789")
	testenv.Equal(t, resp.Header.Get("Content-Type"), "text/event-stream", "Content-Type")
	changes := noticeReader{bufio.NewScanner(resp.Body)}
	changes.lines.Scan() // the stream has begun
	all := []string{"Authorization", "Bearer all-of-it-0123456789"}
	mustPost(t, url+"/gate/traffic/open", payload("hidden", "{}"), all...)
	mustPost(t, url+"/gate/traffic/open", `{"name":"seen","namespace":"team-a"}`, all...)
	if g := changes.next(t).Gate; g == nil || g.Name != "seen" || !g.Open {
		t.Errorf("%+v", g)
	}
	mustPost(t, url, `{"name":"seen","namespace":"team-a","metadata":{"type":"bash","cmd":"echo secret output"}}`, all...)
	for {
		r := changes.next(t).Run
		if r == nil || r.Name != "seen" || r.Output != "" || !strings.HasPrefix(r.URL, url+"/ui/#/runs/") {
			t.Fatalf("%+v", r)
		}
		if r.State == api.Succeeded {
			break
		}
	}
	must(t, s.Shutdown(t.Context()))
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Errorf("the stream does not end well: %v", err)
	}
}

// TestOutput follows the output of a run that waits until the test has read it.
func TestOutput(t *testing.T) {
	s := newServer(t)
	url := "http://" + serve(t, s)
	gate := filepath.Join(t.TempDir(), "gate")
	mustPost(t, url, payload("followed", fmt.Sprintf(`{"cmd":"echo one; until [ -e %s ]; do sleep 0.05; done; echo two"}`, gate)))
	r := awaitRun(t, s, "followed", inState(api.Running))
	resp := get(t, url+"/api/v1/runs/"+r.ID+"/output?follow=true")
	if kind := resp.Header.Get("Content-Type"); kind != "text/plain; charset=utf-8" || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("Content-Type %s", kind)
	}
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || lines.Text() != "one" {
		t.Fatalf("%q", lines.Text())
	}
	must(t, os.WriteFile(gate, nil, 0o600))
	if !lines.Scan() || lines.Text() != "two" || lines.Scan() || lines.Err() != nil {
		t.Errorf("%q %v", lines.Text(), lines.Err())
	}
	text, err := io.ReadAll(get(t, url+"/api/v1/runs/"+r.ID+"/output").Body)
	if err != nil || string(text) != "one\ntwo\n" {
		t.Errorf("%q %v", text, err)
	}
}

// TestPanic shows that a panic in a handler is answered with 500, and the process goes on (S-1).
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	s := &tester.Server{Log: slog.New(slog.NewTextHandler(&log, nil))} // without a store of gates
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

// TestOutputIsLogged shows that output is logged only on request, and without secrets
// and control characters (S-31, S-47).
func TestOutputIsLogged(t *testing.T) {
	d := startServer(t, func(w *serverSetup) { w.server.Guard = guard(t, tenants) })
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

// FuzzPayload sends bodies to a closed gate: it refuses the check, or the body.
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
		if len(want.Metadata["gate"]) > 512 { // also if the gate is named elsewhere
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
