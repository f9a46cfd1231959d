package bucket

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-io/headgate/artifact"
)

// A selection is what of a listing is in the artifact.
type selection struct {
	files   []Object // of the artifact, .sourceignore among them, sorted by key
	ignored []Object // that rules leave out, in any order
	notes   []string // for the report
	bytes   int64    // of files
}

// choose takes from a listing what is no file: directory markers, and what rules
// ignore. The rest is a tree: keys are paths, none twice, and none is a directory
// of another. It returns the digest of the files, hexadecimal.
//
// The error names keys that are refused, or is a *[artifact.LimitError].
func (s *selection) choose(ctx context.Context, listed []Object, rules *artifact.Rules, limits artifact.Limits) (sum string, err error) {
	var refused, untagged, markers named
	var ignoreFiles []Object
	s.files = make([]Object, 0, len(listed))
	for _, o := range listed {
		marker := strings.HasSuffix(o.Key, "/")
		if marker && o.Size == 0 {
			continue
		}
		if o.Key == ignoreFile {
			ignoreFiles = append(ignoreFiles, o)
			continue
		}
		_, ignored, err := rules.Match(ctx, strings.TrimSuffix(o.Key, "/"), marker)
		if err != nil {
			return "", err
		}
		problem := problemOf(o.Key)
		switch {
		case marker && !ignored:
			markers.add(o.Key, "")
		case ignored && problem == "":
			s.ignored = append(s.ignored, o)
		case ignored:
		case problem != "":
			refused.add(o.Key, problem)
		default:
			if problem := tagProblem(o.ETag); problem != "" {
				untagged.add(o.Key, problem)
			}
			if err := s.add(o, limits); err != nil {
				return "", err
			}
		}
	}
	s.files = append(s.files, ignoreFiles...)
	if markers.count > 0 {
		s.notes = append(s.notes, fmt.Sprintf("the content of %d directory markers is left out: %s", markers.count, &markers))
	}
	sum = s.sum(&refused)
	switch {
	case refused.count > 0:
		return "", fmt.Errorf("keys that cannot be files of an artifact: %s: rename them, or exclude them with spec.ignore", &refused)
	case untagged.count > 0:
		return "", fmt.Errorf("objects that cannot be told from what they become: %s: the store must list an ETag for each", &untagged)
	}
	return sum, nil
}

// add adds o to the files, within limits.
func (s *selection) add(o Object, limits artifact.Limits) error {
	key, what, limit := o.Key, "", int64(0)
	switch {
	case len(key) > limits.NameBytes:
		what, limit = "bytes in its name", int64(limits.NameBytes)
	case o.Size > limits.FileBytes:
		what, limit = "bytes", limits.FileBytes
	case len(s.files) >= limits.Entries:
		key, what, limit = "", "objects", int64(limits.Entries)
	case o.Size > limits.Bytes-s.bytes:
		key, what, limit = "", "bytes in all objects", limits.Bytes
	default:
		s.files = append(s.files, o)
		s.bytes += o.Size
		return nil
	}
	return fmt.Errorf("%w; or narrow spec.prefix or spec.ignore", &artifact.LimitError{What: what, Limit: limit, Name: key[:min(64, len(key))]})
}

// limitsOf returns l with every number set: zero is the default, negative none.
func limitsOf(l artifact.Limits) artifact.Limits {
	l.Bytes = bound(l.Bytes, 16<<30)
	l.FileBytes = bound(l.FileBytes, l.Bytes)
	l.Entries = bound(l.Entries, 1_000_000)
	l.NameBytes = bound(l.NameBytes, maxPath)
	return l
}

func bound[T int | int64](limit, standard T) T {
	if limit < 0 {
		return math.MaxInt
	}
	return cmp.Or(limit, standard)
}

// sum sorts the files, refuses those that cannot be together, and returns the
// digest of the text of the revision.
func (s *selection) sum(refused *named) string {
	if !slices.IsSortedFunc(s.files, byKey) {
		slices.SortFunc(s.files, byKey)
	}
	digest := sha256.New()
	for i, o := range s.files {
		if i > 0 && s.files[i-1].Key == o.Key {
			refused.add(o.Key, "is listed twice")
			continue
		}
		// Keys that begin with this one come behind it; those of its directory need not be the first of them.
		if rest := s.files[i+1:]; len(rest) > 0 && strings.HasPrefix(rest[0].Key, o.Key) {
			if child := below(rest, o.Key); child != "" {
				refused.add(o.Key, "is a directory of "+quoted(child))
			}
		}
		if o.Key != ignoreFile {
			io.WriteString(digest, o.line())
		}
	}
	return hex.EncodeToString(digest.Sum(nil))
}

// all returns the files and what rules leave out, except for what stands in the way of others.
func (s *selection) all() []Object {
	every := slices.Concat(s.files, s.ignored)
	slices.SortStableFunc(every, byKey)
	isFile := func(key string) bool {
		_, found := slices.BinarySearchFunc(s.files, key, func(o Object, key string) int { return strings.Compare(o.Key, key) })
		return found
	}
	list := slices.Clone(s.files)
	for _, o := range s.ignored {
		blocked := isFile(o.Key) || below(every, o.Key) != ""
		for i, c := range o.Key {
			blocked = blocked || c == '/' && isFile(o.Key[:i])
		}
		if !blocked {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, byKey)
	return slices.CompactFunc(list, func(a, b Object) bool { return a.Key == b.Key })
}

// below returns the first key of a sorted list that is in the directory name, "" when there is none.
func below(list []Object, name string) string {
	i := sort.Search(len(list), func(i int) bool { return list[i].Key >= name+"/" })
	if i < len(list) && strings.HasPrefix(list[i].Key, name+"/") {
		return list[i].Key
	}
	return ""
}

func byKey(a, b Object) int { return strings.Compare(a.Key, b.Key) }

// line returns the line of o in the text of a revision (reference A4).
func (o Object) line() string { return o.Key + " " + o.ETag + "\n" }

// Limits of a key that is a path.
const (
	maxPath = 4096 // bytes of the whole
	maxPart = 255  // bytes between two slashes
)

// problemOf says why key cannot be a path, "" if it can.
func problemOf(key string) string {
	switch {
	case key == "":
		return "is empty"
	case len(key) > maxPath:
		return fmt.Sprintf("has more than %d bytes", maxPath)
	case !utf8.ValidString(key):
		return "is not UTF-8 text"
	case strings.ContainsFunc(key, unicode.IsControl):
		return "has a control character"
	case strings.Contains(key, `\`):
		return "has a backslash"
	}
	for part := range strings.SplitSeq(key, "/") {
		if len(part) > maxPart {
			return fmt.Sprintf("has a part of more than %d bytes", maxPart)
		}
	}
	switch {
	case fs.ValidPath(key) && key != ".":
		return ""
	case strings.HasPrefix(key, "/") || strings.HasSuffix(key, "/") || strings.Contains(key, "//"):
		return "has an empty part"
	}
	return `has a part "." or ".."`
}

// tagProblem says why an ETag cannot be in the text of a revision, "" if it can.
func tagProblem(tag string) string {
	switch {
	case tag == "":
		return "has no ETag"
	case strings.ContainsFunc(tag, func(c rune) bool { return c <= ' ' || unicode.IsControl(c) || c == utf8.RuneError }):
		return "has an ETag " + quoted(tag) + ", which is none"
	}
	return ""
}

const (
	maxNamed  = 5   // keys that an error names
	maxQuoted = 100 // bytes of a key in an error
)

// named are keys that a text is about: the first of them, and how many there are.
type named struct {
	first []string
	count int
}

// add notes that key has a problem, or nothing more than that it is one of them.
func (n *named) add(key, problem string) {
	if n.count++; n.count <= maxNamed {
		n.first = append(n.first, strings.TrimSpace(quoted(key)+" "+problem))
	}
}

func (n *named) String() string {
	text := strings.Join(n.first, ", ")
	if more := n.count - len(n.first); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// quoted quotes a key, shortened.
func quoted(key string) string {
	if len(key) <= maxQuoted {
		return strconv.Quote(key)
	}
	return strconv.Quote(strings.ToValidUTF8(key[:maxQuoted], "")) + "…"
}
