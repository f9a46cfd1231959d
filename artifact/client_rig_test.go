package artifact_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

const content = "0123456789abcdefghijklmnopqrstuvwxyz"

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// A script is a server whose n-th answer is the n-th handler; the last one
// answers all further requests.
type script struct {
	*httptest.Server
	answers  []http.HandlerFunc
	mu       sync.Mutex
	requests []*http.Request
}

func newScript(t *testing.T, answers ...http.HandlerFunc) *script {
	t.Helper()
	s := &script{answers: answers}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP implements [http.Handler].
func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	n := len(s.requests)
	s.mu.Unlock()
	s.answers[min(n, len(s.answers))-1](w, r)
}

// pipes is a network of one server that lies within the bubble of a test: time
// passes only while nothing is on its way.
type pipes chan net.Conn

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	p <- theirs
	return ours, nil
}

// Accept implements [net.Listener].
func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

// Close implements [net.Listener].
func (p pipes) Close() error { close(p); return nil }

// Addr implements [net.Listener].
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (s *script) seen() []*http.Request {
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

// whole answers with all of body, as a file server does.
func whole(etag, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if etag != "" {
			w.Header().Set("ETag", etag)
		}
		http.ServeContent(w, r, "a.tar.gz", time.Time{}, strings.NewReader(body))
	}
}

// broken announces all of body, and breaks the connection after n bytes.
func broken(etag, body string, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", etag)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		io.WriteString(w, body[:n])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

// stalled sends n bytes of body and then nothing, until the client goes.
func stalled(body string, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"e"`)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		if n > 0 {
			io.WriteString(w, body[:n])
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	}
}

// part answers a request for a range with body as what begins at from.
func part(from int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"e"`)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, from+len(body)-1, from+len(body)))
		w.WriteHeader(http.StatusPartialContent)
		io.WriteString(w, body)
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

// spools counts what a client leaves open.
type spools struct {
	t    *testing.T
	list []*os.File
}

func (s *spools) create() (*os.File, error) {
	f, err := os.Create(filepath.Join(s.t.TempDir(), "spool"))
	s.list = append(s.list, f)
	return f, err
}

func (s *spools) checkClosed() {
	for _, f := range s.list {
		if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
			s.t.Errorf("a spool is left open")
		}
	}
}

// fetch opens a with c, reads it, and sees to it that no spool stays open.
func fetch(t *testing.T, c *artifact.Client, a artifact.Artifact) (string, error) {
	t.Helper()
	spool := &spools{t: t}
	c.Temp = spool.create
	defer spool.checkClosed()
	r, err := c.Open(t.Context(), a)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}
