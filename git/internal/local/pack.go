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

	"github.com/headgate-io/headgate/git/internal/object"
)

// A pack is a pack and its index (gitformat-pack, index version 2).
type pack struct {
	index, data *os.File
	dataSize    int64
	idSize      int64
	fanout      [256]uint32 // number of objects whose ID begins with a byte up to this one
}

// scan opens the packs that are not open yet. It returns how many are open
// then, by whomever: none is closed before the repository is.
func (r *Repo) scan() (open int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, store := range r.stores {
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
			p, err := openPack(strings.TrimSuffix(name, ".idx"), r.format)
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

func openPack(base string, format object.Format) (*pack, error) {
	p := &pack{idSize: int64(format.Size())}
	var err error
	if p.data, err = openFile(base + ".pack"); err != nil {
		return nil, err
	}
	if p.index, err = openFile(base + ".idx"); err != nil {
		p.data.Close()
		return nil, err
	}
	if err = p.readHeaders(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *pack) close() error { return errors.Join(p.index.Close(), p.data.Close()) }

// headerBytes is the length of what comes before the IDs in an index.
const headerBytes = 8 + 256*4

func (p *pack) readHeaders() error {
	var head [headerBytes]byte
	if _, err := p.index.ReadAt(head[:], 0); err != nil && err != io.EOF {
		return err
	}
	if string(head[:8]) != "\xfftOc\x00\x00\x00\x02" {
		return fmt.Errorf("%w: not an index of version 2: run git index-pack", object.ErrCorrupt)
	}
	last := uint32(0)
	for i := range p.fanout {
		p.fanout[i] = binary.BigEndian.Uint32(head[8+4*i:])
		if p.fanout[i] < last {
			return fmt.Errorf("%w: the fan-out table is not in order", object.ErrCorrupt)
		}
		last = p.fanout[i]
	}
	index, err := p.index.Stat()
	if err != nil {
		return err
	}
	if index.Size() < headerBytes+int64(last)*(p.idSize+8)+2*p.idSize {
		return fmt.Errorf("%w: the index is truncated", object.ErrCorrupt)
	}
	data, err := p.data.Stat()
	if err != nil {
		return err
	}
	p.dataSize = data.Size() - p.idSize // without the trailer
	return nil
}

// page is how many IDs find reads at once.
const page = 64

// find returns the offset of an object in the pack.
func (p *pack) find(id object.ID) (offset int64, ok bool, err error) {
	var buf [page * 32]byte
	want := id.AppendTo(nil)
	if int64(len(want)) != p.idSize {
		return 0, false, nil
	}
	from, to := int64(0), int64(p.fanout[want[0]])
	if want[0] > 0 {
		from = int64(p.fanout[want[0]-1])
	}
	for from < to {
		at := from
		if to-from > page {
			at = (from + to - page) / 2
		}
		n := min(page, to-at)
		ids := buf[:n*p.idSize]
		if _, err := p.index.ReadAt(ids, headerBytes+at*p.idSize); err != nil {
			return 0, false, err
		}
		switch {
		case bytes.Compare(want, ids[:p.idSize]) < 0:
			to = at
		case bytes.Compare(want, ids[(n-1)*p.idSize:]) > 0:
			from = at + n
		default:
			for i := range n {
				if bytes.Equal(ids[i*p.idSize:(i+1)*p.idSize], want) {
					offset, err := p.offset(at + i)
					return offset, err == nil, err
				}
			}
			return 0, false, nil
		}
	}
	return 0, false, nil
}

// offset returns the offset of object i of the index: 31 bits, or the number of
// an entry in a table of 64 bits.
func (p *pack) offset(i int64) (int64, error) {
	count := int64(p.fanout[255])
	var b [8]byte
	at := headerBytes + count*(p.idSize+4) // behind the IDs and their CRCs
	if _, err := p.index.ReadAt(b[:4], at+4*i); err != nil {
		return 0, err
	}
	offset := int64(binary.BigEndian.Uint32(b[:]))
	if offset>>31 == 0 {
		return offset, nil
	}
	if _, err := p.index.ReadAt(b[:], at+4*count+8*(offset&0x7fffffff)); err != nil {
		return 0, err
	}
	return int64(binary.BigEndian.Uint64(b[:]) &^ (1 << 63)), nil
}

// An item is the header of an object in a pack.
type item struct {
	typ  object.Type // or one of the two below
	size int64       // of the object or of the delta
	base int64       // of a delta: where its base begins
	data int64       // where the compressed data begins
}

const (
	offsetDelta object.Type = 6
	refDelta    object.Type = 7
)

func (i item) isDelta() bool { return i.typ > object.Tag }

// item reads the header of the object at offset.
func (p *pack) item(offset int64) (it item, err error) {
	var buf [64]byte
	if offset < 12 || offset >= p.dataSize {
		return it, fmt.Errorf("%w: an offset outside of the pack", object.ErrCorrupt)
	}
	n, err := p.data.ReadAt(buf[:], offset)
	if err != nil && err != io.EOF {
		return it, err
	}
	b := header{rest: buf[:n]}
	it.typ, it.size = b.typeAndSize()
	err = nil
	switch it.typ {
	case object.Commit, object.Tree, object.Blob, object.Tag:
	case offsetDelta:
		it.base = offset - b.distance()
	case refDelta:
		var found bool
		it.base, found, err = p.findBytes(b.take(int(p.idSize)))
		b.short = b.short || !found
	default:
		b.short = true
	}
	if err == nil && b.short {
		err = fmt.Errorf("%w: an object header in the pack at %d is damaged", object.ErrCorrupt, offset)
	}
	it.data = offset + int64(n-len(b.rest))
	return it, err
}

// findBytes is find for the base of a delta, which is in the same pack.
func (p *pack) findBytes(id []byte) (int64, bool, error) {
	base, err := object.IDFromBytes(id)
	if err != nil {
		return 0, false, nil
	}
	return p.find(base)
}

// A header is read byte by byte; short tells that there were too few, or wrong ones.
type header struct {
	rest  []byte
	short bool
}

func (h *header) next() byte {
	b := h.take(1)
	if h.short {
		return 0
	}
	return b[0]
}

func (h *header) take(n int) []byte {
	if h.short = h.short || n > len(h.rest); h.short {
		return nil
	}
	b := h.rest[:n]
	h.rest = h.rest[n:]
	return b
}

// typeAndSize reads three bits of type and a size, least significant bits first.
func (h *header) typeAndSize() (object.Type, int64) {
	c := h.next()
	typ, size := object.Type(c>>4&7), int64(c&15)
	for shift := 4; c&0x80 != 0 && shift < 56; shift += 7 {
		c = h.next()
		size |= int64(c&0x7f) << shift
	}
	return typ, size
}

// distance reads how far before a delta its base begins.
func (h *header) distance() int64 {
	distance := int64(-1)
	for c := byte(0x80); c&0x80 != 0 && distance < 1<<48; {
		c = h.next()
		distance = (distance+1)<<7 | int64(c&0x7f)
	}
	h.short = h.short || distance <= 0
	return distance
}
