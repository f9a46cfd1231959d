package bucket

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Limits of a listing. A store that lists without end, and without repeating
// itself, is stopped by the limit of all records.
const (
	maxListing = 512 << 20 // bytes of all records, 8 million objects about
	maxBlock   = 1 << 20   // bytes of a block
	maxKey     = 64 << 10  // bytes of a key that is listed, excluded or not
	maxTag     = 1 << 10   // bytes of an ETag and of a version
)

// A listing is the objects of a bucket, first in the order in which they were
// listed, and sorted by key as bytes once they were sifted.
//
// It costs about 30 bytes an object beyond its key when ETags are the sums that
// most stores give: objects are records in blocks, which are neither moved nor
// copied. Keys are parts of the blocks: reading one allocates nothing.
type listing struct {
	blocks []string
	last   strings.Builder // the block that is being filled
	size   int64           // bytes of all records
	index  []place
	cycle  cycle
	limit  int64 // of size, 0 for maxListing
}

// A place says where the record of an object begins, and whether the object is dropped.
type place uint32

const (
	dropped   place = 1 << 31
	blockBits       = 20 // of the offset in a block; 11 are left for the number of the block
)

func (l *listing) len() int { return len(l.index) }

// key returns the key of the object i.
func (l *listing) key(i int) string { return l.keyAt(l.index[i]) }

// at returns the object i.
func (l *listing) at(i int) Object { return l.record(l.index[i]).object() }

// kept reports whether the object i is in the artifact: no rule ignores it.
func (l *listing) kept(i int) bool { return l.index[i]&dropped == 0 }

// search returns the first i whose key is not less than key.
func (l *listing) search(key string) int {
	return sort.Search(l.len(), func(i int) bool { return l.key(i) >= key })
}

func (l *listing) keyAt(p place) string {
	r := l.record(p)
	return r.text()
}

// record returns the record at p.
func (l *listing) record(p place) record {
	p &^= dropped
	block := l.last.String()
	if n := int(p >> blockBits); n < len(l.blocks) {
		block = l.blocks[n]
	}
	return record(block[p&(1<<blockBits-1):])
}

// add appends o. The error names a key that the store listed before, a value
// that cannot be, or the limit.
func (l *listing) add(o Object) error {
	switch {
	case len(o.Key) > maxKey:
		return fmt.Errorf("object %s has a key of %d bytes: no object store allows that", quoted(o.Key), len(o.Key))
	case len(o.ETag) > maxTag || len(o.Version) > maxTag:
		return fmt.Errorf("object %s has an ETag of %d bytes and a version of %d: at most %d are allowed", quoted(o.Key), len(o.ETag), len(o.Version), maxTag)
	case o.Size < 0:
		return fmt.Errorf("object %s has %d bytes, says the store", quoted(o.Key), o.Size)
	case l.cycle.repeats(o.Key):
		return fmt.Errorf("the store repeats its listing: object %s was listed before", quoted(o.Key))
	}
	limit := l.limit
	if limit == 0 {
		limit = maxListing
	}
	if l.size += int64(recordSize(o)); l.size > limit {
		return fmt.Errorf("more than %d bytes of keys and ETags: narrow spec.prefix", limit)
	}
	l.append(o)
	return nil
}

// append appends o, which is within the limits.
func (l *listing) append(o Object) {
	need := recordSize(o)
	if l.last.Len()+need > maxBlock {
		l.blocks = append(l.blocks, l.last.String())
		l.last = strings.Builder{}
		l.last.Grow(maxBlock)
	}
	l.index = append(l.index, place(len(l.blocks)<<blockBits|l.last.Len()))
	appendRecord(&l.last, o)
}

// sort brings the objects into the order of their keys, which most stores list them in.
func (l *listing) sort() {
	compare := func(a, b place) int { return strings.Compare(l.keyAt(a), l.keyAt(b)) }
	if !slices.IsSortedFunc(l.index, compare) {
		slices.SortFunc(l.index, compare)
	}
}

// A cycle notices a sequence of keys, or of page tokens, that repeats itself
// without keeping it (Brent's algorithm): it remembers one key, a later one each time that the
// sequence has doubled.
type cycle struct {
	key         string
	since, next int // keys since that one, and until the next is remembered
}

// repeats reports whether key is the remembered one.
func (c *cycle) repeats(key string) bool {
	if c.next > 0 && key == c.key {
		return true
	}
	if c.since++; c.since > c.next {
		c.key, c.since, c.next = strings.Clone(key), 0, max(1, 2*c.next)
	}
	return false
}
