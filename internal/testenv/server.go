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

// A fakeServer is the common part of the HTTP servers: it listens on loopback, records
// requests, and has a defect.
type fakeServer struct {
	*defectState
	Host string // 127.0.0.1:PORT
	Base string // http://HOST or https://HOST

	bytes    atomic.Int64 // of content sent
	received atomic.Int64 // bytes of request bodies

	refuse        func(w http.ResponseWriter, r *http.Request, status int, message string)
	defectHandler func(w http.ResponseWriter, r *http.Request, d Defect, next http.Handler) // serves the defects EndlessList, PageLoop and OversizedBody

	mu       sync.Mutex
	requests []*Request
}

// listen serves on an unused port until the test ends. It uses TLS unless c is nil,
// and then offers HTTP/2 if http2 is true.
func (k *fakeServer) listen(t testing.TB, serve http.HandlerFunc, c *tls.Config, http2 bool) {
	t.Helper()
	h := httptest.NewUnstartedServer(serve)
	h.Config.ErrorLog = discardLogger
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

// tlsConfig returns the TLS configuration of [CA.ServerConfig], or nil without an
// authority.
func tlsConfig(ca *CA, mutual bool, names []string) *tls.Config {
	if ca == nil {
		return nil
	}
	return ca.ServerConfig(mutual, names...)
}

// Requests returns the requests so far, including refused ones. Registries record
// bodies only of requests for tokens, and chart repositories record none.
func (k *fakeServer) Requests() []Request {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]Request, len(k.requests))
	for i, q := range k.requests {
		all[i] = *q
	}
	return all
}

// Count returns how many requests of the phases there were so far, including refused
// ones. Without phases it counts all requests.
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

// Reset forgets the recorded requests and byte counts.
func (k *fakeServer) Reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requests = nil
	k.bytes.Store(0)
	k.received.Store(0)
}

// record records a request, and returns a writer of its answer that records the
// status and, if content is true, counts the bytes of a successful answer.
func (k *fakeServer) record(w http.ResponseWriter, r *http.Request, phase Phase, body []byte, content bool) http.ResponseWriter {
	q := newRequest(r, phase, body)
	k.received.Add(int64(len(body)))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requests = append(k.requests, &q)
	return &recordingWriter{w, k, &q, content}
}

// A recordingWriter records the status of an answer, and the bytes of its content.
type recordingWriter struct {
	http.ResponseWriter
	fakeServer *fakeServer
	request    *Request
	content    bool
}

func (w *recordingWriter) WriteHeader(code int) {
	w.status(code)
	w.ResponseWriter.WriteHeader(code)
}

func (w *recordingWriter) status(code int) int {
	w.fakeServer.mu.Lock()
	defer w.fakeServer.mu.Unlock()
	w.request.Status = cmp.Or(w.request.Status, code)
	return w.request.Status
}

func (w *recordingWriter) Write(b []byte) (int, error) {
	if w.status(http.StatusOK) < http.StatusBadRequest && w.content {
		w.fakeServer.bytes.Add(int64(len(b))) // counted before a client can receive them
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap returns the underlying writer for [http.ResponseController].
func (w *recordingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// bodyOf returns the body of a request, at most 1 MiB, and replaces it by a copy so
// that it can be read again.
func bodyOf(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, err
}

// respond answers a request of a phase with next, unless the defect applies to it.
func (k *fakeServer) respond(w http.ResponseWriter, r *http.Request, phase Phase, next http.HandlerFunc) {
	defect := k.defectFor(phase)
	if defect == nil {
		next(w, r)
		return
	}
	d := *defect
	if r.Method == http.MethodHead {
		d.After = -1 // there is no body in which the defect could set in
	}
	switch d.Do {
	case Serve:
		d.Handler(w, r, next)
	case Answer:
		d.answer(w, r)
	case Leak:
		maps.Copy(w.Header(), d.Header)
		k.refuse(w, r, cmp.Or(d.Status, http.StatusBadRequest), "cannot serve "+strings.Join(credentialsOf(r), ", "))
	case EndlessList, PageLoop, OversizedBody:
		k.defectHandler(w, r, d, next)
	case End:
		next(&unsizedWriter{k.newFaultyResponse(w, r, d)}, r)
	default:
		next(k.newFaultyResponse(w, r, d), r)
	}
}

// unsizedWriter removes the Content-Length from an answer.
type unsizedWriter struct{ http.ResponseWriter }

func (w *unsizedWriter) WriteHeader(code int) {
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

// credentialsOf returns the credentials of a request, as received and decoded.
func credentialsOf(r *http.Request) []string {
	credentials := []string{r.Header.Get("Authorization"), r.Header.Get("X-Amz-Security-Token")}
	if r.URL.Query().Has("sig") {
		credentials = append(credentials, r.URL.RawQuery)
	}
	for field := range strings.FieldsSeq(credentials[0]) {
		_, value, _ := strings.Cut(strings.TrimSuffix(field, ","), "=")
		credentials = append(credentials, field, value)
	}
	user, password, _ := r.BasicAuth()
	credentials = append(credentials, user+":"+password, password)
	r.ParseForm()
	for _, values := range r.Form {
		credentials = append(credentials, values...)
	}
	return credentials
}

// replay writes a recorded answer.
func replay(w http.ResponseWriter, rec *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), rec.Header())
	w.WriteHeader(rec.Code)
	w.Write(rec.Body.Bytes())
}

// recordAnswer returns the answer of h to r.
func recordAnswer(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

// writeOversized answers with the status and header of rec, then begin, then d.After more bytes.
func (d *Defect) writeOversized(w http.ResponseWriter, rec *httptest.ResponseRecorder, begin []byte) {
	maps.Copy(w.Header(), rec.Header())
	w.Header().Del("Content-Length")
	w.WriteHeader(rec.Code)
	w.Write(begin)
	chunk := []byte(strings.Repeat("a", 64<<10))
	for left := d.After; left > 0; left -= int64(len(chunk)) {
		if _, err := w.Write(chunk[:min(left, int64(len(chunk)))]); err != nil {
			return
		}
	}
}
