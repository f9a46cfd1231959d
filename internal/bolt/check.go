package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// The format of the file: pages, each with a header of 16 bytes (id, kind,
// number of elements, number of pages that continue it). The first two hold what
// the file begins with, of which the one of the last transaction counts.
const (
	headerSize  = 16
	metaSize    = 64 // after the header
	magic       = 0xED0CDAED
	version     = 2
	elementSize = 16
	bucketSize  = 16

	kindBranch   = 0x01
	kindLeaf     = 0x02
	kindMeta     = 0x04
	kindFreelist = 0x10

	leafIsBucket = 0x01
	manyFree     = 0xFFFF // the number of elements stands in the first of them

	minPage, maxPage = 1 << 10, 16 << 20
	maxDepth         = 40
)

var order = binary.NativeEndian

// A meta is what a file begins with.
type meta struct {
	pageSize               int
	root, free, pages, txn uint64
}

// A space is how much of a file is free, and how much there is, in bytes.
type space struct{ free, all int64 }

// check returns an error unless the file is empty or one whose trees can be
// walked: every page is inside the file and used once, every element inside its
// page, and keys ascend.
func check(f *os.File) (space, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return space{}, err
	}
	m, err := readMeta(f)
	if err != nil {
		return space{}, err
	}
	if int64(m.pages) > info.Size()/int64(m.pageSize) {
		return space{}, fmt.Errorf("%w: it has %d bytes and should have %d", ErrCorrupt, info.Size(), m.pages*uint64(m.pageSize))
	}
	w := &walk{file: f, meta: m, seen: make([]bool, m.pages)}
	if err := w.bucket(m.root, 0); err != nil {
		return space{}, err
	}
	free, err := w.freelist()
	return space{int64(free) * int64(m.pageSize), int64(m.pages) * int64(m.pageSize)}, err
}

// readMeta returns the newer of the two metas that are valid.
func readMeta(f io.ReaderAt) (meta, error) {
	var best meta
	found := false
	for _, at := range metaPlaces(f) {
		buf := make([]byte, headerSize+metaSize)
		if _, err := f.ReadAt(buf, at); err != nil {
			continue
		}
		if m, ok := parseMeta(buf[headerSize:]); ok && (!found || m.txn > best.txn) {
			best, found = m, true
		}
	}
	if !found {
		return meta{}, fmt.Errorf("%w: it does not begin as such a file does", ErrCorrupt)
	}
	return best, nil
}

// metaPlaces returns where the second meta may be, and the first.
func metaPlaces(f io.ReaderAt) []int64 {
	buf := make([]byte, headerSize+metaSize)
	if _, err := f.ReadAt(buf, 0); err == nil {
		if m, ok := parseMeta(buf[headerSize:]); ok {
			return []int64{0, int64(m.pageSize)}
		}
	}
	places := []int64{0}
	for size := int64(minPage); size <= maxPage; size *= 2 {
		places = append(places, size)
	}
	return places
}

func parseMeta(b []byte) (meta, bool) {
	size := order.Uint32(b[8:])
	m := meta{pageSize: int(size), root: order.Uint64(b[16:]), free: order.Uint64(b[32:]), pages: order.Uint64(b[40:]), txn: order.Uint64(b[48:])}
	ok := order.Uint32(b) == magic && order.Uint32(b[4:]) == version && sumOf(b) == order.Uint64(b[56:])
	return m, ok && size >= minPage && size <= maxPage && size&(size-1) == 0 && m.pages < 1<<40
}

// sumOf returns the checksum of a meta, which is the end of it.
func sumOf(b []byte) uint64 {
	sum := fnv.New64a()
	sum.Write(b[:metaSize-8])
	return sum.Sum64()
}

// A walk goes through all pages that are in use.
type walk struct {
	meta
	file io.ReaderAt
	seen []bool
	last []byte // key in the bucket that is walked
}

var errPage = errors.New("a page is not what it should be")

// bucket walks the tree of one bucket.
func (w *walk) bucket(root uint64, depth int) error {
	outer := w.last
	w.last = nil
	err := w.tree(root, depth)
	w.last = outer
	return err
}

func (w *walk) tree(id uint64, depth int) error {
	page, kind, count, err := w.page(id)
	if err != nil {
		return err
	}
	switch {
	case depth > maxDepth:
		return w.bad(id)
	case kind == kindLeaf:
		return w.leaf(id, page, count, depth, false)
	case kind != kindBranch || count == 0:
		return w.bad(id)
	}
	for i := range count {
		key, ok := element(page, i, 0)
		if !ok {
			return w.bad(id)
		}
		if w.last != nil && bytes.Compare(key, w.last) <= 0 {
			return w.bad(id)
		}
		if err := w.tree(order.Uint64(page[headerSize+i*elementSize+8:]), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// leaf walks the elements of a leaf, and the buckets among them. A small bucket
// stands inside the leaf of another, as a page of its own.
func (w *walk) leaf(id uint64, page []byte, count, depth int, inside bool) error {
	for i := range count {
		flags := order.Uint32(page[headerSize+i*elementSize:])
		key, ok := element(page, i, 4)
		if !ok || w.last != nil && bytes.Compare(key, w.last) <= 0 {
			return w.bad(id)
		}
		w.last = bytes.Clone(key)
		if flags&leafIsBucket == 0 {
			continue
		}
		value := valueOf(page, i)
		if inside || len(value) < bucketSize {
			return w.bad(id)
		}
		if root := order.Uint64(value); root != 0 {
			if err := w.bucket(root, depth+1); err != nil {
				return err
			}
			continue
		}
		within := value[bucketSize:]
		if len(within) < headerSize {
			return w.bad(id)
		}
		n := int(order.Uint16(within[10:]))
		if order.Uint16(within[8:]) != kindLeaf || headerSize+n*elementSize > len(within) {
			return w.bad(id)
		}
		outer := w.last
		w.last = nil
		if err := w.leaf(id, within, n, depth, true); err != nil {
			return err
		}
		w.last = outer
	}
	return nil
}

// element returns the key of an element whose position stands at offset at.
func element(page []byte, i, at int) ([]byte, bool) {
	e := headerSize + i*elementSize
	start := uint64(e) + uint64(order.Uint32(page[e+at:]))
	end := start + uint64(order.Uint32(page[e+at+4:]))
	if at == 4 { // a leaf: the value follows the key
		if end+uint64(order.Uint32(page[e+12:])) > uint64(len(page)) {
			return nil, false
		}
	}
	if end > uint64(len(page)) || end == start && at == 4 {
		return nil, false
	}
	return page[start:end], true
}

// valueOf returns the value of an element of a leaf that has one.
func valueOf(page []byte, i int) []byte {
	e := headerSize + i*elementSize
	start := e + int(order.Uint32(page[e+4:])) + int(order.Uint32(page[e+8:]))
	return page[start : start+int(order.Uint32(page[e+12:]))]
}

// page reads a page with those that continue it, and marks them as seen.
func (w *walk) page(id uint64) (page []byte, kind, count int, err error) {
	header := make([]byte, headerSize)
	if id < 2 || id >= w.pages {
		return nil, 0, 0, w.bad(id)
	}
	if _, err := w.file.ReadAt(header, int64(id)*int64(w.pageSize)); err != nil {
		return nil, 0, 0, err
	}
	kind, count = int(order.Uint16(header[8:])), int(order.Uint16(header[10:]))
	more := uint64(order.Uint32(header[12:]))
	if order.Uint64(header) != id || id+more >= w.pages {
		return nil, 0, 0, w.bad(id)
	}
	for i := id; i <= id+more; i++ {
		if w.seen[i] {
			return nil, 0, 0, w.bad(id)
		}
		w.seen[i] = true
	}
	page = make([]byte, (1+int(more))*w.pageSize)
	if _, err := w.file.ReadAt(page, int64(id)*int64(w.pageSize)); err != nil {
		return nil, 0, 0, err
	}
	if kind != kindFreelist && headerSize+count*elementSize > len(page) {
		return nil, 0, 0, w.bad(id)
	}
	return page, kind, count, nil
}

// freelist checks the list of pages that are free, and returns how many are.
func (w *walk) freelist() (int, error) {
	page, kind, count, err := w.page(w.free)
	if err != nil {
		return 0, err
	}
	ids := page[headerSize:]
	if kind != kindFreelist {
		return 0, w.bad(w.free)
	}
	if count == manyFree {
		n := order.Uint64(ids)
		if ids = ids[8:]; n > uint64(len(ids)/8) {
			return 0, w.bad(w.free)
		}
		count = int(n)
	}
	if count > len(ids)/8 {
		return 0, w.bad(w.free)
	}
	for i := range count {
		id := order.Uint64(ids[8*i:])
		if id < 2 || id >= w.pages || w.seen[id] {
			return 0, w.bad(w.free)
		}
		w.seen[id] = true
	}
	return count, nil
}

func (w *walk) bad(id uint64) error { return fmt.Errorf("%w: %w (page %d)", ErrCorrupt, errPage, id) }
