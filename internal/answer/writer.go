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
	http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(Time))
}

// Write implements [http.ResponseWriter].
func (a *Writer) Write(p []byte) (int, error) {
	if a.Status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	n, err := a.ResponseWriter.Write(p)
	a.Bytes += int64(n)
	return n, err
}

// piece is how much of a file has Time to be taken, in bytes.
const piece = 4 << 20

// ReadFrom implements [io.ReaderFrom]: what a limited reader has, such as a
// file of net/http, is given to the connection piece by piece.
func (a *Writer) ReadFrom(r io.Reader) (n int64, err error) {
	limited, known := r.(*io.LimitedReader)
	if !known {
		return io.Copy(struct{ io.Writer }{a}, r)
	}
	if a.Status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	for err == nil && limited.N > 0 {
		a.extend()
		part := io.LimitedReader{R: limited.R, N: min(limited.N, piece)}
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

// Unwrap is for [http.ResponseController].
func (a *Writer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
