package httpserve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
)

// ioTimeout is the time limit for receiving the header or body of a request, and for the client to
// read each written piece of an answer.
const ioTimeout = 30 * time.Second

// A Refusal is an error with the status of its answer.
type Refusal struct {
	Status int
	Err    error // safe to show to the caller
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// Refuse returns a [*Refusal] with a formatted error.
func Refuse(status int, format string, values ...any) error {
	return &Refusal{status, fmt.Errorf(format, values...)}
}

// ErrNotFound is the refusal of a path that does not exist.
var ErrNotFound = Refuse(http.StatusNotFound, "there is nothing at this path")

// A Writer records the status and size of an answer, and renews the write deadline for each piece of it.
type Writer struct {
	http.ResponseWriter
	Status int   // 0 until the answer has begun
	Bytes  int64 // of the body

	control *http.ResponseController
}

// NewWriter returns w as a [Writer] and sets the deadline for reading the body of the request. If the body
// does not arrive in time, the connection is closed.
func NewWriter(w http.ResponseWriter, r *http.Request) *Writer {
	a := &Writer{ResponseWriter: w, control: http.NewResponseController(w)}
	if r.ContentLength != 0 {
		a.control.SetReadDeadline(time.Now().Add(ioTimeout)) // if w does not support it, the deadline of the server applies
	}
	if r.Header["Expect"] != nil {
		a.control.SetWriteDeadline(time.Time{}) // clears that of the previous answer: net/http writes 100 Continue first
	}
	return a
}

// WriteHeader implements [http.ResponseWriter].
func (a *Writer) WriteHeader(status int) {
	if a.Status == 0 && status >= 200 {
		a.Status = status
		a.control.SetWriteDeadline(time.Now().Add(ioTimeout))
	}
	a.ResponseWriter.WriteHeader(status)
}

// writePiece is the number of bytes that are written before the deadline is renewed.
const writePiece = 64 << 10

// beginPiece writes the header, unless it was written, and renews the deadline for the next piece.
func (a *Writer) beginPiece() {
	if a.Status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	a.control.SetWriteDeadline(time.Now().Add(ioTimeout))
}

// Write implements [http.ResponseWriter].
func (a *Writer) Write(p []byte) (n int, err error) {
	for {
		a.beginPiece()
		part, err := a.ResponseWriter.Write(p[n:min(len(p), n+writePiece)])
		n += part
		a.Bytes += int64(part)
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// filePiece is the number of bytes of a file that are sent before the deadline is renewed.
const filePiece = 1 << 20

// ReadFrom implements [io.ReaderFrom]. It passes the content of an [io.LimitedReader], which net/http uses for
// files, to the connection, which can send a file without copying it through this process.
func (a *Writer) ReadFrom(r io.Reader) (n int64, err error) {
	limited, known := r.(*io.LimitedReader)
	if _, direct := a.ResponseWriter.(io.ReaderFrom); !known || !direct {
		return io.Copy(struct{ io.Writer }{a}, r)
	}
	for err == nil && limited.N > 0 {
		a.beginPiece()
		part := io.LimitedReader{R: limited.R, N: min(limited.N, filePiece)}
		var copied int64
		copied, err = io.Copy(a.ResponseWriter, &part)
		limited.N -= copied
		a.Bytes += copied
		n += copied
		if part.N > 0 {
			break // the reader is at its end
		}
	}
	return n, err
}

// FlushError is called by [http.ResponseController].
func (a *Writer) FlushError() error {
	a.beginPiece()
	return a.control.Flush()
}

// Unwrap is called by [http.ResponseController].
func (a *Writer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Send writes a complete answer, which must not be cached. The last byte is sent only when the handler has
// returned, so a client that has the answer can rely on what the handler does after Send.
func Send(w http.ResponseWriter, status int, kind string, body []byte) error {
	header := w.Header()
	header["X-Content-Type-Options"] = []string{"nosniff"}
	header["Cache-Control"] = []string{"no-store"}
	if len(body) > 0 {
		header["Content-Type"] = []string{kind}
	}
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	if status == http.StatusNoContent {
		delete(header, "Content-Length")
	}
	w.WriteHeader(status)
	if last := len(body) - 1; last > bufferedBytes {
		if _, err := w.Write(body[:last]); err != nil {
			return err
		}
		body = body[last:]
	}
	_, err := w.Write(body)
	return err
}

// bufferedBytes is the number of bytes that net/http buffers at least until the handler returns.
const bufferedBytes = 1 << 10

// Text answers with plain text; "" sends no body.
func Text(w http.ResponseWriter, status int, body string) error {
	return Send(w, status, "text/plain; charset=utf-8", []byte(body))
}

// JSON answers with a value as JSON.
func JSON(w http.ResponseWriter, status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return Send(w, status, "application/json", append(body, '\n'))
}

// A Stream is an answer that is sent piece by piece.
type Stream struct{ w http.ResponseWriter }

// NewStream sets the header of an answer of a media type that proxies must neither cache nor buffer.
func NewStream(w http.ResponseWriter, kind string) Stream {
	header := w.Header()
	header.Set("Content-Type", kind)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no")
	return Stream{w}
}

// Write sends a piece and flushes it.
func (s Stream) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err == nil {
		err = s.Flush()
	}
	return n, err
}

// Flush sends everything that was written; at first, the header.
func (s Stream) Flush() error { return http.NewResponseController(s.w).Flush() }

const (
	smallBody   = 64 << 10 // bytes
	largeBodies = 64       // requests with larger bodies that are served at a time
)

// Bodies reads the bodies of requests. It limits the number of requests with large bodies that are
// served at a time, so that slow or waiting clients cannot exhaust the memory.
type Bodies struct {
	Limit int64 // of a body, in bytes
	large chan struct{}
}

// NewBodies returns the reader of bodies of at most limit bytes.
func NewBodies(limit int64) *Bodies {
	return &Bodies{Limit: limit, large: make(chan struct{}, largeBodies)}
}

// Read returns the body of a request. The error is a [*Refusal] if the body is too long or does not arrive,
// or if too many requests with large bodies are being served.
func (b *Bodies) Read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > b.Limit {
		return nil, b.tooLongError()
	}
	body := http.MaxBytesReader(w, r.Body, b.Limit)
	var text bytes.Buffer
	_, err := io.CopyN(&text, body, smallBody)
	if err == nil {
		select {
		case b.large <- struct{}{}:
			context.AfterFunc(r.Context(), func() { <-b.large }) // the data decoded from it live as long as the request
		default:
			return nil, Refuse(http.StatusServiceUnavailable, "too many requests with long bodies are served at the same time: come again")
		}
		text.Grow(int(max(r.ContentLength-smallBody, 0)) + bytes.MinRead)
		_, err = text.ReadFrom(body)
	}
	if _, is := errors.AsType[*http.MaxBytesError](err); is {
		return nil, b.tooLongError()
	}
	if err != nil && err != io.EOF {
		return nil, Refuse(http.StatusBadRequest, "the body did not arrive whole")
	}
	return text.Bytes(), nil
}

func (b *Bodies) tooLongError() error {
	return Refuse(http.StatusRequestEntityTooLarge, "the body is longer than %d bytes", b.Limit)
}

// JSON decodes the JSON object in the body of a request into value. It refuses unknown fields, and takes an
// empty body for an empty object. The error is a [*Refusal].
func (b *Bodies) JSON(w http.ResponseWriter, r *http.Request, value any) error {
	text, err := b.Read(w, r)
	if err != nil || len(bytes.TrimSpace(text)) == 0 {
		return err
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return Refuse(http.StatusUnsupportedMediaType, "send JSON, with the header Content-Type: application/json")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(value); err != nil {
		return Refuse(http.StatusBadRequest, "%s", Describe(err))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Refuse(http.StatusBadRequest, "the body is not a JSON object: something follows it")
	}
	return nil
}

// jsonType returns the JSON type, with its article, for the kind of a Go type or a value named by encoding/json.
func jsonType(name string) string {
	switch name, _, _ = strings.Cut(name, " "); name { // a number out of range follows
	case "string", "number":
		return "a " + name
	case "bool":
		return "a boolean"
	case "array", "slice":
		return "an array"
	case "object", "map", "struct":
		return "an object"
	}
	return "a number"
}

// Describe describes an error of encoding/json in terms of JSON instead of Go.
func Describe(err error) string {
	if typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if typeErr.Field == "" {
			return fmt.Sprintf("the body is not a JSON object but a JSON %s", typeErr.Value)
		}
		return fmt.Sprintf("%s: %s; expected %s", typeErr.Field, jsonType(typeErr.Value), jsonType(typeErr.Type.Kind().String()))
	}
	if syntaxErr, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("the body is not a JSON object: byte %d: %v", syntaxErr.Offset, syntaxErr)
	}
	return fmt.Sprintf("the body is not a JSON object: %v", err)
}

// Parameters returns the query parameters of a request. The error is a [*Refusal] if a parameter is not among
// allowed or is given twice.
func Parameters(r *http.Request, allowed ...string) (map[string]string, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, Refuse(http.StatusBadRequest, "the parameters are not escaped as in URLs")
	}
	values := map[string]string{}
	for name, list := range query {
		switch {
		case !slices.Contains(allowed, name):
			return nil, Refuse(http.StatusBadRequest, "parameter %s: is unknown here; there are %s", redact.Excerpt(name, 80), cmp.Or(strings.Join(allowed, ", "), "none"))
		case len(list) != 1:
			return nil, Refuse(http.StatusBadRequest, "parameter %s: is there twice", name)
		}
		values[name] = list[0]
	}
	return values, nil
}

// Accepts reports whether the header Accept names a media type; wildcards do not count.
func Accepts(r *http.Request, kind string) bool {
	for _, line := range r.Header["Accept"] {
		for item := range strings.SplitSeq(line, ",") {
			found, parameters, err := mime.ParseMediaType(item)
			if err != nil || found != kind {
				continue
			}
			if weight, err := strconv.ParseFloat(parameters["q"], 64); err != nil || weight > 0 {
				return true
			}
		}
	}
	return false
}

// Remote returns the address of a caller for logs, or "socket" if it uses the socket of the server.
func Remote(r *http.Request) string {
	if viaSocket(r) {
		return "socket"
	}
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		address = r.RemoteAddr
	}
	return redact.Excerpt(address, 200)
}

// RedirectToPage redirects a browser that requests the root to the page, and reports whether it did.
func RedirectToPage(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != "/" || r.Method != http.MethodGet && r.Method != http.MethodHead || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return false
	}
	w.Header().Set("Location", takeCredentials(r).base+"ui/") // relative: a proxy may have removed a prefix
	w.Header().Set("Vary", "Accept")
	w.WriteHeader(http.StatusSeeOther)
	return true
}
