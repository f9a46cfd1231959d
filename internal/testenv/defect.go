// Package testenv serves real protocols inside a test: Git over HTTP by git's
// own http-backend, Git over ssh by git's own upload-pack, the API of
// GitHub for apps, a registry of OCI artifacts, a repository of charts, object
// stores, and http, https and socks5 proxies; handlers that answer like nGrinder
// and Concord. Everything listens on loopback at
// a port of its own and ends with the test. Only tests import it.
//
// Repositories are made by the git binary, in an environment without any
// configuration of the machine; the same calls give the same ids everywhere.
//
// Servers record what they were asked, enforce the credentials they were
// configured with, and misbehave in one named way when a [Defect] says so.
package testenv

import (
	"io"
	"log"
	"net/http"
	"strings"
	"sync"
)

// A Phase is a part of a conversation with a server.
type Phase string

// The phases of a conversation with a Git server. A server without protocol version 2 has no [LsRefs].
const (
	Advertisement Phase = "advertisement" // capabilities, with version 0 the refs too
	LsRefs        Phase = "ls-refs"
	Pack          Phase = "pack"  // negotiation and pack
	Stray         Phase = "stray" // all else, such as the request of a client of a server that had the port before
)

// A Misdeed is what a server does wrong.
type Misdeed int

// The misdeeds. Those of content happen after Defect.After bytes of the answer.
const (
	Answer Misdeed = iota // answers with Status, Header and Body instead
	Stall                 // sends nothing more, and does not end
	Cut                   // closes the connection
	End                   // ends the answer as if it were complete
	Flip                  // inverts one byte
)

// The misdeeds of servers of content: registries, repositories of charts, object stores.
const (
	Serve   Misdeed = iota + 100 // lets Handler answer
	Leak                         // answers with Status and an error that repeats the credentials of the request
	Endless                      // gives pages of tags without end
	Loop                         // gives a page of tags whose next page is itself
	Swell                        // sends After bytes of JSON that does not end
)

// A Defect makes a server misbehave in one phase.
type Defect struct {
	Phase Phase // "" means every phase
	Do    Misdeed
	After int64 // bytes of the answer that are right; negative: not even the header is sent
	Times int   // how many requests are affected, the first ones; 0 means all

	Status int         // for Answer
	Header http.Header // for Answer, for example Retry-After; to Location the path and query of the request are added
	Body   string      // for Answer

	Handler func(w http.ResponseWriter, r *http.Request, next http.Handler) // for Serve; next answers as it should
}

// Redirect returns a defect that sends clients to another URL, to which the
// path below the server and the query are appended.
func Redirect(to string) *Defect {
	return &Defect{Status: http.StatusFound, Header: http.Header{"Location": {to}}}
}

// Status returns a defect that answers every request with a status.
func Status(code int) *Defect { return &Defect{Status: code} }

// pad writes After bytes, for Swell.
func (d *Defect) pad(w io.Writer) {
	more := []byte(strings.Repeat("a", 64<<10))
	for left := d.After; left > 0; left -= int64(len(more)) {
		if _, err := w.Write(more[:min(left, int64(len(more)))]); err != nil {
			return
		}
	}
}

// A faultyWriter passes an answer on until its defect sets in.
type faultyWriter struct {
	write  func([]byte) (int, error)
	flush  func()
	abort  func() // closes the connection, does not return
	done   <-chan struct{}
	stall  func() // called when a stall begins
	defect Defect
	sent   int64
	over   bool
}

// Write implements [io.Writer].
func (w *faultyWriter) Write(b []byte) (int, error) {
	n := len(b)
	if w.over {
		return n, nil
	}
	right := max(w.defect.After, 0) - w.sent
	if right >= int64(n) {
		m, err := w.write(b)
		w.sent += int64(m)
		return m, err
	}
	if w.defect.Do == Flip {
		b = append([]byte(nil), b...)
		b[right] ^= 0xff
		w.defect.After = 1<<63 - 1
		m, err := w.write(b)
		w.sent += int64(m)
		return m, err
	}
	if right > 0 {
		if _, err := w.write(b[:right]); err != nil {
			return 0, err
		}
	}
	w.over = true
	w.misbehave()
	return n, nil
}

func (w *faultyWriter) misbehave() {
	w.flush()
	switch w.defect.Do {
	case Stall:
		w.stall()
		<-w.done
		w.abort()
	case Cut:
		w.abort()
	}
}

// A breaker holds the defect of a server.
type breaker struct {
	done chan struct{} // closed when the server ends

	mu      sync.Mutex
	defect  *Defect
	hits    int
	stalls  int // since Break
	stalled <-chan struct{}
	stall   func()
}

func newBreaker(d *Defect) *breaker {
	b := &breaker{done: make(chan struct{})}
	b.Break(d)
	return b
}

// Break makes the server misbehave from now on, nil makes it serve well again.
// The channel is closed when a [Stall] has begun.
func (b *breaker) Break(d *Defect) (stalled <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.defect, b.hits, b.stalls = d, 0, 0
	began := make(chan struct{})
	once := sync.OnceFunc(func() { close(began) })
	b.stalled, b.stall = began, func() {
		b.mu.Lock()
		b.stalls++
		b.mu.Unlock()
		once()
	}
	return began
}

// Stalls returns how many answers stalled since [breaker.Break], and whether
// the server has a defect that makes them, [Stall].
func (b *breaker) Stalls() (begun int, expected bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stalls, b.defect != nil && b.defect.Do == Stall
}

// Stalled returns a channel that is closed when a [Stall] has begun.
func (b *breaker) Stalled() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stalled
}

// met returns the defect that applies to a request of a phase, nil for none.
func (b *breaker) met(phase Phase) *Defect {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.defect
	if d == nil || d.Phase != "" && d.Phase != phase {
		return nil
	}
	if b.hits++; d.Times > 0 && b.hits > d.Times {
		return nil
	}
	return d
}

// spoil returns a writer of the answer that has the defect.
func (b *breaker) spoil(w http.ResponseWriter, r *http.Request, d Defect) http.ResponseWriter {
	b.mu.Lock()
	stall := b.stall
	b.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-b.done:
		case <-r.Context().Done():
		}
	}()
	f := &faultyWriter{
		write:  w.Write,
		flush:  func() { http.NewResponseController(w).Flush() },
		abort:  func() { panic(http.ErrAbortHandler) },
		done:   done,
		stall:  stall,
		defect: d,
	}
	if d.After < 0 && d.Do != Flip {
		f.over, f.flush = true, func() {}
		f.misbehave()
	}
	return &faultyResponse{w, f}
}

type faultyResponse struct {
	http.ResponseWriter
	body *faultyWriter
}

func (r *faultyResponse) Write(b []byte) (int, error) { return r.body.Write(b) }

// quiet is where servers put what they have to say about clients that misbehave.
var quiet = log.New(io.Discard, "", 0)
