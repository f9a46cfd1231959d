package local

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"github.com/headgate-io/headgate/git/internal/object"
)

// maxChain bounds the deltas in one chain (Git's own bound is 4095).
const maxChain = 4096

// cacheBytes bounds the memory for cached bases of deltas.
const cacheBytes = 32 << 20

// A pack is an open pack with its index in memory.
type pack struct {
	*os.File
	index *idxfile.MemoryIndex
	size  int64
}

// A packOffset is where an object is stored in a pack.
type packOffset struct {
	pack   *pack
	offset int64
}

// openPacks opens the packs that are not open yet. It returns how many are open
// afterwards, including those that other goroutines opened; packs stay open until the
// repository is closed.
func (r *Repo) openPacks() (open int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, store := range r.objectDirs {
		entries, err := os.ReadDir(filepath.Join(store, "pack"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		for _, e := range entries {
			name := filepath.Join(store, "pack", e.Name())
			if !strings.HasSuffix(name, ".idx") || r.packs[name] != nil {
				continue
			}
			p, err := openPack(strings.TrimSuffix(name, ".idx"))
			if errors.Is(err, fs.ErrNotExist) {
				continue // being removed, or not complete yet
			}
			if err != nil {
				return 0, fmt.Errorf("%s: %w", name, err)
			}
			r.packs[name] = p
		}
	}
	return len(r.packs), nil
}

func openPack(base string) (*pack, error) {
	index, err := openFile(base + ".idx")
	if err != nil {
		return nil, err
	}
	defer index.Close()
	p := &pack{index: idxfile.NewMemoryIndex()}
	if p.File, err = openFile(base + ".pack"); err != nil {
		return nil, err
	}
	var info fs.FileInfo
	if err = corruptError(idxfile.NewDecoder(index).Decode(p.index)); err == nil {
		info, err = p.Stat()
	} else {
		err = fmt.Errorf("%w: make the index anew with git index-pack", err)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	p.size = info.Size()
	return p, nil
}

// find returns the offset of an object; ok is false where the pack lacks it.
func (p *pack) find(id plumbing.Hash) (offset int64, ok bool, err error) {
	offset, err = p.index.FindOffset(id)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return 0, false, nil
	}
	return offset, err == nil, corruptError(err)
}

// header reads the header of the object at an offset. ReadObject of the scanner then
// inflates its content.
func (p *pack) header(offset int64) (*packfile.ObjectHeader, *packfile.Scanner, error) {
	s := packfile.NewScanner(io.NewSectionReader(p, 0, p.size))
	h, err := s.SeekObjectHeader(offset)
	if err != nil {
		return nil, nil, corruptError(err)
	}
	switch h.Type {
	case plumbing.CommitObject, plumbing.TreeObject, plumbing.BlobObject, plumbing.TagObject, plumbing.OFSDeltaObject:
	case plumbing.REFDeltaObject:
		base, ok, err := p.find(h.Reference)
		if err != nil || !ok {
			return nil, nil, fmt.Errorf("%w: the base %v of a delta is not in its pack", object.ErrCorrupt, h.Reference)
		}
		h.OffsetReference = base
	default:
		return nil, nil, fmt.Errorf("%w: an object of type %d", object.ErrCorrupt, h.Type)
	}
	return h, s, nil
}

// statPacked returns the type and size of an object in a pack. For a delta, the
// size is at its beginning and the type at the end of the chain.
func (r *Repo) statPacked(at packOffset) (object.Type, int64, error) {
	h, s, err := at.pack.header(at.offset)
	if err != nil {
		return 0, 0, err
	}
	if !h.Type.IsDelta() {
		return object.Type(h.Type), h.Length, nil
	}
	content, err := s.ReadObject()
	if err != nil {
		return 0, 0, corruptError(err)
	}
	var head [20]byte
	n, err := io.ReadFull(content, head[:min(h.Length, int64(len(head)))])
	content.Close()
	if err != nil {
		return 0, 0, corruptError(err)
	}
	size, err := deltaSize(head[:n])
	for range maxChain {
		if err == nil {
			h, _, err = at.pack.header(h.OffsetReference)
		}
		if err != nil {
			return 0, 0, err
		}
		if !h.Type.IsDelta() {
			return object.Type(h.Type), size, nil
		}
	}
	return 0, 0, errChain
}

var errChain = fmt.Errorf("%w: more than %d deltas on each other", object.ErrCorrupt, maxChain)

// deltaSize returns the size of the result of a delta, which follows that of its base.
func deltaSize(delta []byte) (int64, error) {
	_, base := binary.Uvarint(delta)
	if base <= 0 {
		return 0, errDelta
	}
	size, used := binary.Uvarint(delta[base:])
	if used <= 0 || size>>62 != 0 {
		return 0, errDelta
	}
	return int64(size), nil
}

var errDelta = fmt.Errorf("%w: the head of a delta is damaged", object.ErrCorrupt)

// openPacked opens an object in a pack. Whole objects are streamed.
func (r *Repo) openPacked(at packOffset) (object.Type, int64, io.ReadCloser, error) {
	h, s, err := at.pack.header(at.offset)
	if err != nil {
		return 0, 0, nil, err
	}
	if h.Type.IsDelta() {
		w, err := r.resolveDelta(at)
		return w.typ, int64(len(w.data)), io.NopCloser(bytes.NewReader(w.data)), err
	}
	content, err := s.ReadObject()
	return object.Type(h.Type), h.Length, content, corruptError(err)
}

// A packedObject is the content of an object in a pack. It is shared and must not be changed.
type packedObject struct {
	typ  object.Type
	data []byte
}

// resolveDelta builds the object that is stored as a delta.
func (r *Repo) resolveDelta(at packOffset) (w packedObject, err error) {
	var chain []int64 // offsets of deltas, each based on the next
	for w.data == nil {
		var ok bool
		if w, ok = r.cachedBase(at); ok {
			break
		}
		h, _, err := at.pack.header(at.offset)
		switch {
		case err != nil:
			return w, err
		case !h.Type.IsDelta():
			w.typ = object.Type(h.Type)
			if w.data, err = r.inflate(at); err != nil {
				return w, err
			}
			r.cacheBase(at, w)
		case len(chain) == maxChain:
			return w, errChain
		default:
			chain = append(chain, at.offset)
			at.offset = h.OffsetReference
		}
	}
	for i := len(chain) - 1; i >= 0; i-- {
		at.offset = chain[i]
		delta, err := r.inflate(at)
		if err != nil {
			return w, err
		}
		size, err := deltaSize(delta)
		if err == nil {
			err = r.checkDeltaSize(size)
		}
		if err != nil {
			return w, err
		}
		if w.data, err = packfile.PatchDelta(w.data, delta); err != nil {
			return w, corruptError(err)
		}
		if i > 0 {
			r.cacheBase(at, w)
		}
	}
	return w, nil
}

// inflate returns what is stored at an offset: an object or a delta.
func (r *Repo) inflate(at packOffset) ([]byte, error) {
	h, s, err := at.pack.header(at.offset)
	if err == nil {
		err = r.checkDeltaSize(h.Length)
	}
	if err != nil {
		return nil, err
	}
	content, err := s.ReadObject()
	if err != nil {
		return nil, corruptError(err)
	}
	defer content.Close()
	// Memory grows with the content, because the declared size cannot be trusted.
	data := bytes.NewBuffer(make([]byte, 0, min(h.Length+bytes.MinRead, 1<<20)))
	if n, err := data.ReadFrom(content); err != nil {
		return nil, corruptError(err)
	} else if n != h.Length {
		return nil, fmt.Errorf("%w: an object has %d bytes instead of %d", object.ErrCorrupt, n, h.Length)
	}
	return data.Bytes(), nil
}

// checkDeltaSize returns an error if a delta, its base or its result is too large.
func (r *Repo) checkDeltaSize(size int64) error {
	if limit := min(r.max, MaxDelta); size > limit {
		return fmt.Errorf("a delta, its base or its result has %d bytes, more than the limit of %d", size, limit)
	}
	return nil
}

// cachedBase returns a cached base.
func (r *Repo) cachedBase(at packOffset) (w packedObject, ok bool) {
	r.cacheMu.Lock()
	defer r.cacheMu.Unlock()
	w, ok = r.bases[at]
	return w, ok
}

// cacheBase caches the base of a delta, unless it is larger than an eighth of the cache.
func (r *Repo) cacheBase(at packOffset, w packedObject) {
	if len(w.data) > cacheBytes/8 {
		return
	}
	r.cacheMu.Lock()
	defer r.cacheMu.Unlock()
	if r.cachedBytes += len(w.data) + 128; r.cachedBytes > cacheBytes {
		clear(r.bases)
		r.cachedBytes = len(w.data) + 128
	}
	r.bases[at] = w
}
