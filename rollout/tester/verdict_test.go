package tester_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/rollout/tester"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

// post posts a payload and returns status and body of the answer.
func post(t *testing.T, ctx context.Context, url, body string, header ...string) (int, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return status, text
}

// payload returns one for a canary of a name of its own.
func payload(name string, metadata string) string {
	return fmt.Sprintf(`{"name":%q,"namespace":"test","phase":"Progressing","checksum":"a","metadata":%s}`, name, metadata)
}

// counting returns a command that appends a line to a file, and what counts them.
func counting(t *testing.T) (command string, count func() int) {
	file := filepath.Join(t.TempDir(), "count")
	return "echo x >> " + file, func() int {
		text, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Count(string(text), "x")
	}
}

// until waits until a run of a canary is as wanted.
func until(t *testing.T, s *tester.Server, name string, wanted func(api.Run) bool) api.Run {
	t.Helper()
	changes := s.Runs.Watch(t.Context())
	for {
		for _, r := range s.Runs.Runs(api.Filter{Name: name}) {
			if wanted(r) {
				return r
			}
		}
		if _, more := <-changes; !more {
			t.Fatal("the desk has ended")
		}
	}
}

func is(state api.RunState) func(api.Run) bool {
	return func(r api.Run) bool { return r.State == state }
}

// TestVerdictIsKept has a test pass after its caller left, and asks again: without
// a checksum and after a while the test starts anew, else the answer says when the
// run ended.
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
			var later atomic.Int64
			s := newServerOf(t, run.Config{Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }})
			handler := s.Handler()
			command, count := counting(t)
			body := fmt.Sprintf(`{"name":"app","namespace":"test","phase":"Progressing","checksum":%q,"metadata":{"type":"bash","cmd":"%s; echo fine"%s}}`, test.checksum, command, test.more)
			ask := func(ctx context.Context) *httptest.ResponseRecorder {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body)))
				return w
			}
			gone, leave := context.WithCancel(t.Context())
			leave()
			ask(gone)
			first := until(t, s, "app", is(api.Succeeded))
			later.Store(int64(test.later))
			w := ask(t.Context())
			ended := first.Ended.Format(time.RFC3339)
			if want := strings.Replace(test.want, "TIME", ended, 1); w.Code != http.StatusOK || w.Body.String() != want {
				t.Errorf("got %d %q, want %q", w.Code, w.Body, want)
			}
			if got := w.Header().Get("Headgate-Run-Ended"); (got == ended) != test.header || (got == "") == test.header {
				t.Errorf("got %q", got)
			}
			if n := count(); n != test.processes {
				t.Errorf("%d processes", n)
			}
		})
	}
}

// TestFailureText bounds the text of a failure as callers do (C-7, S-29).
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

// A late answer is written when it is let.
type late struct {
	*httptest.ResponseRecorder
	writing, let chan struct{}
}

func (l late) Write(p []byte) (int, error) {
	close(l.writing)
	<-l.let
	return l.ResponseRecorder.Write(p)
}

// TestVerdictReceivedDuringShutdown has a verdict that a caller receives while the
// test runner shuts down not be given once more by the next one.
func TestVerdictReceivedDuringShutdown(t *testing.T) {
	for name, inTime := range map[string]bool{"in time": true, "too late": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := newServerOf(t, run.Config{Dir: dir})
				w := late{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
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
				if err := <-ended; err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if all := newServerOf(t, run.Config{Dir: dir}).Runs.Runs(api.Filter{}); len(all) != 1 || all[0].Delivered != inTime {
					t.Errorf("%+v", all)
				}
			})
		})
	}
}

// A broken connection takes the head of an answer and nothing else.
type broken struct{ header http.Header }

func (b broken) Header() http.Header       { return b.header }
func (b broken) WriteHeader(int)           {}
func (b broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestAnswerThatIsNotReceived keeps a verdict whose answer could not be written,
// or whose caller was gone by then.
func TestAnswerThatIsNotReceived(t *testing.T) {
	s := newServer(t)
	handler := s.Handler()
	command, count := counting(t)
	body := payload("lost", fmt.Sprintf(`{"type":"bash","cmd":"%s; exit 3"}`, command))
	ask := func(w http.ResponseWriter, ctx context.Context) {
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body)))
	}
	ask(broken{http.Header{}}, t.Context())
	gone, leave := context.WithCancel(t.Context())
	leave()
	ask(httptest.NewRecorder(), gone)
	last := httptest.NewRecorder()
	ask(last, t.Context())
	if last.Code != http.StatusUnprocessableEntity {
		t.Errorf("status %d", last.Code)
	}
	if n := count(); n != 1 {
		t.Errorf("%d processes", n)
	}
	if r := s.Runs.Runs(api.Filter{Name: "lost"}); len(r) != 1 || !r[0].Delivered {
		t.Errorf("%+v", r)
	}
}
