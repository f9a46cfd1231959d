package local

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
)

// maxChain bounds the deltas on deltas (Git's own bound is 4095).
const maxChain = 4096

// A whole is the content of an object. It is shared: nobody writes to it.
type whole struct {
	typ  object.Type
	data []byte
}

// statPacked returns the type and size of an object in a pack. For a delta, the
// size is at its beginning and the type at the end of the chain.
func (r *Repo) statPacked(at place) (object.Type, int64, error) {
	first, err := at.pack.item(at.offset)
	if err != nil || !first.isDelta() {
		return first.typ, first.size, err
	}
	size, err := r.deltaSize(at.pack, first)
	if err != nil {
		return 0, 0, err
	}
	it := first
	for range maxChain {
		if it, err = at.pack.item(it.base); err != nil || !it.isDelta() {
			return it.typ, size, err
		}
	}
	return 0, 0, errChain
}

var errChain = fmt.Errorf("%w: more than %d deltas on each other", object.ErrCorrupt, maxChain)

// deltaSize returns the size of the result of a delta.
func (r *Repo) deltaSize(p *pack, it item) (int64, error) {
	z := r.inflater()
	defer r.pool.Put(z)
	if err := z.reset(p.section(it.data)); err != nil {
		return 0, err
	}
	var head [20]byte
	n, err := io.ReadFull(z, head[:min(it.size, int64(len(head)))])
	if err != nil {
		return 0, damaged(err)
	}
	_, base := binary.Uvarint(head[:n])
	if base <= 0 {
		return 0, errDelta
	}
	size, used := binary.Uvarint(head[base:n])
	if used <= 0 || size>>62 != 0 {
		return 0, errDelta
	}
	return int64(size), nil
}

var errDelta = fmt.Errorf("%w: the head of a delta is damaged", object.ErrCorrupt)

// make returns the object that is stored as a delta at a place.
func (r *Repo) make(at place) (whole, error) {
	w, chain, err := r.base(at)
	for i := len(chain) - 1; i >= 0 && err == nil; i-- {
		var delta []byte
		if delta, err = r.inflate(at.pack, chain[i]); err != nil {
			break
		}
		if w.data, err = packfile.ApplyDelta(w.data, delta, min(r.max, MaxDelta)); err == nil && i > 0 {
			r.keep(place{at.pack, chain[i-1].base}, w)
		}
	}
	return w, err
}

// base returns the next object below a place that is whole or kept, and the
// deltas that lead there.
func (r *Repo) base(at place) (w whole, chain []item, err error) {
	for len(chain) <= maxChain {
		if w, ok := r.bases.Find(at); ok {
			return w, chain, nil
		}
		it, err := at.pack.item(at.offset)
		if err == nil && it.size > min(r.max, MaxDelta) {
			err = fmt.Errorf("a delta or its base has %d bytes, more than the limit of %d", it.size, min(r.max, MaxDelta))
		}
		if err != nil {
			return w, nil, err
		}
		if !it.isDelta() {
			w.typ = it.typ
			if w.data, err = r.inflate(at.pack, it); err == nil {
				r.keep(at, w)
			}
			return w, chain, err
		}
		chain = append(chain, it)
		at.offset = it.base
	}
	return w, nil, errChain
}

// keep keeps the base of a delta, unless it would push out everything else.
func (r *Repo) keep(at place, w whole) {
	if len(w.data) <= cacheBytes/8 {
		r.bases.Keep(at, w, len(w.data)+128)
	}
}

// inflate returns what is stored in a pack.
func (r *Repo) inflate(p *pack, it item) ([]byte, error) {
	z := r.inflater()
	defer r.pool.Put(z)
	if err := z.reset(p.section(it.data)); err != nil {
		return nil, err
	}
	// Memory is taken as the content comes: the size is only what the pack says.
	data := make([]byte, 0, min(it.size, 1<<20))
	for int64(len(data)) < it.size {
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := z.Read(data[len(data):min(int64(cap(data)), it.size)])
		data = data[:len(data)+n]
		if err != nil && int64(len(data)) < it.size {
			return nil, fmt.Errorf("%w: an object in the pack is truncated: %w", object.ErrCorrupt, err)
		}
	}
	return data, nil
}
