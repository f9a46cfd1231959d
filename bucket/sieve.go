package bucket

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/artifact"
)

// A sieve decides what of a listing is in the artifact.
type sieve struct {
	list     *listing
	rules    *artifact.Rules
	limits   artifact.Limits
	ignore   bool // there is an object .sourceignore
	bytes    int64
	count    int
	refused  named // keys that can be in no artifact
	untagged named // objects without an ETag
	markers  named // directory markers that hold something
}

// sift sorts the listing and takes from it what is no file: directory markers,
// the object .sourceignore, ignored keys that cannot be paths, and of ignored
// keys those that stand in the way of others. What is left is a tree: keys are
// paths, none twice, and none is a directory of another. It returns the digest
// of the kept objects, hexadecimal.
//
// The error names keys that are refused, or is a *[artifact.LimitError].
func (s *sieve) sift(ctx context.Context) (sum string, err error) {
	if err := s.judge(ctx); err != nil {
		return "", err
	}
	s.list.sort()
	sum = s.untangle()
	switch {
	case s.refused.count > 0:
		return "", fmt.Errorf("keys that cannot be files of an artifact: %s: rename them, or exclude them with spec.ignore", &s.refused)
	case s.untagged.count > 0:
		return "", fmt.Errorf("objects that cannot be told from what they become: %s: the store must list an ETag for each", &s.untagged)
	}
	return sum, nil
}

// judge looks at each object by itself.
func (s *sieve) judge(ctx context.Context) error {
	l := s.list
	left := l.index[:0]
	for _, p := range l.index {
		o := l.record(p)
		key := o.text()
		if key == ignoreFile {
			continue
		}
		if isMarker(key) {
			if err := s.mark(ctx, key, o); err != nil {
				return err
			}
			continue
		}
		_, ignored, err := s.rules.Match(ctx, key, false)
		if err != nil {
			return err
		}
		switch problem := s.problem(key); {
		case problem != "" && ignored:
			continue
		case problem != "":
			s.refused.add(key, problem)
			continue
		case ignored:
			p |= dropped
		default:
			if err := s.charge(key, o); err != nil {
				return err
			}
		}
		left = append(left, p)
	}
	l.index = left
	return nil
}

// problem says why key can be in no artifact, "" if it can.
func (s *sieve) problem(key string) string {
	if s.ignore && strings.HasPrefix(key, ignoreFile+"/") {
		return "has the object " + ignoreFile + " for a directory"
	}
	return problemOf(key)
}

// mark notes a directory marker that is not ignored and holds something; o is
// its record after the key.
func (s *sieve) mark(ctx context.Context, key string, o record) error {
	o.tag()
	o.text()
	if o.number() == 0 {
		return nil
	}
	_, ignored, err := s.rules.Match(ctx, strings.TrimSuffix(key, "/"), true)
	if err == nil && !ignored {
		s.markers.add(key, "")
	}
	return err
}

// charge counts an object that is kept; o is its record after the key.
func (s *sieve) charge(key string, o record) error {
	tag, isPacked := o.tag()
	if !isPacked {
		if problem := tagProblem(tag); problem != "" {
			s.untagged.add(key, problem)
		}
	}
	o.text()
	size := int64(o.number())
	allowed, what, limit := s.limits, "", int64(0)
	switch {
	case len(key) > allowed.NameBytes:
		what, limit = "bytes in its name", int64(allowed.NameBytes)
	case size > allowed.FileBytes:
		what, limit = "bytes", allowed.FileBytes
	case s.count == allowed.Entries:
		key, what, limit = "", "objects", int64(allowed.Entries)
	case size > allowed.Bytes-s.bytes:
		key, what, limit = "", "bytes in all objects", allowed.Bytes
	default:
		s.count++
		s.bytes += size
		return nil
	}
	return fmt.Errorf("%w; or narrow spec.prefix or spec.ignore", &artifact.LimitError{What: what, Limit: limit, Name: key[:min(64, len(key))]})
}

// The defaults of [artifact.Limits] for a bucket.
const (
	maxBytes   = 16 << 30
	maxEntries = 1_000_000
)

// limitsOf returns l with every number set.
func limitsOf(l artifact.Limits) artifact.Limits {
	l.Bytes = bound(l.Bytes, maxBytes)
	l.FileBytes = bound(l.FileBytes, l.Bytes)
	l.Entries = bound(l.Entries, maxEntries)
	l.NameBytes = bound(l.NameBytes, maxPath)
	return l
}

// bound resolves one limit: zero is the default, negative none.
func bound[T int | int64](limit, standard T) T {
	if limit < 0 {
		return math.MaxInt
	}
	return cmp.Or(limit, standard)
}

// gone is the place of an object that was taken from the listing.
const gone = ^place(0)

// untangle looks at each object beside those before it, and returns the digest
// of what is kept (reference A4).
func (s *sieve) untangle() string {
	l := s.list
	digest, line := sha256.New(), []byte(nil)
	w := knot{sieve: s, left: l.index[:0]}
	for _, p := range l.index {
		if w.add(p) && p&dropped == 0 {
			line = l.record(p).appendLine(line[:0])
			digest.Write(line)
		}
	}
	l.index = slices.DeleteFunc(w.left, func(p place) bool { return p == gone })
	return hex.EncodeToString(digest.Sum(nil))
}

// A knot finds keys that are listed twice or are directories of others.
//
// In the order of bytes a key comes before all that begin with it, those in a
// directory of its name and others, as in a, a-b, a/b.
type knot struct {
	*sieve
	left  []place
	last  string // the key that was added last
	above []int  // of the keys in left those that last begins with, itself included
}

// add adds the next object, unless that is in the way of what is left.
func (k *knot) add(p place) bool {
	key := k.list.keyAt(p)
	same := common(k.last, key)
	for len(k.above) > 0 && len(k.list.keyAt(k.left[k.top()])) > same {
		k.above = k.above[:len(k.above)-1]
	}
	if len(k.above) > 0 && len(k.list.keyAt(k.left[k.top()])) == same {
		switch {
		case same == len(key):
			k.refuse(p, key, "is listed twice")
			return false
		case key[same] == '/' && !k.enter(p, key):
			return false
		}
	}
	k.above = append(k.above, len(k.left))
	k.left, k.last = append(k.left, p), key
	return true
}

// top is where in left the longest key above is.
func (k *knot) top() int { return k.above[len(k.above)-1] }

// enter decides about the object p, whose key is in a directory of the name of
// the last above: of two that cannot be, the one that is kept stays.
func (k *knot) enter(p place, key string) bool {
	parent := &k.left[k.top()]
	if *parent&dropped == 0 && p&dropped != 0 {
		return false
	}
	if *parent&dropped != 0 {
		*parent = gone
	} else {
		k.refuse(p, k.list.keyAt(*parent), "is a directory of "+quoted(key))
	}
	k.above = k.above[:len(k.above)-1]
	return true
}

// refuse notes a problem of an object unless that is dropped.
func (k *knot) refuse(p place, key, problem string) {
	if p&dropped == 0 {
		k.refused.add(key, problem)
	}
}

// common returns how many bytes a and b begin with in common.
func common(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
