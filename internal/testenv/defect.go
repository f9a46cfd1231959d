// Package testenv runs servers of real protocols inside a test: Git over HTTP and
// over ssh by git's own upload-pack, the API of GitHub for apps, a registry of OCI
// artifacts, a repository of charts, object stores, and http, https and socks5
// proxies. It also has handlers that answer like nGrinder and Concord. Each server
// listens on loopback on a port of its own and ends with the test. Only tests import
// this package.
//
// The git binary serves the repositories, in an environment without any configuration
// of the machine. The same calls give the same object ids on every machine.
//
// Servers record their requests, enforce the credentials that they are configured
// with, and misbehave in one defined way if they have a [Defect].
package testenv

import (
	"io"
	"log"
	"math"
	"net/http"
	"slices"
	"sync"
)

// A Phase is a kind of request to a server.
type Phase string

// The phases of requests to a Git server. Only protocol version 2 has [LsRefs].
const (
	Advertisement Phase = "advertisement" // capabilities; in version 0 the refs too
	LsRefs        Phase = "ls-refs"
	Pack          Phase = "pack"  // negotiation and pack
	OtherRequest  Phase = "stray" // anything else, such as a request meant for a server that used the port before
)

// A DefectKind says what a server does wrong.
type DefectKind int

// The kinds of defects. All but Answer happen after Defect.After bytes of the answer.
const (
	Answer DefectKind = iota // answers with Status, Header and Body instead
	Stall                    // sends nothing more, and leaves the connection open
	Cut                      // closes the connection
	End                      // ends the answer as if it were complete
	Flip                     // inverts one byte
)

// Further kinds of defects, for registries, chart repositories and object stores.
const (
	Serve         DefectKind = iota + 100 // lets Handler answer
	Leak                                  // answers with Status and an error that repeats the credentials of the request
	EndlessList                           // serves a listing or an index without end
	PageLoop                              // serves a page of a listing whose next page is itself
	OversizedBody                         // serves the beginning of a document and After more bytes of it
)

// A Defect makes a server misbehave in one phase.
type Defect struct {
	Phase Phase // "" means every phase
	Do    DefectKind
	After int64 // number of correct bytes of the answer; if negative, not even the header is sent
	Times int   // number of requests affected, counted from the first; 0 means all

	Status int         // for Answer and Leak
	Header http.Header // for Answer and Leak, such as Retry-After; Answer appends the path and query of the request to Location
	Body   string      // for Answer

	Handler func(w http.ResponseWriter, r *http.Request, next http.Handler) // for Serve; next gives the correct answer
}

// Redirect returns a defect that redirects clients to another URL, with the path
// and query of the request appended.
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
	stalled chan struct{} // closed by the first of them
}

func newDefectState(d *Defect) *defectState {
	b := &defectState{done: make(chan struct{})}
	b.Break(d)
	return b
}

// Break makes the server misbehave from now on; nil makes it serve correctly again.
// The returned channel is closed when a [Stall] has begun.
func (b *defectState) Break(d *Defect) (stalled <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.defect, b.hits, b.begun, b.stalled = d, 0, 0, make(chan struct{})
	return b.stalled
}

// stall counts a stall, unless its defect has been replaced since.
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
// the current defect of the server is a [Stall].
func (b *defectState) Stalls() (count int, expected bool) {
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

// defectFor returns the defect that applies to a request of a phase, or nil, and counts the request.
func (b *defectState) defectFor(phase Phase) *Defect {
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

// A faultyResponse passes an answer through until its defect sets in.
type faultyResponse struct {
	http.ResponseWriter
	state  *defectState
	ended  <-chan struct{} // closed when the request ends
	stall  chan struct{}   // closed when the first answer with this defect stalls
	defect Defect
	sent   int64
	done   bool
}

// newFaultyResponse returns a writer that gives the answer its defect.
func (b *defectState) newFaultyResponse(w http.ResponseWriter, r *http.Request, d Defect) http.ResponseWriter {
	b.mu.Lock()
	f := &faultyResponse{ResponseWriter: w, state: b, ended: r.Context().Done(), stall: b.stalled, defect: d}
	b.mu.Unlock()
	if d.After < 0 && d.Do != Flip {
		f.breakOff()
	}
	return f
}

// Write implements [io.Writer].
func (w *faultyResponse) Write(b []byte) (int, error) {
	n, right := len(b), max(w.defect.After, 0)-w.sent
	switch {
	case w.done:
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
		w.breakOff()
		return n, nil
	}
	m, err := w.ResponseWriter.Write(b)
	w.sent += int64(m)
	return m, err
}

// breakOff drops the rest of the answer. Cut also closes the connection, and
// Stall closes it when the request or the server ends.
func (w *faultyResponse) breakOff() {
	w.done = true
	if w.defect.Do == Stall {
		w.state.stall(w.stall)
		select {
		case <-w.state.done:
		case <-w.ended:
		}
	}
	if w.defect.Do == Stall || w.defect.Do == Cut {
		panic(http.ErrAbortHandler)
	}
}

// discardLogger discards what servers log about clients that misbehave.
var discardLogger = log.New(io.Discard, "", 0)
