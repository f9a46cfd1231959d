// Package packfile reads the stream of objects that a Git server sends
// (gitformat-pack, versions 2 and 3) and gives random access to them.
//
// [Read] inflates every object once, as it arrives, into one unlinked temporary file,
// the spool, and hashes it on the way. Deltas are resolved afterwards, in parallel,
// from the spool into the spool. Reading an object back is then a plain read of a
// file: no inflating, no delta chain, no lock, no cache. The price is disk space, as
// much as a checkout of the same objects would take; [Limits].InflatedBytes bounds
// it.
//
// Callers may rely on the following:
//
//   - Every object of a [Pack] has the ID by which it is found: its hash was computed
//     from its content, for SHA-1 with detection of collision attacks.
//   - Memory does not depend on the size of objects: buffers take 2 MiB, and 1 MiB
//     more for each core, up to eight, while deltas are resolved; the index takes
//     about 60 bytes an object (75 with SHA-256).
//   - The declared size of an object is compared with the limits before any of its
//     content is inflated, and the declared size of a delta's result before that is
//     built.
//   - A pack that is damaged in any way (truncated, trailing data, a wrong checksum,
//     an invalid header, a delta whose base is missing) gives an error that wraps
//     [object.ErrCorrupt]; one that exceeds a limit, a *[LimitError]; an error of the
//     reader is passed on, wrapped.
//   - The Adler-32 sums within a pack are not verified, because the hashes are
//     stronger.
package packfile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sort"
	"sync/atomic"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/internal/durable"
)

// Options says how to read a pack. The zero value is ready to use.
type Options struct {
	// Temp creates the spool: an empty file that no other process opens and that
	// disappears once it is closed. Default: a file in os.TempDir.
	Temp func() (*os.File, error)

	// Format is the hash function of the repository.
	Format object.Format

	// Limits bounds what the pack may hold.
	Limits Limits

	// External holds the bases that a thin pack refers to but does not contain; nil
	// means none. The Pack does not return them.
	External object.Database

	// Progress, if not nil, is called now and then with the number of objects
	// received and announced, never concurrently.
	Progress func(done, total int)
}

// A spool is a temporary file that holds inflated objects and deltas. ReadAt,
// WriteAt and reserve are safe for concurrent use.
type spool struct {
	*os.File
	end atomic.Int64 // bytes in use
}

// A Pack gives the objects of a pack. It implements [object.Database].
type Pack struct {
	format  object.Format
	content io.ReaderAt // holds the content of entries
	closer  io.Closer
	spool   *spool   // the content, if the Pack was read from a stream; else nil
	entries []entry  // in the order of the pack
	ids     []byte   // the IDs of entries, one after the other
	order   []uint32 // indexes of entries, sorted by ID
}

// An entry is one object. Until a delta is resolved, its entry has the type that it
// has in the pack, and the offset and size of the delta itself.
type entry struct {
	offset int64 // in the spool
	size   int64
	typ    object.Type
}

// Read reads one pack from r up to its end. The caller closes the Pack. When ctx
// is done, Read returns its error as soon as r does not block.
func Read(ctx context.Context, r io.Reader, o Options) (*Pack, error) {
	if o.Temp == nil {
		o.Temp = durable.TempFile
	}
	f, err := o.Temp()
	if err != nil {
		return nil, fmt.Errorf("read pack: create spool: %w", err)
	}
	s := &spool{File: f}
	p := &Pack{format: o.Format, content: s, closer: s, spool: s}
	limits := o.Limits.orDefault()
	deltas, err := receive(ctx, p, r, o, limits)
	if err == nil && len(deltas.byOffset)+len(deltas.byID) > 0 {
		err = resolve(ctx, p, deltas, limits, o.External)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("read pack: %w", err)
	}
	p.buildIndex()
	return p, nil
}

// Spooled returns how many bytes of the spool are in use, 0 for a pack that was
// thawed.
func (p *Pack) Spooled() int64 {
	if p.spool == nil {
		return 0
	}
	return p.spool.end.Load()
}

// Stat implements [object.Database].
func (p *Pack) Stat(id object.ID) (object.Type, int64, error) {
	i, ok := p.find(id)
	if !ok {
		return 0, 0, fmt.Errorf("object %v is not in the pack: %w", id, fs.ErrNotExist)
	}
	return p.entries[i].typ, p.entries[i].size, nil
}

// Open implements [object.Database]. The content is also an io.ReaderAt and an
// io.Seeker. It need not be closed.
func (p *Pack) Open(id object.ID) (object.Type, int64, io.ReadCloser, error) {
	i, ok := p.find(id)
	if !ok {
		return 0, 0, nil, fmt.Errorf("object %v is not in the pack: %w", id, fs.ErrNotExist)
	}
	e := p.entries[i]
	return e.typ, e.size, content{io.NewSectionReader(p.content, e.offset, e.size)}, nil
}

type content struct{ *io.SectionReader }

func (content) Close() error { return nil }

// Close removes the spool. Reading open contents fails from then on.
func (p *Pack) Close() error { return p.closer.Close() }

// id returns the raw ID of entry i.
func (p *Pack) id(i uint32) []byte {
	n := p.format.Size()
	return p.ids[int(i)*n : (int(i)+1)*n : (int(i)+1)*n]
}

// entryID returns the ID of entry i.
func (p *Pack) entryID(i uint32) object.ID {
	id, _ := object.IDFromBytes(p.id(i))
	return id
}

// buildIndex builds the index over all entries whose object is known: deltas that are
// not resolved have no ID.
func (p *Pack) buildIndex() {
	p.order = p.order[:0]
	for i, e := range p.entries {
		if e.typ <= object.Tag {
			p.order = append(p.order, uint32(i))
		}
	}
	sort.Slice(p.order, func(a, b int) bool { return bytes.Compare(p.id(p.order[a]), p.id(p.order[b])) < 0 })
}

// find returns the index of the entry with the given ID.
func (p *Pack) find(id object.ID) (uint32, bool) {
	var buf [32]byte
	want := id.AppendTo(buf[:0])
	i := sort.Search(len(p.order), func(i int) bool { return bytes.Compare(p.id(p.order[i]), want) >= 0 })
	if i == len(p.order) || !bytes.Equal(p.id(p.order[i]), want) {
		return 0, false
	}
	return p.order[i], true
}
