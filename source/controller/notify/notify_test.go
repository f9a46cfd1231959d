package notify_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller/notify"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))

func event(name, severity, reason, message string) source.Event {
	return source.Event{
		InvolvedObject: source.ObjectReference{APIVersion: "source.toolkit.fluxcd.io/v1", Kind: "GitRepository", Namespace: "default", Name: name},
		Severity:       severity, Timestamp: start, Message: message, Reason: reason, Controller: "headgate",
		Metadata: map[string]string{"source.toolkit.fluxcd.io/revision": "main@sha1:0", "source.toolkit.fluxcd.io/digest": "sha256:0"},
	}
}

// A recorder is a receiver that keeps what it is told.
type recorder struct {
	*httptest.Server
	answer http.HandlerFunc // nil for 200

	mu     sync.Mutex
	bodies []string
	header []http.Header
}

func record(t *testing.T, answer http.HandlerFunc) *recorder {
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

// told returns the messages of what was told, in order.
func (r *recorder) told(t *testing.T) string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, body := range r.bodies {
		var e source.Event
		if err := json.Unmarshal([]byte(body), &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Message)
	}
	return strings.Join(all, " ")
}

// begin starts a dispatcher whose posts may take as long as this machine needs.
func begin(t *testing.T, c notify.Config) *notify.Dispatcher {
	t.Helper()
	c.Timeout = time.Hour
	d, err := notify.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func end(t *testing.T, d *notify.Dispatcher) {
	t.Helper()
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// The format is the reference's, to the byte.
func TestFormat(t *testing.T) {
	server := record(t, nil)
	d := begin(t, notify.Config{Receivers: []notify.Receiver{{URL: server.URL + "/x?y=z"}}, Instance: "host-1"})
	e := event("app", "info", "NewArtifact", "stored artifact for commit '<a>'")
	e.Metadata["event.toolkit.fluxcd.io/team"] = "a"
	d.Emit(e)
	long := event("app", "error", "GitOperationFailed", strings.Repeat("ü", 30000))
	long.Metadata = nil
	d.Emit(long)
	end(t, d)
	want := `{"involvedObject":{"apiVersion":"source.toolkit.fluxcd.io/v1","kind":"GitRepository","namespace":"default","name":"app"},` +
		`"severity":"info","timestamp":"2026-01-02T02:04:05Z","message":"stored artifact for commit '\u003ca\u003e'","reason":"NewArtifact",` +
		`"metadata":{"event.toolkit.fluxcd.io/team":"a","source.toolkit.fluxcd.io/digest":"sha256:0","source.toolkit.fluxcd.io/revision":"main@sha1:0"},` +
		`"reportingController":"headgate","reportingInstance":"host-1"}`
	if server.bodies[0] != want {
		t.Errorf("got  %s\nwant %s", server.bodies[0], want)
	}
	if got := server.header[0]; got.Get("Content-Type") != "application/json" || got.Get("User-Agent") != "headgate" {
		t.Error(got)
	}
	if err := json.Unmarshal([]byte(server.bodies[1]), &e); err != nil || len(e.Message) > 39000 || len(e.Message) < 38990 || !strings.HasSuffix(e.Message, "ü…") {
		t.Errorf("%v: %d bytes", err, len(e.Message))
	}
}

func TestSeverity(t *testing.T) {
	for severity, want := range map[string]string{"": "b c", "info": "b c", "error": "c"} {
		server := record(t, nil)
		d := begin(t, notify.Config{Receivers: []notify.Receiver{{URL: server.URL, Severity: severity}}})
		for i, s := range []string{"trace", "info", "error", "loud"} {
			d.Emit(event("app", s, "x", string(rune('a'+i))))
		}
		end(t, d)
		if got := server.told(t); got != want {
			t.Errorf("%q: %q, want %q", severity, got, want)
		}
	}
}

// An answer says whether the event is repeated, dropped or lost. Redirects go to
// the same origin only.
func TestAnswers(t *testing.T) {
	elsewhere := record(t, nil)
	for _, test := range []struct {
		name    string
		status  int
		header  string
		reports string // of the event
		posts   int
	}{
		{"accepted", 202, "", "", 1},
		{"duplicate", 429, "", "", 1},
		{"refused", 403, "", "it is lost: post to URL: status 403 Forbidden: no; way", 1},
		{"not implemented", 501, "", "it is lost: post to URL: status 501", 1},
		{"redirect elsewhere", 307, elsewhere.URL + "/s3cret", "status 307 Temporary Redirect, which leads to " + elsewhere.URL + ": give", 1},
		{"redirect", 308, "/there", "", 2},
		{"redirect that is no post any more", 303, "/there", "it is lost: post to URL: status 303", 1},
		{"failing", 503, "", "it is tried again: post to URL: status 503", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			first := true
			server := record(t, func(w http.ResponseWriter, r *http.Request) {
				if first {
					first = false
					w.Header().Set("Location", test.header)
					w.WriteHeader(test.status)
					io.WriteString(w, "no\n\x1b[31mway")
				}
			})
			var reports []string
			d := begin(t, notify.Config{Receivers: []notify.Receiver{{URL: server.URL + "/s3cret"}}, Report: func(err error) {
				reports = append(reports, err.Error())
				if test.status == 503 {
					return
				}
			}})
			d.Emit(event("app", "info", "NewArtifact", "a"))
			err := d.Close(t.Context())
			got := strings.Join(reports, "|")
			if strings.Contains(got, "s3cret") || strings.Contains(fmt.Sprint(err), "s3cret") {
				t.Errorf("leaks: %s, %v", got, err)
			}
			want := strings.ReplaceAll(test.reports, "URL", server.URL)
			if !strings.Contains(got, want) || (got == "") != (want == "") || len(server.bodies) != test.posts {
				t.Errorf("%d posts, %q, want %q", len(server.bodies), got, want)
			}
			if lost := new(notify.LostError); (err != nil) != strings.Contains(want, "status") && test.status != 503 || err != nil && (!errors.As(err, &lost) || lost.Events != 1) {
				t.Error(err)
			}
		})
	}
	if got := elsewhere.told(t); got != "" {
		t.Errorf("another origin was told %q", got)
	}
}

// Nobody waits for a receiver that hangs; what is dropped is counted, information before errors.
func TestReceiverHangs(t *testing.T) {
	goOn, came := make(chan struct{}), make(chan struct{}, 1000)
	slow := record(t, func(http.ResponseWriter, *http.Request) { came <- struct{}{}; <-goOn })
	quick := record(t, nil)
	var mu sync.Mutex
	var lost []error
	d := begin(t, notify.Config{Receivers: []notify.Receiver{{URL: slow.URL}, {URL: quick.URL}}, Report: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		lost = append(lost, err)
	}})
	d.Emit(event("app", "error", "x", "first"))
	<-came
	for i := range 300 {
		severity := "info"
		if i < 2 {
			severity = "error"
		}
		d.Emit(event("app", severity, "x", fmt.Sprint(i)))
	}
	close(goOn)
	err := d.Close(t.Context())
	if l := new(notify.LostError); !errors.As(err, &l) || l.Receiver != "event receiver "+slow.URL || l.Events != 44 {
		t.Error(err)
	}
	told := strings.Fields(slow.told(t))
	if len(told) != 257 || strings.Join(told[:4], " ") != "first 0 1 46" || told[256] != "299" {
		t.Errorf("%d: %v", len(told), told[:4])
	}
	var e source.Event
	if err := json.Unmarshal([]byte(slow.bodies[1]), &e); err != nil || e.Metadata[notify.LostKey] != "44" {
		t.Errorf("%v: %v", err, e.Metadata)
	}
	if e.Metadata = nil; json.Unmarshal([]byte(slow.bodies[2]), &e) != nil || e.Metadata[notify.LostKey] != "" {
		t.Error(e.Metadata)
	}
	if n := len(strings.Fields(quick.told(t))); n != 301 && len(lost) == 1 { // it may be slow as well
		t.Errorf("the other was told %d", n)
	}
}

// Retries follow after 1s, 2s, 4s … and end after 5m; the clock is synctest's.
func TestRetries(t *testing.T) {
	var tries []time.Duration
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		began = time.Now()
		var reports []string
		secrets := secretsFunc(func(ctx context.Context, namespace, name string) (source.Secret, error) {
			tries = append(tries, time.Since(began))
			return source.Secret{}, errors.New("not now")
		})
		d := begin(t, notify.Config{Receivers: []notify.Receiver{{SecretRef: &notify.SecretRef{Name: "events"}}}, Secrets: secrets, Report: func(err error) { reports = append(reports, err.Error()) }})
		d.Emit(event("app", "info", "NewArtifact", "a"))
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		err := d.Close(t.Context())
		if err == nil || len(reports) != 2 || !strings.HasSuffix(reports[0], "tell event receiver of secret default/events of NewArtifact of GitRepository/default/app, it is tried again: secretRef: not now") || !strings.Contains(reports[1], "it is lost") {
			t.Error(err, reports)
		}
	})
	if got := fmt.Sprint(tries[:6], len(tries)); got != "[0s 1s 3s 7s 15s 31s] 14" {
		t.Error(got)
	}
}

type secretsFunc func(ctx context.Context, namespace, name string) (source.Secret, error)

func (f secretsFunc) Secret(ctx context.Context, namespace, name string) (source.Secret, error) {
	return f(ctx, namespace, name)
}

func (f secretsFunc) PullSecrets(context.Context, string, string) ([]source.Secret, error) {
	return nil, errors.New("none")
}
