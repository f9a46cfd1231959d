package notify_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/notify"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))

func event(name, severity, reason, message string) source.Event {
	return source.Event{
		InvolvedObject: source.ObjectReference{APIVersion: "source.toolkit.fluxcd.io/v1", Kind: "GitRepository", Namespace: "default", Name: name},
		Severity:       severity, Timestamp: start, Message: message, Reason: reason, Controller: "headgate",
		Metadata: map[string]string{"source.toolkit.fluxcd.io/revision": "main@sha1:0", "source.toolkit.fluxcd.io/digest": "sha256:0"},
	}
}

// A recorder is a receiver that records its requests.
type recorder struct {
	*httptest.Server
	answer http.HandlerFunc // nil for 200

	mu     sync.Mutex
	bodies []string
	header []http.Header
}

func newRecorder(t *testing.T, answer http.HandlerFunc) *recorder {
	t.Helper()
	r := &recorder{answer: answer}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Server.Close)
	return r
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	r.bodies = append(r.bodies, string(body))
	r.header = append(r.header, req.Header)
	r.mu.Unlock()
	if r.answer != nil {
		r.answer(w, req)
	}
}

// messages returns the messages of the received events, in order.
func (r *recorder) messages(t *testing.T) string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, body := range r.bodies {
		var e source.Event
		must(t, json.Unmarshal([]byte(body), &e))
		all = append(all, e.Message)
	}
	return strings.Join(all, " ")
}

// startDispatcher starts a dispatcher whose timeout is so long that a slow machine does not matter.
func startDispatcher(t *testing.T, c notify.Config) *notify.Dispatcher {
	t.Helper()
	c.Timeout = time.Hour
	d, err := notify.Start(c)
	must(t, err)
	return d
}

func closeDispatcher(t *testing.T, d *notify.Dispatcher) {
	t.Helper()
	testenv.Equal(t, d.Close(t.Context()), nil)
}

// The body is byte for byte that of the reference.
func TestFormat(t *testing.T) {
	server := newRecorder(t, nil)
	d := startDispatcher(t, notify.Config{Receivers: []notify.Receiver{{URL: server.URL + "/x?y=z"}}, Instance: "host-1"})
	e := event("app", "info", "NewArtifact", "stored artifact for commit '<a>'")
	e.Metadata["event.toolkit.fluxcd.io/team"] = "a"
	d.Emit(e)
	bare := event("app", "error", "GitOperationFailed", "no")
	bare.Metadata = nil
	d.Emit(bare)
	closeDispatcher(t, d)
	want := `{"involvedObject":{"apiVersion":"source.toolkit.fluxcd.io/v1","kind":"GitRepository","namespace":"default","name":"app"},` +
		`"severity":"info","timestamp":"2026-01-02T02:04:05Z","message":"stored artifact for commit '\u003ca\u003e'","reason":"NewArtifact",` +
		`"metadata":{"event.toolkit.fluxcd.io/team":"a","source.toolkit.fluxcd.io/digest":"sha256:0","source.toolkit.fluxcd.io/revision":"main@sha1:0"},` +
		`"reportingController":"headgate","reportingInstance":"host-1"}`
	testenv.Equal(t, server.bodies[0], want)
	if got := server.header[0]; got.Get("Content-Type") != "application/json" || got.Get("User-Agent") != "headgate" {
		t.Error(got)
	}
	if got := server.bodies[1]; strings.Contains(got, "metadata") {
		t.Error(got)
	}
}

func TestSeverity(t *testing.T) {
	for severity, want := range map[string]string{"": "b c", "info": "b c", "error": "c"} {
		server := newRecorder(t, nil)
		d := startDispatcher(t, notify.Config{Receivers: []notify.Receiver{{URL: server.URL, Severity: severity}}})
		for i, s := range []string{"trace", "info", "error", "loud"} {
			d.Emit(event("app", s, "x", string(rune('a'+i))))
		}
		closeDispatcher(t, d)
		testenv.Equal(t, server.messages(t), want, "%q", severity)
	}
}

// TestAnswers checks that the status of an answer decides whether an event is retried, dropped or lost, and that the next
// event contains the number of lost events.
func TestAnswers(t *testing.T) {
	for _, test := range []struct {
		status  int
		reports string // of the first event
		posts   int
		lost    string // in the metadata of the second event
	}{
		{202, "", 2, ""},
		{429, "", 2, ""}, // the receiver already has the event
		{403, "lost: tell event receiver URL of NewArtifact of GitRepository/default/app, it is lost: post to URL: status 403 Forbidden: no; way", 2, "1"},
		{503, "tell event receiver URL of NewArtifact of GitRepository/default/app, it is tried again: post to URL: status 503", 3, ""},
	} {
		first := true
		server := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
			if first {
				first = false
				w.WriteHeader(test.status)
				io.WriteString(w, "no\n\x1b[31mway")
			}
		})
		var reports []string
		var delivered []string
		d := startDispatcher(t, notify.Config{Receivers: []notify.Receiver{{URL: server.URL + "/s3cret"}},
			Report: func(err error, lost bool) {
				reports = append(reports, map[bool]string{true: "lost: "}[lost]+err.Error())
			},
			Delivered: func(e source.Event) { delivered = append(delivered, e.Message) },
		})
		d.Emit(event("app", "info", "NewArtifact", "a"))
		d.Emit(event("app", "info", "NewArtifact", "b"))
		err := d.Close(t.Context())
		got := strings.Join(reports, "|")
		want := strings.ReplaceAll(test.reports, "URL", server.URL)
		if !strings.Contains(got, want) || (got == "") != (want == "") || len(server.bodies) != test.posts || strings.Contains(got+fmt.Sprint(err), "s3cret") {
			t.Errorf("%d: %d posts, %q, want %q", test.status, len(server.bodies), got, want)
		}
		if (err != nil) != (test.lost != "") || len(delivered) != 2-len(test.lost) {
			t.Errorf("%d: %v, %v", test.status, err, delivered)
		}
		var last source.Event
		if err := json.Unmarshal([]byte(server.bodies[len(server.bodies)-1]), &last); err != nil || last.Metadata[notify.LostKey] != test.lost || len(last.Metadata) != 2+len(test.lost) {
			t.Errorf("%d: %v, %v", test.status, last.Metadata, err)
		}
	}
}

var must = testenv.Must
