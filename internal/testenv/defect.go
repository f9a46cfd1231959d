// Package testenv serves real protocols inside a test: Git over HTTP and
// over ssh by git's own upload-pack, the API of
// GitHub for apps, a registry of OCI artifacts, a repository of charts, object
// stores, and http, https and socks5 proxies; handlers that answer like nGrinder
// and Concord. Everything listens on loopback at
// a port of its own and ends with the test. Only tests import it.
//
// Repositories are served, and but for their objects made, by the git binary, in an environment without any
// configuration of the machine; the same calls give the same ids everywhere.
//
// Servers record what they were asked, enforce the credentials they were
// configured with, and misbehave in one named way when a [Defect] says so.
package testenv

import (
	"io"
	"log"
	"math"
	"net/http"
	"slices"
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

// A DefectKind says what a server does wrong.
type DefectKind int

// The kinds of defects. Those of content happen after Defect.After bytes of the answer.
const (
	Answer DefectKind = iota // answers with Status, Header and Body instead
	Stall                    // sends nothing more, and does not end
	Cut                      // closes the connection
	End                      // ends the answer as if it were complete
	Flip                     // inverts one byte
)

// The defects of servers of content: registries, repositories of charts, object stores.
const (
	Serve   DefectKind = iota + 100 // lets Handler answer
	Leak                            // answers with Status and an error that repeats the credentials of the request
	Endless                         // gives pages of tags without end
	Loop                            // gives a page of tags whose next page is itself
	Swell                           // sends After bytes of JSON that does not end
)

// A Defect makes a server misbehave in one phase.
type Defect struct {
	Phase Phase // "" means every phase
	Do    DefectKind
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

// A defectState holds the defect of a server.
type defectState struct {
	done chan struct{} // closed when the server ends

	mu      sync.Mutex
	defect  *Defect
	hits    int
	begun   int           // stalls since Break
	stalled chan struct{} // closed with the first
}

func newDefectState(d *Defect) *defectState {
	b := &defectState{done: make(chan struct{})}
	b.Break(d)
	return b
}

// Break makes the server misbehave from now on, nil makes it serve well again.
// The channel is closed when a [Stall] has begun.
func (b *defectState) Break(d *Defect) (stalled <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.defect, b.hits, b.begun, b.stalled = d, 0, 0, make(chan struct{})
	return b.stalled
}

// stall notes a stall of a defect, which may not be that of now any more.
func (b *defectState) stall(of chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if of != b.stalled {
		return
	}
	if b.begun++; b.begun == 1 {
		close(of)
	}
}

// Stalls returns how many answers stalled since [defectState.Break], and whether
// the server has a defect that makes them, [Stall].
func (b *defectState) Stalls() (begun int, expected bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun, b.defect != nil && b.defect.Do == Stall
}

// Stalled returns a channel that is closed when a [Stall] has begun.
func (b *defectState) Stalled() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stalled
}

// met returns the defect that applies to a request of a phase, nil for none.
func (b *defectState) met(phase Phase) *Defect {
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

// A faultyResponse passes an answer on until its defect sets in.
type faultyResponse struct {
	http.ResponseWriter
	of     *defectState
	ended  <-chan struct{} // the request
	stall  chan struct{}   // of the defect
	defect Defect
	sent   int64
	over   bool
}

// spoil returns a writer of the answer that has the defect.
func (b *defectState) spoil(w http.ResponseWriter, r *http.Request, d Defect) http.ResponseWriter {
	b.mu.Lock()
	f := &faultyResponse{ResponseWriter: w, of: b, ended: r.Context().Done(), stall: b.stalled, defect: d}
	b.mu.Unlock()
	if d.After < 0 && d.Do != Flip {
		f.misbehave()
	}
	return f
}

// Write implements [io.Writer].
func (w *faultyResponse) Write(b []byte) (int, error) {
	n, right := len(b), max(w.defect.After, 0)-w.sent
	switch {
	case w.over:
		return n, nil
	case right < int64(n) && w.defect.Do == Flip:
		b = slices.Clone(b)
		b[right] ^= 0xff
		w.defect.After = math.MaxInt64
	case right < int64(n):
		if _, err := w.ResponseWriter.Write(b[:right]); err != nil {
			return 0, err
		}
		http.NewResponseController(w.ResponseWriter).Flush()
		w.misbehave()
		return n, nil
	}
	m, err := w.ResponseWriter.Write(b)
	w.sent += int64(m)
	return m, err
}

// misbehave ends the connection, now or with the request, or nothing but the answer.
func (w *faultyResponse) misbehave() {
	w.over = true
	if w.defect.Do == Stall {
		w.of.stall(w.stall)
		select {
		case <-w.of.done:
		case <-w.ended:
		}
	}
	if w.defect.Do == Stall || w.defect.Do == Cut {
		panic(http.ErrAbortHandler)
	}
}

// quiet is where servers put what they have to say about clients that misbehave.
var quiet = log.New(io.Discard, "", 0)
