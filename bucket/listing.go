package bucket

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Limits of a listing. A store that lists without end, and without repeating
// itself, is stopped by the limit of all objects.
const (
	maxListing = 512 << 20 // bytes of all objects, 4 million about
	maxKey     = 64 << 10  // bytes of a key that is listed, excluded or not
	maxTag     = 1 << 10   // bytes of an ETag and of a version
	objectSize = 64        // bytes of an object beside its texts
)

// A listing is the objects of a bucket, first in the order in which they were
// listed, and sorted by key as bytes once a selection was made.
type listing struct {
	objects []listedObject
	size    int64 // bytes of all objects
	cycle   cycle
	limit   int64 // of size, 0 for maxListing
}

// A listedObject is an object, and whether it is in the artifact.
type listedObject struct {
	Object
	ignored bool // by a rule: it is not in the artifact, but explained
	removed bool // it is to be taken from the listing
}

func (l *listing) len() int { return len(l.objects) }

// key returns the key of the object i.
func (l *listing) key(i int) string { return l.objects[i].Key }

// at returns the object i.
func (l *listing) at(i int) Object { return l.objects[i].Object }

// kept reports whether the object i is in the artifact: no rule ignores it.
func (l *listing) kept(i int) bool { return !l.objects[i].ignored }

// search returns the first i whose key is not less than key.
func (l *listing) search(key string) int {
	return sort.Search(l.len(), func(i int) bool { return l.key(i) >= key })
}

// copy returns a listing of the same objects, of which others may be selected.
func (l *listing) copy() *listing {
	return &listing{objects: slices.Clone(l.objects), size: l.size, limit: l.limit}
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
	if l.size += int64(len(o.Key) + len(o.ETag) + len(o.Version) + objectSize); l.size > limit {
		return fmt.Errorf("more than %d bytes of keys and ETags: narrow spec.prefix", limit)
	}
	l.objects = append(l.objects, listedObject{Object: o})
	return nil
}

// sort brings the objects into the order of their keys, which most stores list them in.
func (l *listing) sort() {
	compare := func(a, b listedObject) int { return strings.Compare(a.Key, b.Key) }
	if !slices.IsSortedFunc(l.objects, compare) {
		slices.SortFunc(l.objects, compare)
	}
}

// appendLine appends the line of o in the text of a revision (reference A4).
func (o Object) appendLine(line []byte) []byte {
	return append(append(append(append(line, o.Key...), ' '), o.ETag...), '\n')
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
