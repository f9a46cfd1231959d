package packfile

import (
	"context"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/headgate-io/headgate/git/internal/object"
)

// Three goroutines receive a pack and pass chunks of inflated content on in order:
// scan inflates, sum hashes, and the last one writes to the spool. The number of
// chunks bounds the memory.
const (
	chunkBytes = 128 << 10
	chunkCount = 12
	maxSpans   = 1 << 10 // in a chunk, since objects can be empty
)

// A chunk is a piece of the spool: buf[:end]. An object that does not fit into the
// rest of a chunk begins a new one.
type chunk struct {
	buf   []byte
	end   int
	spans []span
}

// A span is a piece of an object within a chunk.
type span struct {
	entry
	n           int // bytes
	first, last bool
}

// receive fills the entries of p from r and returns the deltas among them.
func receive(ctx context.Context, p *Pack, r io.Reader, o Options, limits Limits) (*deltas, error) {
	free := make(chan *chunk, chunkCount)
	full := make(chan *chunk, chunkCount)
	hashed := make(chan *chunk, chunkCount)
	for range chunkCount {
		free <- new(chunk)
	}
	g, ctx := errgroup.WithContext(ctx)
	s := &scanner{
		ctx: ctx, pack: p, limits: limits, progress: o.Progress,
		in: newInput(r, o.Format, limits.PackBytes), free: free, full: full,
	}
	s.inflater = newInflater(s.in)
	g.Go(func() error {
		defer close(full)
		return s.scan()
	})
	g.Go(func() error {
		defer close(hashed)
		return hashChunks(p, full, hashed)
	})
	g.Go(func() error {
		for c := range hashed {
			if _, err := p.spool.Write(c.buf[:c.end]); err != nil {
				return err
			}
			free <- c
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return &s.deltas, nil
}

// hashChunks computes the IDs of the objects in full and passes the chunks on to hashed.
func hashChunks(p *Pack, full <-chan *chunk, hashed chan<- *chunk) error {
	h := object.NewHasher(p.format)
	none := make([]byte, p.format.Size())
	for c := range full {
		rest := c.buf[:c.end]
		for _, s := range c.spans {
			piece := rest[:s.n]
			rest = rest[s.n:]
			if s.typ > object.Tag {
				if s.last {
					p.ids = append(p.ids, none...)
				}
				continue
			}
			if s.first {
				h.Begin(s.typ, s.size)
			}
			h.Write(piece)
			if s.last {
				id, err := h.ID()
				if err != nil {
					return err
				}
				p.ids = id.AppendTo(p.ids)
			}
		}
		hashed <- c
	}
	return nil
}
