package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/access"
	"github.com/headgate-io/headgate/source/serve/api"
	"github.com/headgate-io/headgate/source/serve/hook"
	"github.com/headgate-io/headgate/source/serve/journal"
	"github.com/headgate-io/headgate/source/serve/server"
)

// Secrets that must not be answered.
const (
	password = "c4n4ry-password"
	sasToken = "c4n4ry-signature"
)

// A rig is a server of a controller that runs, whose origins are at hand.
type rig struct {
	*testing.T
	server  *server.Server
	front   *httptest.Server
	journal *journal.Journal
	log     *lines
	desired chan serve.Desired
	stop    context.CancelFunc
	ended   chan error

	mu       sync.Mutex
	revision map[string]int   // by name
	broken   map[string]error // by name
	held     map[string]chan struct{}
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Follow implements serve.Feed.
func (r *rig) Follow(ctx context.Context, set func(serve.Desired)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case d := <-r.desired:
			set(d)
		}
	}
}

// documents are the objects of a rig: two namespaces, all kinds that it needs.
const documents = `
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: app, namespace: shop}
spec: {url: "https://ci:` + password + `@git.example.org/app.git", interval: 1h}
---
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: site, namespace: docs}
spec: {url: "https://git.example.org/site.git", interval: 1h}
---
apiVersion: source.headgate.dev/v1
kind: Bucket
metadata: {name: assets, namespace: shop}
spec: {provider: azure, endpoint: "https://a.example.org/?sig=` + sasToken + `", bucketName: assets, interval: 1h}
`

const callers = `
tokens:
- {name: all, token: token-of-all-0001, may: [fetch, read, change, debug]}
- {name: shop, token: token-of-shop-001, namespaces: [shop]}
- {name: reader, token: token-of-reader-1, may: [read]}
- {name: fetcher, token: token-of-fetcher1, may: [fetch]}
`

func objects(t *testing.T, text string) []source.Object {
	t.Helper()
	set := new(source.Set)
	if err := set.Decode("test", strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return set.Objects
}

// newRig returns a rig whose objects have run; with guarded callers have to say who they are.
func newRig(t *testing.T, guarded bool, adjust ...func(*rig)) *rig {
	t.Helper()
	r := &rig{T: t, log: new(lines), desired: make(chan serve.Desired, 1), ended: make(chan error, 1), revision: map[string]int{}, broken: map[string]error{}}
	dir := t.TempDir()
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: filepath.Join(dir, "store"), BaseURL: "http://localhost"})
	if err != nil {
		t.Fatal(err)
	}
	if r.journal, err = journal.Open(journal.Config{Dir: filepath.Join(dir, "events")}); err != nil {
		t.Fatal(err)
	}
	c := &serve.Controller{Feed: r, Store: store, Ledger: &source.Ledger{Dir: filepath.Join(dir, "ledger")}, Origin: r.origin, Scrub: -1}
	r.server = &server.Server{
		Controller: c, Store: store, Journal: r.journal, Hooks: &hook.Receiver{}, Keepalive: 20 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if guarded {
		name := filepath.Join(dir, "callers.yaml")
		if err := os.WriteFile(name, []byte(callers), 0o600); err != nil {
			t.Fatal(err)
		}
		if r.server.Guard, err = access.Open(access.Config{File: name}); err != nil {
			t.Fatal(err)
		}
	}
	c.Observe = r.server.ObserveRun
	c.Emit = func(e source.Event) { r.journal.Append(e); r.server.ObserveEvent(e) }
	for _, f := range adjust {
		f(r)
	}
	r.front = httptest.NewServer(r.server.Handler())
	r.desired <- serve.Desired{Objects: objects(t, documents)}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		r.server.Shutdown(context.Background())
		r.front.Close()
		cancel()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		r.journal.Close()
		store.Close()
	})
	for _, ref := range []source.Reference{{Kind: "GitRepository", Namespace: "shop", Name: "app"}, {Kind: "GitRepository", Namespace: "docs", Name: "site"}, {Kind: "Bucket", Namespace: "shop", Name: "assets"}} {
		r.settled(ref)
	}
	return r
}

var app = source.Reference{Kind: "GitRepository", Namespace: "shop", Name: "app"}

// settled waits for the first run of an object.
func (r *rig) settled(ref source.Reference) {
	r.Helper()
	for {
		if _, err := r.server.Controller.Wait(r.Context(), ref, 1); err == nil {
			return
		} else if r.Context().Err() != nil {
			r.Fatal(err)
		}
	}
}

// push has the origin of an object have something new.
func (r *rig) push(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.revision[name]++
}

// fail has the origin of an object fail, or not.
func (r *rig) fail(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken[name] = err
}

// hold has the origin of an object not answer until it is released.
func (r *rig) hold(name string) (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := make(chan struct{})
	r.held = map[string]chan struct{}{name: held}
	return func() { close(held) }
}

func (r *rig) origin(obj source.Object, _ source.Env) (source.Origin, error) {
	return upstream{r, obj.Head().Metadata.Name}, nil
}

// An upstream is the origin of an object of a rig.
type upstream struct {
	*rig
	name string
}

func (u upstream) Resolve(ctx context.Context, _ source.State) (source.Revision, source.State, error) {
	u.mu.Lock()
	held := u.held[u.name]
	u.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	n := u.revision[u.name]
	return source.Revision{ID: fmt.Sprintf("main@sha1:%040d", n), File: fmt.Sprintf("%040d.tar.gz", n)}, nil, u.broken[u.name]
}

func (u upstream) Open(_ context.Context, rev source.Revision) (source.Content, error) {
	return content{rev}, nil
}

type content struct{ source.Revision }

func (content) Verify(context.Context) (source.Verification, error) {
	return source.Verification{}, nil
}
func (content) Close() error { return nil }

func (c content) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	report, err := artifact.Pack(ctx, w, fstest.MapFS{
		"README.md":              {Data: []byte(c.ID)},
		"bin/run":                {Data: []byte("#!/bin/sh\n"), Mode: 0o755},
		"bin/<b>\"name\"&é.html": {Data: []byte("x")},
	})
	return source.Report{Report: report}, err
}

// ask sends a request and returns status, header and body of the answer.
func (r *rig) ask(method, path, token, body string, header ...string) (int, http.Header, string) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, r.front.URL+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

// client returns a client of the API.
func (r *rig) client(token string) *api.Client { return &api.Client{Base: r.front.URL, Token: token} }

var errDown = errors.New("the upstream is down")
