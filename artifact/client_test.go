package artifact_test

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

const content = "0123456789abcdefghijklmnopqrstuvwxyz"

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// A scriptedServer is a server that answers the n-th request with the n-th handler; the last handler
// answers all further requests.
type scriptedServer struct {
	*httptest.Server
	answers  []http.HandlerFunc
	mu       sync.Mutex
	requests []*http.Request
}

func newScriptedServer(t *testing.T, answers ...http.HandlerFunc) *scriptedServer {
	t.Helper()
	s := &scriptedServer{answers: answers}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP implements [http.Handler].
func (s *scriptedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	n := len(s.requests)
	s.mu.Unlock()
	s.answers[min(n, len(s.answers))-1](w, r)
}

// pipeListener is an in-memory network with one server, inside the bubble of a test: time advances only
// while nothing is being transferred.
type pipeListener chan net.Conn

func (p pipeListener) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

// Accept implements [net.Listener].
func (p pipeListener) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

// Close implements [net.Listener].
func (p pipeListener) Close() error { close(p); return nil }

// Addr implements [net.Listener].
func (p pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (s *scriptedServer) received() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

// whole answers with the whole body, as a file server does.
func whole(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "a.tar.gz", time.Time{}, strings.NewReader(body))
	}
}

// tagged adds an ETag to an answer.
func tagged(etag string, answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", etag)
		answer(w, r)
	}
}

// part answers with body as the part of the content that begins at from.
func part(from int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, from+len(body)-1, from+len(body)))
		w.WriteHeader(http.StatusPartialContent)
		io.WriteString(w, body)
	}
}

// broken announces the whole body, and breaks the connection after n bytes.
func broken(body string, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		io.WriteString(w, body[:n])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

// stalled sends n bytes of body and then nothing until the client disconnects.
func stalled(body string, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		if n > 0 {
			io.WriteString(w, body[:n])
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	}
}

// endless never stops sending.
func endless(w http.ResponseWriter, _ *http.Request) {
	for chunk := make([]byte, 1<<15); ; {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// fetch opens a with c, reads it, and checks that no spool stays open.
func fetch(t *testing.T, c *artifact.Client, a artifact.Artifact) (string, error) {
	t.Helper()
	c.Temp = testenv.NewTempFiles(t).Create
	r, err := c.Open(t.Context(), a)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}

func TestClientFetches(t *testing.T) {
	for _, algorithm := range []artifact.Algorithm{artifact.SHA256, artifact.SHA384, artifact.SHA512, artifact.BLAKE3} {
		s, _, _ := serve(t, artifact.StoreConfig{Algorithm: algorithm})
		a := put(t, s, object, "a.tar.gz", content)
		var c artifact.Client
		r, err := c.Open(t.Context(), a)
		must(t, err)
		if b, err := io.ReadAll(r); err != nil || string(b) != content {
			t.Errorf("%s: %q, %v", algorithm, b, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestClientRetries(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"unavailable":            status(503),
		"too many requests":      status(429, "Retry-After", "3600"),
		"busy until a date":      status(503, "Retry-After", "Fri, 01 Jan 2999 00:00:00 GMT"),
		"nonsense to wait for":   status(503, "Retry-After", "-5"),
		"timeout of the request": status(408),
		"refused at once":        func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"break in the middle":    broken(content, 10),
		"changed meanwhile":      broken("something else that is long enough..", 30),
		"silent end":             func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, content[:10]) },
	} {
		server := newScriptedServer(t, answer, answer, whole(content))
		got, err := fetch(t, &artifact.Client{Pause: -1}, artifact.Artifact{URL: server.URL + "/a.tar.gz", Digest: digestOf(content), Size: int64(len(content))})
		if err != nil || got != content || len(server.received()) != 3 {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestClientResumes(t *testing.T) {
	const other = "something else that is long enough.."
	all := tagged(`"e"`, whole(content))
	for name, test := range map[string]struct {
		answers []http.HandlerFunc
		ranges  []string // of the requests
	}{
		"break in the middle":    {[]http.HandlerFunc{tagged(`"e"`, broken(content, 10)), all}, []string{"", "bytes=10-"}},
		"breaks again and again": {[]http.HandlerFunc{tagged(`"e"`, broken(content, 10)), part(10, content[10:20]), all}, []string{"", "bytes=10-", "bytes=20-"}},
		"unavailable meanwhile":  {[]http.HandlerFunc{tagged(`"e"`, broken(content, 10)), status(503), all}, []string{"", "bytes=10-", "bytes=10-"}},
		"changed meanwhile":      {[]http.HandlerFunc{tagged(`"old"`, broken(other, 10)), all}, []string{"", "bytes=10-"}},
		"no validator":           {[]http.HandlerFunc{broken(content, 10), all}, []string{"", ""}},
		"weak validator":         {[]http.HandlerFunc{tagged(`W/"e"`, broken(content, 10)), all}, []string{"", ""}},
		"pieces of two files":    {[]http.HandlerFunc{tagged(`"e"`, broken(other, 10)), part(10, content[10:]), all}, []string{"", "bytes=10-", ""}},
		"another place":          {[]http.HandlerFunc{tagged(`"e"`, broken(content, 10)), part(5, content[5:]), all}, []string{"", "bytes=10-", ""}},
		"cannot continue":        {[]http.HandlerFunc{tagged(`"e"`, broken(content, 10)), status(416), all}, []string{"", "bytes=10-", ""}},
		"silent end": {[]http.HandlerFunc{tagged(`"e"`, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, content[:10]) }), all},
			[]string{"", "bytes=10-"}},
	} {
		server := newScriptedServer(t, test.answers...)
		got, err := fetch(t, &artifact.Client{Pause: -1}, artifact.Artifact{URL: server.URL + "/a.tar.gz", Digest: digestOf(content), Size: int64(len(content))})
		if err != nil || got != content {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		var ranges []string
		for _, r := range server.received() {
			ranges = append(ranges, r.Header.Get("Range"))
			if (r.Header.Get("Range") == "") != (r.Header.Get("If-Range") == "") {
				t.Errorf("%s: Range %q with If-Range %q", name, r.Header.Get("Range"), r.Header.Get("If-Range"))
			}
		}
		if !slices.Equal(ranges, test.ranges) {
			t.Errorf("%s: requests for ranges %q, want %q", name, ranges, test.ranges)
		}
	}
	server := newScriptedServer(t, tagged(`"e"`, broken(content, 10)), part(10, content[10:]+"more"))
	_, err := fetch(t, &artifact.Client{Pause: -1, MaxBytes: 36}, artifact.Artifact{URL: server.URL + "/a.tar.gz", Digest: digestOf(content)})
	if _, limited := errors.AsType[*artifact.LimitError](err); !limited {
		t.Errorf("pieces that are too large together: %v", err)
	}
}

func TestClientGivesUp(t *testing.T) {
	corrupt := func(err error) bool { var d *artifact.DigestError; return errors.As(err, &d) }
	limited := func(err error) bool { var l *artifact.LimitError; return errors.As(err, &l) }
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	says := func(text string) func(error) bool {
		return func(err error) bool { return strings.Contains(err.Error(), text) }
	}
	tests := map[string]struct {
		answer   http.HandlerFunc
		client   artifact.Client
		size     int64
		want     func(error) bool
		requests int
	}{
		"not found":           {answer: status(404), want: is(fs.ErrNotExist), requests: 1},
		"gone":                {answer: status(410), want: is(fs.ErrNotExist), requests: 1},
		"unauthorised":        {answer: status(401), want: is(fs.ErrPermission), requests: 1},
		"forbidden":           {answer: status(403), want: is(fs.ErrPermission), requests: 1},
		"other refusal":       {answer: status(418), want: says("418"), requests: 1},
		"partial unasked":     {answer: status(206), want: says("206"), requests: 1},
		"always unavailable":  {answer: status(503), want: says("after 5 attempts: the server answers 503"), requests: 5},
		"fewer attempts":      {answer: status(503), client: artifact.Client{Attempts: 2}, want: says("503"), requests: 2},
		"one attempt":         {answer: status(503), client: artifact.Client{Attempts: 1}, want: says("503"), requests: 1},
		"always broken":       {answer: broken(content, 10), want: is(io.ErrUnexpectedEOF), requests: 5},
		"other content":       {answer: whole(content + "x"), want: corrupt, requests: 1},
		"empty":               {answer: whole(""), want: corrupt, requests: 1},
		"announced too large": {answer: whole(content), client: artifact.Client{MaxBytes: 35}, want: limited, requests: 1},
		"endless":             {answer: endless, client: artifact.Client{MaxBytes: 1 << 20}, want: limited, requests: 1},
		"endless, known size": {answer: endless, size: 1 << 17, want: says("more than the 131072 bytes"), requests: 1},
		"larger than it says": {answer: whole(content), size: 35, want: says("more than the 35 bytes"), requests: 1},
		"redirect loop":       {answer: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/again", http.StatusFound) }, want: says("redirect refused: more than five"), requests: 6},
		"redirect to a file":  {answer: status(302, "Location", "file:///etc/passwd"), want: says("redirect refused"), requests: 1},
		"redirect to ftp":     {answer: status(302, "Location", "ftp://127.0.0.1/a"), want: says("redirect refused"), requests: 1},
		"redirect to nowhere": {answer: status(302), want: says("302"), requests: -1},
		"not allowed":         {client: artifact.Client{Allow: func(*url.URL) error { return errors.New("not there") }}, want: says("not there")},
		"redirect that is not allowed": {answer: status(302, "Location", "/b"), client: artifact.Client{Allow: func(u *url.URL) error {
			if u.Path != "/a.tar.gz" {
				return errors.New("not there")
			}
			return nil
		}}, want: says("redirect refused: not there"), requests: 1},
		"huge header":          {answer: status(200, "X-Huge", strings.Repeat("x", 1<<20)), want: says("header"), requests: -1},
		"secret in a redirect": {answer: status(302, "Location", "ftp://u:canary@h/?sig=canary"), want: says("redirect refused"), requests: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := newScriptedServer(t, test.answer)
			c := &test.client
			c.Pause = -1
			_, err := fetch(t, c, artifact.Artifact{URL: server.URL + "/a.tar.gz?sig=canary", Digest: digestOf(content), Size: test.size})
			if err == nil || !test.want(err) {
				t.Errorf("got %v", err)
			}
			if err != nil && (strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), server.URL)) {
				t.Errorf("the error leaks, or names no URL: %v", err)
			}
			if got := len(server.received()); test.requests >= 0 && got != test.requests {
				t.Errorf("%d requests, want %d", got, test.requests)
			}
		})
	}
}

func TestClientStalls(t *testing.T) {
	for name, test := range map[string]struct {
		answers []http.HandlerFunc
		took    time.Duration
		want    error
	}{
		"before headers": {[]http.HandlerFunc{stalled(content, 0), whole(content)}, 30 * time.Second, nil},
		"in the middle":  {[]http.HandlerFunc{stalled(content, 10), whole(content)}, 30 * time.Second, nil},
		"always":         {[]http.HandlerFunc{stalled(content, 0)}, time.Minute, os.ErrDeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			network, server := make(pipeListener), &scriptedServer{answers: test.answers}
			s := &http.Server{Handler: server}
			go s.Serve(network)
			defer s.Close()
			transport := &http.Transport{DialContext: network.dial}
			defer transport.CloseIdleConnections()
			c := &artifact.Client{HTTP: &http.Client{Transport: transport}, Attempts: 2, Pause: -1}
			start := time.Now()
			got, err := fetch(t, c, artifact.Artifact{URL: "http://store.example/a.tar.gz", Digest: digestOf(content)})
			if took := time.Since(start); !errors.Is(err, test.want) || err == nil && got != content || took != test.took || len(server.received()) != 2 {
				t.Errorf("%s: %q after %v, %v", name, got, took, err)
			}
		})
	}
}

func TestClientRefuses(t *testing.T) {
	server := newScriptedServer(t, whole(content))
	withUser := strings.Replace(server.URL, "http://", "http://user:canary@", 1)
	for name, a := range map[string]artifact.Artifact{
		"no digest":         {URL: server.URL},
		"unknown algorithm": {URL: server.URL, Digest: "md5:" + strings.Repeat("0", 32)},
		"short digest":      {URL: server.URL, Digest: "sha256:00"},
		"no URL":            {Digest: digestOf(content)},
		"no host":           {URL: "http:///a", Digest: digestOf(content)},
		"relative":          {URL: "/etc/passwd", Digest: digestOf(content)},
		"ftp":               {URL: "ftp://127.0.0.1/a", Digest: digestOf(content)},
		"file":              {URL: "file:///etc/passwd", Digest: digestOf(content)},
		"credentials":       {URL: withUser, Digest: digestOf(content)},
		"malformed":         {URL: "http://user:canary@[::1", Digest: digestOf(content)},
	} {
		if _, err := fetch(t, &artifact.Client{}, a); !errors.Is(err, fs.ErrInvalid) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
	testenv.Equal(t, len(server.received()), 0, "requests")
}

func TestClientObeysContext(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"stall": stalled(content, 10),
		"pause": status(503, "Retry-After", "30"),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			server := newScriptedServer(t, func(w http.ResponseWriter, r *http.Request) {
				time.AfterFunc(20*time.Millisecond, cancel)
				answer(w, r)
			})
			c := &artifact.Client{Temp: testenv.NewTempFiles(t).Create}
			if _, err := c.Open(ctx, artifact.Artifact{URL: server.URL, Digest: digestOf(content)}); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			testenv.Equal(t, len(server.received()), 1, "requests")
		})
	}
}

func TestClientFollowsRedirect(t *testing.T) {
	target := newScriptedServer(t, whole(content))
	withUser := strings.Replace(target.URL, "http://", "http://user:password@", 1)
	server := newScriptedServer(t, status(307, "Location", withUser+"/b", "Set-Cookie", "a=b"))
	got, err := fetch(t, &artifact.Client{}, artifact.Artifact{URL: server.URL + "/a?sig=canary", Digest: digestOf(content)})
	if err != nil || got != content {
		t.Fatalf("%q, %v", got, err)
	}
	for _, r := range append(server.received(), target.received()...) {
		for _, name := range []string{"Authorization", "Cookie", "Referer"} {
			if value := r.Header.Get(name); value != "" {
				t.Errorf("%s carries %s %q", r.URL.Path, name, value)
			}
		}
	}
}

func TestClientTLS(t *testing.T) {
	n := 0
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n++; r.URL.Path == "/down" {
			http.Redirect(w, r, "http://"+r.Host+"/a", http.StatusFound)
			return
		}
		whole(content)(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()

	a := artifact.Artifact{URL: server.URL + "/a", Digest: digestOf(content)}
	if _, err := fetch(t, &artifact.Client{}, a); err == nil || !strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), "attempts") {
		t.Errorf("unknown authority: %v", err)
	}
	if got, err := fetch(t, &artifact.Client{HTTP: server.Client()}, a); err != nil || got != content {
		t.Errorf("%q, %v", got, err)
	}
	a.URL = server.URL + "/down"
	if _, err := fetch(t, &artifact.Client{HTTP: server.Client()}, a); err == nil || !strings.Contains(err.Error(), "from https to http") {
		t.Errorf("downgrade: %v", err)
	}
	if n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// A server that compresses its response would change the bytes.
func TestClientAsksForTheBytesAsTheyAre(t *testing.T) {
	server := newScriptedServer(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			whole(content)(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		zw := gzip.NewWriter(w)
		io.WriteString(zw, content)
		zw.Close()
	})
	if got, err := fetch(t, &artifact.Client{}, artifact.Artifact{URL: server.URL, Digest: digestOf(content)}); err != nil || got != content {
		t.Errorf("%q, %v", got, err)
	}
}

func TestClientSpoolFails(t *testing.T) {
	server := newScriptedServer(t, whole(content))
	a := artifact.Artifact{URL: server.URL, Digest: digestOf(content)}
	c := &artifact.Client{Temp: func() (*os.File, error) { return nil, fs.ErrPermission }}
	if _, err := c.Open(t.Context(), a); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("no spool: %v", err)
	}
	c.Temp = func() (*os.File, error) {
		name := filepath.Join(t.TempDir(), "spool")
		return os.OpenFile(name, os.O_CREATE|os.O_RDONLY, 0o600)
	}
	if _, err := c.Open(t.Context(), a); err == nil {
		t.Error("a spool that cannot be written: no error")
	}
	testenv.Equal(t, len(server.received()), 1, "requests")
}
