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

// A selection decides what of a listing is in the artifact.
type selection struct {
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

// choose sorts the listing and takes from it what is no file: directory markers,
// the object .sourceignore, ignored keys that cannot be paths, and of ignored
// keys those that stand in the way of others. What is left is a tree: keys are
// paths, none twice, and none is a directory of another. It returns the digest
// of the kept objects, hexadecimal.
//
// The error names keys that are refused, or is a *[artifact.LimitError].
func (s *selection) choose(ctx context.Context) (sum string, err error) {
	if err := s.judge(ctx); err != nil {
		return "", err
	}
	s.list.sort()
	sum = s.resolveCollisions()
	switch {
	case s.refused.count > 0:
		return "", fmt.Errorf("keys that cannot be files of an artifact: %s: rename them, or exclude them with spec.ignore", &s.refused)
	case s.untagged.count > 0:
		return "", fmt.Errorf("objects that cannot be told from what they become: %s: the store must list an ETag for each", &s.untagged)
	}
	return sum, nil
}

// judge looks at each object by itself.
func (s *selection) judge(ctx context.Context) error {
	left := s.list.objects[:0]
	for _, o := range s.list.objects {
		if o.Key == ignoreFile {
			continue
		}
		if isMarker(o.Key) {
			if err := s.mark(ctx, o.Object); err != nil {
				return err
			}
			continue
		}
		_, ignored, err := s.rules.Match(ctx, o.Key, false)
		if err != nil {
			return err
		}
		switch problem := s.problem(o.Key); {
		case problem != "" && ignored:
			continue
		case problem != "":
			s.refused.add(o.Key, problem)
			continue
		case ignored:
			o.ignored = true
		default:
			if err := s.charge(o.Object); err != nil {
				return err
			}
		}
		left = append(left, o)
	}
	clear(s.list.objects[len(left):])
	s.list.objects = left
	return nil
}

// problem says why key can be in no artifact, "" if it can.
func (s *selection) problem(key string) string {
	if s.ignore && strings.HasPrefix(key, ignoreFile+"/") {
		return "has the object " + ignoreFile + " for a directory"
	}
	return problemOf(key)
}

// mark notes a directory marker that is not ignored and holds something.
func (s *selection) mark(ctx context.Context, o Object) error {
	if o.Size == 0 {
		return nil
	}
	_, ignored, err := s.rules.Match(ctx, strings.TrimSuffix(o.Key, "/"), true)
	if err == nil && !ignored {
		s.markers.add(o.Key, "")
	}
	return err
}

// charge counts an object that is kept.
func (s *selection) charge(o Object) error {
	if problem := tagProblem(o.ETag); problem != "" {
		s.untagged.add(o.Key, problem)
	}
	key, size := o.Key, o.Size
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

// resolveCollisions looks at each object beside those before it, and returns
// the digest of what is kept (reference A4).
func (s *selection) resolveCollisions() string {
	digest, line := sha256.New(), []byte(nil)
	c := collisionCheck{selection: s, left: s.list.objects[:0]}
	for _, o := range s.list.objects {
		if c.add(o) && !o.ignored {
			line = o.appendLine(line[:0])
			digest.Write(line)
		}
	}
	clear(s.list.objects[len(c.left):])
	s.list.objects = slices.DeleteFunc(c.left, func(o listedObject) bool { return o.removed })
	return hex.EncodeToString(digest.Sum(nil))
}

// A collisionCheck finds keys that are listed twice or are directories of others.
//
// In the order of bytes a key comes before all that begin with it, those in a
// directory of its name and others, as in a, a-b, a/b.
type collisionCheck struct {
	*selection
	left  []listedObject
	last  string // the key that was added last
	above []int  // of the keys in left those that last begins with, itself included
}

// add adds the next object, unless that is in the way of what is left.
func (c *collisionCheck) add(o listedObject) bool {
	same := common(c.last, o.Key)
	for len(c.above) > 0 && len(c.top().Key) > same {
		c.above = c.above[:len(c.above)-1]
	}
	if len(c.above) > 0 && len(c.top().Key) == same {
		switch {
		case same == len(o.Key):
			c.refuse(o, o.Key, "is listed twice")
			return false
		case o.Key[same] == '/' && !c.enter(o):
			return false
		}
	}
	c.above = append(c.above, len(c.left))
	c.left, c.last = append(c.left, o), o.Key
	return true
}

// top returns the object in left that has the longest key above.
func (c *collisionCheck) top() *listedObject { return &c.left[c.above[len(c.above)-1]] }

// enter decides about o, whose key is in a directory of the name of the last
// above: of two objects that cannot be together, the one that is kept stays.
func (c *collisionCheck) enter(o listedObject) bool {
	parent := c.top()
	if !parent.ignored && o.ignored {
		return false
	}
	if parent.ignored {
		parent.removed = true
	} else {
		c.refuse(o, parent.Key, "is a directory of "+quoted(o.Key))
	}
	c.above = c.above[:len(c.above)-1]
	return true
}

// refuse notes a problem with key, that of o or of its directory, unless o is ignored.
func (c *collisionCheck) refuse(o listedObject, key, problem string) {
	if !o.ignored {
		c.refused.add(key, problem)
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
