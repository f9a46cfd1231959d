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

// answerTime is how long a request may take to come, and what is written of an answer
// to be taken.
const answerTime = 30 * time.Second

// A Refusal is an error with the status of its answer.
type Refusal struct {
	Status int
	Err    error // fit to be shown to the caller
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// Refuse returns a refusal.
func Refuse(status int, format string, values ...any) error {
	return &Refusal{status, fmt.Errorf(format, values...)}
}

// ErrNothing is the refusal of a path that there is not.
var ErrNothing = Refuse(http.StatusNotFound, "there is nothing at this path")

// A Writer remembers what was answered, and gives each piece of it a time to be taken.
type Writer struct {
	http.ResponseWriter
	Status int   // 0 until the answer has begun
	Bytes  int64 // of the body

	control *http.ResponseController
}

// Answering returns w as a Writer, and gives the body of the request its time to come.
// A connection on which it does not come ends.
func Answering(w http.ResponseWriter, r *http.Request) *Writer {
	a := &Writer{ResponseWriter: w, control: http.NewResponseController(w)}
	if r.ContentLength != 0 {
		a.control.SetReadDeadline(time.Now().Add(answerTime)) // where that is not possible the server has one
	}
	if r.Header["Expect"] != nil {
		a.control.SetWriteDeadline(time.Time{}) // that of the answer before: net/http is to write before there is one
	}
	return a
}

// WriteHeader implements [http.ResponseWriter].
func (a *Writer) WriteHeader(status int) {
	if a.Status == 0 && status >= 200 {
		a.Status = status
		a.control.SetWriteDeadline(time.Now().Add(answerTime))
	}
	a.ResponseWriter.WriteHeader(status)
}

// writePiece is how much is written before there is a new deadline, in bytes.
const writePiece = 64 << 10

// begin begins the answer, unless it has begun, and gives the next piece of it its time to be taken.
func (a *Writer) begin() {
	if a.Status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	a.control.SetWriteDeadline(time.Now().Add(answerTime))
}

// Write implements [http.ResponseWriter].
func (a *Writer) Write(p []byte) (n int, err error) {
	for {
		a.begin()
		part, err := a.ResponseWriter.Write(p[n:min(len(p), n+writePiece)])
		n += part
		a.Bytes += int64(part)
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// filePiece is how much of a file is sent before there is a new deadline, in bytes.
const filePiece = 1 << 20

// ReadFrom implements [io.ReaderFrom]: what a limited reader has, such as a file of
// net/http, is given to the connection, which sends it without a copy in this process.
func (a *Writer) ReadFrom(r io.Reader) (n int64, err error) {
	limited, known := r.(*io.LimitedReader)
	if _, direct := a.ResponseWriter.(io.ReaderFrom); !known || !direct {
		return io.Copy(struct{ io.Writer }{a}, r)
	}
	for err == nil && limited.N > 0 {
		a.begin()
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

// FlushError is for [http.ResponseController].
func (a *Writer) FlushError() error {
	a.begin()
	return a.control.Flush()
}

// Unwrap is for [http.ResponseController].
func (a *Writer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Send writes a whole answer, which nothing may keep. Its last byte leaves when the
// handler has returned: what the handler does next, callers find done.
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
	if last := len(body) - 1; last > keptBytes {
		if _, err := w.Write(body[:last]); err != nil {
			return err
		}
		body = body[last:]
	}
	_, err := w.Write(body)
	return err
}

// keptBytes is how much of an answer net/http keeps until its handler has returned, at least.
const keptBytes = 1 << 10

// Text answers with a text, "" for no body.
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

// A Stream is an answer that is sent bit by bit.
type Stream struct{ w http.ResponseWriter }

// NewStream begins an answer of a media type, which no proxy is to keep.
func NewStream(w http.ResponseWriter, kind string) Stream {
	header := w.Header()
	header.Set("Content-Type", kind)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no")
	return Stream{w}
}

// Write sends a piece.
func (s Stream) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err == nil {
		err = s.Flush()
	}
	return n, err
}

// Flush sends the header, at least.
func (s Stream) Flush() error { return http.NewResponseController(s.w).Flush() }

const (
	smallBody   = 64 << 10 // bytes
	largeBodies = 64       // requests with larger ones that are served at a time
)

// Bodies reads the bodies of requests. Of requests whose bodies are not small a bounded
// number is served at a time, so that callers who send slowly, or wait long, cannot fill
// the memory.
type Bodies struct {
	Limit int64 // of a body, bytes
	large chan struct{}
}

// NewBodies returns the reader of bodies of at most limit bytes.
func NewBodies(limit int64) *Bodies {
	return &Bodies{Limit: limit, large: make(chan struct{}, largeBodies)}
}

// Read returns the body of a request. When it is too long, does not arrive or finds too
// many others, the error is a [*Refusal].
func (b *Bodies) Read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > b.Limit {
		return nil, b.long()
	}
	body := http.MaxBytesReader(w, r.Body, b.Limit)
	var text bytes.Buffer
	_, err := io.CopyN(&text, body, smallBody)
	if err == nil {
		select {
		case b.large <- struct{}{}:
			context.AfterFunc(r.Context(), func() { <-b.large }) // what was made of it lives as long as the request
		default:
			return nil, Refuse(http.StatusServiceUnavailable, "too many requests with long bodies are served at the same time: come again")
		}
		text.Grow(int(max(r.ContentLength-smallBody, 0)) + bytes.MinRead)
		_, err = text.ReadFrom(body)
	}
	if _, is := errors.AsType[*http.MaxBytesError](err); is {
		return nil, b.long()
	}
	if err != nil && err != io.EOF {
		return nil, Refuse(http.StatusBadRequest, "the body did not arrive whole")
	}
	return text.Bytes(), nil
}

func (b *Bodies) long() error {
	return Refuse(http.StatusRequestEntityTooLarge, "the body is longer than %d bytes", b.Limit)
}

// JSON reads the JSON object of a request into value, strictly: what is unknown
// is refused. No body is an empty object. The error is a [*Refusal].
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

// article is the value of JSON that a Go type is read from, or encoding/json names.
func article(name string) string {
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

// Describe returns what is wrong with the JSON of a request, in its own terms.
func Describe(err error) string {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return fmt.Sprintf("the body is not a JSON object but a JSON %s", wrong.Value)
		}
		return fmt.Sprintf("%s: %s; expected %s", wrong.Field, article(wrong.Value), article(wrong.Type.Kind().String()))
	}
	if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("the body is not a JSON object: byte %d: %v", wrong.Offset, wrong)
	}
	return fmt.Sprintf("the body is not a JSON object: %v", err)
}

// Parameters returns those of the query of a request. One that is not among allowed, or that is
// there twice, is a [*Refusal].
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

// Wants reports whether the caller asked for a media type by its name.
func Wants(r *http.Request, kind string) bool {
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

// Remote returns the address of a caller, as logs may have it, or that it came by the socket.
func Remote(r *http.Request) string {
	if trusted(r) {
		return "socket"
	}
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		address = r.RemoteAddr
	}
	return redact.Excerpt(address, 200)
}

// ToPage leads a browser at the root to the page, and reports whether it did.
func ToPage(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != "/" || r.Method != http.MethodGet && r.Method != http.MethodHead || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return false
	}
	w.Header().Set("Location", take(r).base+"ui/") // relative: what came before may have been removed
	w.Header().Set("Vary", "Accept")
	w.WriteHeader(http.StatusSeeOther)
	return true
}
