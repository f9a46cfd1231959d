package answer

import (
	"io"
	"net/http"
	"time"
)

// A Writer remembers what was answered. It keeps the way by which files go to
// the network without passing through this process.
type Writer struct {
	http.ResponseWriter
	Status int   // 0 until the answer has begun
	Bytes  int64 // of the body

	Before func(http.Header) // called once before the header is sent; nil for nothing

	Patient bool // the connection itself gives up what nobody takes for Time

	fresh bool // what is written next has its time
}

// Writing returns w as a Writer, a new one when it is none.
func Writing(w http.ResponseWriter) *Writer {
	a, ok := w.(*Writer)
	if !ok {
		a = &Writer{ResponseWriter: w}
	}
	return a
}

// Begun reports whether an answer has begun.
func Begun(w http.ResponseWriter) bool {
	a, ok := w.(*Writer)
	return ok && a.Status != 0
}

// WriteHeader implements [http.ResponseWriter].
func (a *Writer) WriteHeader(status int) {
	if a.Status == 0 && status >= 200 {
		a.Status = status
		if a.Before != nil {
			a.Before(a.Header())
		}
		a.extend()
	}
	a.ResponseWriter.WriteHeader(status)
}

// extend gives what is written next its time. Where that is not possible the
// server has one.
func (a *Writer) extend() {
	a.fresh = true
	if a.Patient {
		return
	}
	http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(Time))
}

// How much of an answer has Time to be taken, in bytes: of what is in memory,
// and of files.
const (
	textPiece = 64 << 10
	filePiece = 1 << 20
)

// Write implements [http.ResponseWriter].
func (a *Writer) Write(p []byte) (n int, err error) {
	for {
		a.ready()
		part, err := a.ResponseWriter.Write(p[n:min(len(p), n+textPiece)])
		n += part
		a.Bytes += int64(part)
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// ready begins the answer, and gives what is written next its time.
func (a *Writer) ready() {
	if a.Status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if !a.fresh {
		a.extend()
	}
	a.fresh = false
}

// ReadFrom implements [io.ReaderFrom]: what a limited reader has, such as a
// file of net/http, is given to the connection piece by piece. HTTP/2 has no way
// of its own for files.
func (a *Writer) ReadFrom(r io.Reader) (n int64, err error) {
	limited, known := r.(*io.LimitedReader)
	if _, direct := a.ResponseWriter.(io.ReaderFrom); !known || !direct {
		return io.Copy(struct{ io.Writer }{a}, r)
	}
	if a.Status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	for err == nil && limited.N > 0 {
		a.extend()
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

// FlushError is for [http.ResponseController]: what is flushed first begins the answer.
func (a *Writer) FlushError() error {
	if a.Status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Unwrap is for [http.ResponseController].
func (a *Writer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
