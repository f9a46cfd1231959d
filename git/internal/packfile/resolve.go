package packfile

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/headgate-io/headgate/git/internal/object"
)

const (
	maxWorkers = 8        // goroutines that resolve deltas, each with its buffers
	deltaBytes = 32 << 10 // buffer for reading a delta
	baseBytes  = 1 << 20  // a base up to this size is held in memory
)

// deltas lists the deltas of a pack and their bases.
type deltas struct {
	byOffset []offsetLink // based on an earlier entry
	byID     []idLink     // based on an object that may be anywhere
}

// Links hold indexes of entries.
type offsetLink struct{ base, delta uint32 }

type idLink struct {
	base  object.ID
	delta uint32
	taken bool // set in the first link of a base once a job has the deltas on it
}

// A job is a base that is ready and the deltas that are based on it.
type job struct {
	entry    uint32
	external object.ID // if not zero, the base, which is not in the pack
	byOffset []offsetLink
	byID     []idLink
}

// A resolver resolves the deltas of a pack. A worker takes a base that the pack holds
// as a whole, reads it once and resolves all deltas on it; the results that are bases
// themselves become its next jobs. Every delta is resolved once, so chains and cycles
// need no limit.
type resolver struct {
	pack     *Pack
	deltas   *deltas
	limits   Limits
	external object.Database

	mu   sync.Mutex   // guards the field taken of idLinks
	left atomic.Int64 // deltas that are not resolved yet
}

// resolve resolves all deltas of p.
func resolve(ctx context.Context, p *Pack, d *deltas, limits Limits, external object.Database) error {
	r := &resolver{pack: p, deltas: d, limits: limits, external: external}
	r.left.Store(int64(len(d.byOffset) + len(d.byID)))
	slices.SortFunc(d.byOffset, func(a, b offsetLink) int { return cmp.Compare(a.base, b.base) })
	slices.SortFunc(d.byID, func(a, b idLink) int { return a.base.Compare(b.base) })
	if err := r.run(ctx, r.roots()); err != nil || r.left.Load() == 0 {
		return err
	}
	outside, err := r.outside()
	if err == nil {
		err = r.run(ctx, outside)
	}
	if err == nil && r.left.Load() > 0 {
		i := slices.IndexFunc(d.byID, func(l idLink) bool { return !r.isTaken(l.base) })
		err = fmt.Errorf("%w: the base %v of a delta is missing, %d objects cannot be made: %w",
			object.ErrCorrupt, d.byID[max(i, 0)].base, r.left.Load(), fs.ErrNotExist)
	}
	return err
}

// roots returns the jobs whose bases the pack holds as a whole.
func (r *resolver) roots() (jobs []job) {
	for i := range r.deltas.byOffset {
		l := r.deltas.byOffset[i]
		if (i == 0 || r.deltas.byOffset[i-1].base != l.base) && r.pack.entries[l.base].typ <= object.Tag {
			jobs = append(jobs, r.jobOn(l.base))
		}
	}
	if len(r.deltas.byID) == 0 {
		return jobs
	}
	r.pack.buildIndex()
	for _, l := range r.deltas.byID {
		if i, ok := r.pack.find(l.base); ok {
			if links := r.take(l.base); len(links) > 0 {
				jobs = append(jobs, job{entry: i, byID: links})
			}
		}
	}
	return jobs
}

// outside returns the jobs whose bases are not in the pack but in the external database.
func (r *resolver) outside() (jobs []job, err error) {
	for i, l := range r.deltas.byID {
		if r.external == nil || i > 0 && r.deltas.byID[i-1].base == l.base || l.taken {
			continue
		}
		_, _, err := r.external.Stat(l.base)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("base of a delta: %w", err)
		}
		jobs = append(jobs, job{external: l.base, byID: r.take(l.base)})
	}
	return jobs, nil
}

// first returns the index of the first link that names base by ID.
func (r *resolver) first(base object.ID) int {
	return sort.Search(len(r.deltas.byID), func(i int) bool { return r.deltas.byID[i].base.Compare(base) >= 0 })
}

func (r *resolver) isTaken(base object.ID) bool { return r.deltas.byID[r.first(base)].taken }

// take returns the deltas that name base by ID. After the first call for a base it
// returns none.
func (r *resolver) take(base object.ID) []idLink {
	if len(r.deltas.byID) == 0 {
		return nil
	}
	links := r.deltas.byID[r.first(base):]
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(links) == 0 || links[0].base != base || links[0].taken {
		return nil
	}
	links[0].taken = true
	return links[:sort.Search(len(links), func(i int) bool { return links[i].base.Compare(base) > 0 })]
}

// jobOn returns the job of the deltas that are based on an entry.
func (r *resolver) jobOn(entry uint32) job {
	links := r.deltas.byOffset
	links = links[sort.Search(len(links), func(i int) bool { return links[i].base >= entry }):]
	links = links[:sort.Search(len(links), func(i int) bool { return links[i].base > entry })]
	return job{entry: entry, byOffset: links, byID: r.take(r.pack.entryID(entry))}
}

// run lets workers do jobs and the jobs that follow from them.
func (r *resolver) run(ctx context.Context, jobs []job) error {
	var next atomic.Int64
	workers, ctx := errgroup.WithContext(ctx)
	for range min(runtime.GOMAXPROCS(0), maxWorkers) {
		workers.Go(func() error {
			m := &deltaApplier{resolver: r, delta: bufio.NewReaderSize(nil, deltaBytes)}
			m.out = resultWriter{spool: r.pack.spool, hasher: object.NewHasher(r.pack.format), buf: make([]byte, 0, resultBufferBytes)}
			for i := next.Add(1) - 1; i < int64(len(jobs)); i = next.Add(1) - 1 {
				for stack := []job{jobs[i]}; len(stack) > 0; {
					if ctx.Err() != nil {
						return context.Cause(ctx)
					}
					j := stack[len(stack)-1]
					var err error
					if stack, err = m.resolveJob(stack[:len(stack)-1], j); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return workers.Wait()
}

// A deltaApplier resolves deltas. It belongs to one goroutine.
type deltaApplier struct {
	*resolver
	buf   []byte // of the base
	delta *bufio.Reader
	out   resultWriter
}

// resolveJob resolves the deltas of j. It appends the jobs that are ready now to jobs and
// returns the result.
func (m *deltaApplier) resolveJob(jobs []job, j job) ([]job, error) {
	typ, size, from, err := m.base(j)
	if err != nil {
		return nil, fmt.Errorf("base of a delta: %w", err)
	}
	resolveEntry := func(entry uint32) error {
		if err := m.resolveDelta(entry, typ, size, from); err != nil {
			return fmt.Errorf("object %d: %w", entry+1, err)
		}
		m.left.Add(-1)
		if on := m.jobOn(entry); len(on.byOffset)+len(on.byID) > 0 {
			jobs = append(jobs, on)
		}
		return nil
	}
	for _, l := range j.byOffset {
		if err := resolveEntry(l.delta); err != nil {
			return nil, err
		}
	}
	for _, l := range j.byID {
		if err := resolveEntry(l.delta); err != nil {
			return nil, err
		}
	}
	return jobs, nil
}

// base opens the base of a job.
func (m *deltaApplier) base(j job) (typ object.Type, size int64, from io.ReaderAt, err error) {
	if j.external.IsZero() {
		e := m.pack.entries[j.entry]
		section := io.NewSectionReader(m.pack.spool, e.offset, e.size)
		if e.size > baseBytes {
			return e.typ, e.size, section, nil
		}
		from, err = m.load(section, e.size)
		return e.typ, e.size, from, err
	}
	typ, size, content, err := m.external.Open(j.external)
	if err != nil {
		return 0, 0, nil, err
	}
	defer content.Close()
	if size <= baseBytes {
		from, err = m.load(content, size)
		return typ, size, from, err
	}
	offset, err := m.pack.reserve(size, m.limits) // a large base is copied into the spool
	if err != nil {
		return 0, 0, nil, err
	}
	if _, err := io.CopyN(io.NewOffsetWriter(m.pack.spool, offset), content, size); err != nil {
		return 0, 0, nil, fmt.Errorf("object %v: %w", j.external, noEOF(err))
	}
	return typ, size, io.NewSectionReader(m.pack.spool, offset, size), nil
}

// load reads size bytes into the buffer.
func (m *deltaApplier) load(r io.Reader, size int64) (io.ReaderAt, error) {
	if int64(cap(m.buf)) < size {
		m.buf = make([]byte, size)
	}
	_, err := io.ReadFull(r, m.buf[:size])
	return bytes.NewReader(m.buf[:size]), err
}

// resolveDelta resolves the delta of an entry and updates the entry to the result.
func (m *deltaApplier) resolveDelta(entry uint32, typ object.Type, baseSize int64, from io.ReaderAt) error {
	e := &m.pack.entries[entry]
	m.delta.Reset(io.NewSectionReader(m.pack.spool, e.offset, e.size))
	want, err := deltaSize(m.delta)
	if err == nil && want != baseSize {
		err = fmt.Errorf("%w: a delta on a base of %d bytes, but its base has %d", object.ErrCorrupt, want, baseSize)
	}
	var size, offset int64
	if err == nil {
		size, err = deltaSize(m.delta)
	}
	if err == nil {
		offset, err = m.pack.reserve(size, m.limits)
	}
	if err != nil {
		return err
	}
	m.out.begin(typ, size, offset)
	if err := apply(&m.out, from, baseSize, m.delta); err != nil {
		return err
	}
	id, err := m.out.hasher.ID()
	if err != nil {
		return err
	}
	e.offset, e.size, e.typ = offset, size, typ
	id.AppendTo(m.pack.id(entry)[:0])
	return nil
}

// noEOF turns io.EOF into io.ErrUnexpectedEOF, for content that is shorter than
// declared.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
