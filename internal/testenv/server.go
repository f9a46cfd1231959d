package testenv

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A fakeServer is what all servers have in common: a place on loopback, what was
// asked there so far, and a defect.
type fakeServer struct {
	*defectState
	Host string // 127.0.0.1:PORT, an endpoint
	Base string // http://HOST or https://HOST

	bytes    atomic.Int64 // of content
	received atomic.Int64 // of requests

	refuse func(w http.ResponseWriter, r *http.Request, status int, message string)
	odd    func(w http.ResponseWriter, r *http.Request, d Defect, next http.Handler) // defects of its own: Endless, Loop and Swell

	mu       sync.Mutex
	requests []*Request
}

// listen serves at an unused port until the test ends: with TLS unless c is nil,
// and then with HTTP/2 too if that is wanted.
func (k *fakeServer) listen(t testing.TB, serve http.HandlerFunc, c *tls.Config, http2 bool) {
	t.Helper()
	h := httptest.NewUnstartedServer(serve)
	h.Config.ErrorLog = quiet
	if c != nil {
		h.TLS, h.EnableHTTP2 = c, http2
		h.StartTLS()
	} else {
		h.Start()
	}
	k.Host, k.Base = h.Listener.Addr().String(), h.URL
	t.Cleanup(func() {
		close(k.done)
		h.CloseClientConnections()
		h.Close()
	})
}

// secured returns the settings of a server as [CA.ServerConfig] does, nil
// without an authority.
func secured(ca *CA, mutual bool, names []string) *tls.Config {
	if ca == nil {
		return nil
	}
	return ca.ServerConfig(mutual, names...)
}

// Requests returns what was asked so far, refused requests included. Bodies
// are recorded of requests for tokens and temporary keys at most.
func (k *fakeServer) Requests() []Request {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]Request, len(k.requests))
	for i, q := range k.requests {
		all[i] = *q
	}
	return all
}

// Count returns how many requests of the phases there were so far, refused ones
// included; without phases, of all.
func (k *fakeServer) Count(phases ...Phase) (n int) {
	for _, q := range k.Requests() {
		if len(phases) == 0 || slices.Contains(phases, q.Phase) {
			n++
		}
	}
	return n
}

// ContentBytes returns how many bytes of objects or blobs were served so far.
func (k *fakeServer) ContentBytes() int64 { return k.bytes.Load() }

// Reset forgets requests and bytes.
func (k *fakeServer) Reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requests = nil
	k.bytes.Store(0)
	k.received.Store(0)
}

// note records a request, and returns a writer of its answer that records the
// status and, where content is asked for, counts the bytes.
func (k *fakeServer) note(w http.ResponseWriter, r *http.Request, phase Phase, body []byte, content bool) http.ResponseWriter {
	q := newRequest(r, phase, body)
	k.received.Add(int64(len(body)))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requests = append(k.requests, &q)
	return &notingWriter{w, k, &q, content}
}

// A notingWriter records the status of an answer, and the bytes of its content.
type notingWriter struct {
	http.ResponseWriter
	fakeServer *fakeServer
	of         *Request
	content    bool
}

func (w *notingWriter) WriteHeader(code int) {
	w.status(code)
	w.ResponseWriter.WriteHeader(code)
}

func (w *notingWriter) status(code int) int {
	w.fakeServer.mu.Lock()
	defer w.fakeServer.mu.Unlock()
	w.of.Status = cmp.Or(w.of.Status, code)
	return w.of.Status
}

func (w *notingWriter) Write(b []byte) (int, error) {
	if w.status(http.StatusOK) < http.StatusBadRequest && w.content {
		w.fakeServer.bytes.Add(int64(len(b))) // before a client can have them
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is what [http.ResponseController] looks for.
func (w *notingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// bodyOf returns the body of a request, of 1 MiB at most, and leaves it to be
// read once more.
func bodyOf(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, err
}

// respond answers a request of a phase: by next, unless the defect applies to it.
func (k *fakeServer) respond(w http.ResponseWriter, r *http.Request, phase Phase, next http.HandlerFunc) {
	met := k.met(phase)
	if met == nil {
		next(w, r)
		return
	}
	d := *met
	if r.Method == http.MethodHead {
		d.After = -1 // there is no body that anything could happen in
	}
	switch d.Do {
	case Serve:
		d.Handler(w, r, next)
	case Answer:
		d.answer(w, r)
	case Leak:
		maps.Copy(w.Header(), d.Header)
		k.refuse(w, r, cmp.Or(d.Status, http.StatusBadRequest), "cannot serve "+strings.Join(credentialsOf(r), ", "))
	case Endless, Loop, Swell:
		k.odd(w, r, d, next)
	case End:
		next(&unsized{k.spoil(w, r, d)}, r)
	default:
		next(k.spoil(w, r, d), r)
	}
}

// unsized hides how long an answer was to be.
type unsized struct{ http.ResponseWriter }

func (w *unsized) WriteHeader(code int) {
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(code)
}

func (d *Defect) answer(w http.ResponseWriter, r *http.Request) {
	maps.Copy(w.Header(), d.Header)
	if to := d.Header.Get("Location"); to != "" {
		w.Header().Set("Location", to+r.URL.RequestURI())
	}
	w.WriteHeader(d.Status)
	io.WriteString(w, d.Body)
}

// credentialsOf returns the credentials of a request, as they came and decoded.
func credentialsOf(r *http.Request) []string {
	said := []string{r.Header.Get("Authorization"), r.Header.Get("X-Amz-Security-Token")}
	if r.URL.Query().Has("sig") {
		said = append(said, r.URL.RawQuery)
	}
	for field := range strings.FieldsSeq(said[0]) {
		_, value, _ := strings.Cut(strings.TrimSuffix(field, ","), "=")
		said = append(said, field, value)
	}
	user, password, _ := r.BasicAuth()
	said = append(said, user+":"+password, password)
	r.ParseForm()
	for _, values := range r.Form {
		said = append(said, values...)
	}
	return said
}

// replay answers with what another server answered.
func replay(w http.ResponseWriter, rec *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), rec.Header())
	w.WriteHeader(rec.Code)
	w.Write(rec.Body.Bytes())
}

// recorded returns the answer of a handler.
func recorded(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

// swell answers with the beginning of a document, and d.After bytes more.
func (d *Defect) swell(w http.ResponseWriter, rec *httptest.ResponseRecorder, begin []byte) {
	maps.Copy(w.Header(), rec.Header())
	w.Header().Del("Content-Length")
	w.WriteHeader(rec.Code)
	w.Write(begin)
	more := []byte(strings.Repeat("a", 64<<10))
	for left := d.After; left > 0; left -= int64(len(more)) {
		if _, err := w.Write(more[:min(left, int64(len(more)))]); err != nil {
			return
		}
	}
}
