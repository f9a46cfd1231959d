package tester_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester"
	"github.com/headgate-io/headgate/rollout/tester/gate"
	"github.com/headgate-io/headgate/rollout/tester/run"
	"github.com/headgate-io/headgate/rollout/tester/task"
)

// A testServer is a serving test runner, set up as by the command.
type testServer struct {
	*tester.Server
	t      *testing.T
	url    string
	token  string // bearer token of calls; "" for none
	client *http.Client
	log    *logBuffer
	end    func() error // ends it gracefully, once
}

// A serverSetup is what a test can set before a server starts.
type serverSetup struct {
	tester.Endpoint
	Runs   run.Config
	server *tester.Server
}

// startServer serves at a port of its own until the test ends.
func startServer(t *testing.T, set func(*serverSetup)) *testServer {
	t.Helper()
	d := &testServer{t: t, log: &logBuffer{}, client: client, Server: &tester.Server{}}
	d.Log = slog.New(slog.NewJSONHandler(d.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	d.Tools = task.Tools{Env: []string{"PATH=" + os.Getenv("PATH")}, Grace: 100 * time.Millisecond}
	w := serverSetup{Endpoint: tester.Endpoint{Addr: "127.0.0.1:0", Grace: 20 * time.Second}, Runs: run.Config{Observe: d.ObserveRun}, server: d.Server}
	if set != nil {
		set(&w)
	}
	var err error
	if d.Gates, err = gate.Open(gate.Config{Dir: w.Runs.Dir}); err != nil {
		t.Fatal(err)
	}
	if d.Server.Runs, err = run.Open(w.Runs); err != nil {
		t.Fatal(err)
	}
	l, err := d.Listen(w.Endpoint)
	must(t, err)
	d.url = l.URL
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- l.Serve(ctx) }()
	d.end = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		testenv.Equal(t, d.end(), nil)
		testenv.Equal(t, d.Gates.Close(), nil)
	})
	return d
}

// A reply is the answer to a request.
type reply struct {
	status int
	body   string
	header http.Header
}

// client follows no redirects, and keeps no connections open.
var client = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport:     &http.Transport{DisableKeepAlives: true},
}

// call makes a request, with headers as names and values.
func (d *testServer) call(method, path, body string, header ...string) reply {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, strings.NewReader(body))
	must(d.t, err)
	if d.token != "" {
		req.Header.Set("Authorization", "Bearer "+d.token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if req.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	res, err := d.client.Do(req)
	if err != nil {
		return reply{body: err.Error()}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Errorf("%s %s: %v", method, path, err)
	}
	return reply{res.StatusCode, string(text), res.Header}
}

// post posts JSON.
func (d *testServer) post(path, body string, header ...string) reply {
	d.t.Helper()
	return d.call(http.MethodPost, path, body, append([]string{"Content-Type", "application/json"}, header...)...)
}

// expect checks the status, and that the body contains part.
func (r reply) expect(t *testing.T, what string, status int, part string) {
	t.Helper()
	if r.status != status || !strings.Contains(r.body, part) {
		t.Errorf("%s: %d %q, want %d %q", what, r.status, r.body, status, part)
	}
}

// A logBuffer keeps the log, and lets a test wait for a line.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // closed when something was logged
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.more != nil {
		close(b.more)
		b.more = nil
	}
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// wait waits until the log contains all parts.
func (b *logBuffer) wait(t *testing.T, parts ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		b.mu.Lock()
		if b.more == nil {
			b.more = make(chan struct{})
		}
		text, more := b.text.String(), b.more
		b.mu.Unlock()
		missing := ""
		for _, part := range parts {
			if !strings.Contains(text, part) {
				missing = part
			}
		}
		if missing == "" {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			t.Fatalf("%q is not logged:\n%s", missing, text)
		}
	}
}
