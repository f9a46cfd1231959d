package tester_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/rollout/tester"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

// A stuck connection takes nothing: what is written waits for its deadline.
type stuck struct {
	header http.Header

	mu       sync.Mutex
	deadline time.Time
}

func (s *stuck) Header() http.Header { return s.header }
func (s *stuck) WriteHeader(int)     {}
func (s *stuck) FlushError() error   { _, err := s.Write(nil); return err }

func (s *stuck) SetWriteDeadline(at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = at
	return nil
}

func (s *stuck) Write([]byte) (int, error) {
	s.mu.Lock()
	left := time.Until(s.deadline)
	if s.deadline.IsZero() {
		left = 24 * time.Hour
	}
	s.mu.Unlock()
	time.Sleep(left) // of the bubble's clock
	return 0, os.ErrDeadlineExceeded
}

// TestStuckReader has readers that take nothing cut off after half a minute.
func TestStuckReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gates, err := gate.Open(gate.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer gates.Close()
		runs, err := run.Open(run.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer runs.Shutdown(t.Context())
		for range 50 {
			k := api.Key{Kind: api.KindGate, Namespace: "test", Name: "podinfo", Gate: time.Now().String()}
			if _, err := gates.Open(k, api.Change{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		s := &tester.Server{Gates: gates, Runs: runs}
		for _, path := range []string{"/api/v1/watch", "/api/v1/gates", "/healthz"} {
			began := time.Now()
			s.Handler().ServeHTTP(&stuck{header: http.Header{}}, httptest.NewRequest(http.MethodGet, path, nil))
			if took := time.Since(began); took != 30*time.Second {
				t.Errorf("%s: cut off after %s", path, took)
			}
		}
	})
}

// A timed answer remembers its deadline.
type timed struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (a *timed) SetWriteDeadline(at time.Time) error { a.deadline = at; return nil }

// An expecting answer is to one who waits to be told that a body may come.
type expecting struct {
	*timed
	t     *testing.T
	begun bool
}

func (a *expecting) SetWriteDeadline(at time.Time) error {
	if !a.begun && !at.IsZero() {
		a.t.Error("what tells to go on has the deadline of the answer before")
	}
	a.begun = true
	return nil
}

// TestDeadlineOfEachAnswer has the deadline of an answer not be that of the next
// on the same connection.
func TestDeadlineOfEachAnswer(t *testing.T) {
	handler := newServer(t).Handler()
	a := &timed{ResponseRecorder: httptest.NewRecorder()}
	long := payload("long", `{"type":"bash","cmd":"head -c 5000 /dev/zero | tr '\\0' x","returnCmdOutput":"true"}`)
	handler.ServeHTTP(a, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(long)))
	if a.deadline.IsZero() {
		t.Error("a long answer has no deadline")
	}
	a.deadline = time.Now()
	handler.ServeHTTP(a, httptest.NewRequest(http.MethodPost, "/gate/check", strings.NewReader("{}")))
	if time.Until(a.deadline) < time.Second {
		t.Error("it holds for the next")
	}
	request := httptest.NewRequest(http.MethodPost, "/gate/approve", strings.NewReader("{}"))
	request.Header.Set("Expect", "100-continue")
	handler.ServeHTTP(&expecting{timed: a, t: t}, request)
}
