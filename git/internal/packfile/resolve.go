package packfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"sort"
	"sync"

	"github.com/headgate-io/headgate/git/internal/object"
)

// maxWorkers bounds the goroutines that make deltas, and so their buffers.
const maxWorkers = 8

// deltas lists the deltas of a pack with what they are based on.
type deltas struct {
	byOffset []offsetLink // based on an earlier entry
	byID     []idLink     // based on an object that may be anywhere
}

// The links are indexes of entries.
type offsetLink struct{ base, delta uint32 }

type idLink struct {
	base  object.ID
	delta uint32
	taken bool // in the first link of a base: its deltas are in a job
}

// A job is an object that is ready and the deltas that are based on it.
type job struct {
	entry    uint32
	external object.ID // if not zero, the base is not in the pack but this
	byOffset []offsetLink
	byID     []idLink
}

// A resolver makes the objects of a pack that are given as deltas. A worker reads
// a base once and makes all deltas on it; those that are bases in turn become
// jobs. Every delta is made once, so that chains and cycles need no bound.
type resolver struct {
	pack     *Pack
	deltas   *deltas
	limits   Limits
	external object.Database

	mu   sync.Mutex
	wake sync.Cond
	jobs []job
	busy int // workers that may add jobs
	left int // deltas to make
	err  error
}

// resolve makes all objects of p that are deltas.
func resolve(ctx context.Context, p *Pack, d *deltas, limits Limits, external object.Database) error {
	if len(d.byOffset)+len(d.byID) == 0 {
		return nil
	}
	r := &resolver{pack: p, deltas: d, limits: limits, external: external, left: len(d.byOffset) + len(d.byID)}
	r.wake.L = &r.mu
	defer context.AfterFunc(ctx, func() { r.stop(context.Cause(ctx)) })()
	slices.SortFunc(d.byOffset, func(a, b offsetLink) int { return cmp.Compare(a.base, b.base) })
	slices.SortFunc(d.byID, func(a, b idLink) int { return a.base.Compare(b.base) })
	r.addRoots()
	if err := r.run(); err != nil || r.left == 0 {
		return err
	}
	if err := r.addExternal(); err != nil {
		return err
	}
	if err := r.run(); err != nil || r.left == 0 {
		return err
	}
	return r.missing()
}

// addRoots adds the jobs whose bases are whole in the pack.
func (r *resolver) addRoots() {
	for links := r.deltas.byOffset; len(links) > 0; {
		group := links[:sort.Search(len(links), func(i int) bool { return links[i].base > links[0].base })]
		links = links[len(group):]
		if i := group[0].base; r.pack.entries[i].typ <= object.Tag {
			r.jobs = append(r.jobs, job{entry: i, byOffset: group, byID: r.take(r.pack.entryID(i))})
		}
	}
	if len(r.deltas.byID) == 0 {
		return
	}
	r.pack.sort()
	for _, l := range r.deltas.byID {
		if i, ok := r.pack.find(l.base); ok {
			if links := r.take(l.base); len(links) > 0 {
				r.jobs = append(r.jobs, job{entry: i, byID: links})
			}
		}
	}
}

// addExternal adds the jobs whose bases are not in the pack but in the external database.
func (r *resolver) addExternal() error {
	for i, l := range r.deltas.byID {
		if r.external == nil || i > 0 && r.deltas.byID[i-1].base == l.base || l.taken {
			continue
		}
		_, _, err := r.external.Stat(l.base)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("base of a delta: %w", err)
		}
		r.jobs = append(r.jobs, job{external: l.base, byID: r.take(l.base)})
	}
	return nil
}

// take returns the deltas that name base by ID, once.
func (r *resolver) take(base object.ID) []idLink {
	links := r.deltas.byID
	from := sort.Search(len(links), func(i int) bool { return links[i].base.Compare(base) >= 0 })
	links = links[from:]
	if len(links) == 0 || links[0].base != base || links[0].taken {
		return nil
	}
	links[0].taken = true
	return links[:sort.Search(len(links), func(i int) bool { return links[i].base.Compare(base) > 0 })]
}

// ready says that the object of a delta was made: deltas on it become a job.
func (r *resolver) ready(entry uint32) {
	links := r.deltas.byOffset
	links = links[sort.Search(len(links), func(i int) bool { return links[i].base >= entry }):]
	links = links[:sort.Search(len(links), func(i int) bool { return links[i].base > entry })]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left--
	j := job{entry: entry, byOffset: links, byID: r.take(r.pack.entryID(entry))}
	if len(j.byOffset)+len(j.byID) > 0 {
		r.jobs = append(r.jobs, j)
		r.wake.Signal()
	}
}

// run has the workers do all jobs.
func (r *resolver) run() error {
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), maxWorkers) {
		workers.Go(func() {
			w := newMaker(r)
			for {
				j, ok := r.next()
				if !ok {
					return
				}
				err := w.do(j)
				r.mu.Lock()
				r.busy--
				r.mu.Unlock()
				r.stop(err)
			}
		})
	}
	workers.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// next returns a job; ok is false when none is left or an error ended the run.
func (r *resolver) next() (j job, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.jobs) == 0 && r.busy > 0 && r.err == nil {
		r.wake.Wait()
	}
	if len(r.jobs) == 0 || r.err != nil {
		return j, false
	}
	j = r.jobs[len(r.jobs)-1]
	r.jobs = r.jobs[:len(r.jobs)-1]
	r.busy++
	return j, true
}

// stop ends the run if err is not nil, and has all workers look.
func (r *resolver) stop(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	r.wake.Broadcast()
}

// missing returns the error for deltas that cannot be made. The first link of a
// base that nothing took is the reason.
func (r *resolver) missing() error {
	var base object.ID
	for _, l := range r.deltas.byID {
		if l.base != base && !l.taken {
			base = l.base
			break
		}
		base = l.base
	}
	return fmt.Errorf("%w: the base %v of a delta is missing, %d objects cannot be made: %w",
		object.ErrCorrupt, base, r.left, fs.ErrNotExist)
}
