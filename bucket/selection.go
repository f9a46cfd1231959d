package bucket

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// A selection divides the listed objects into those in the artifact and the ignored ones.
type selection struct {
	files   []Object // in the artifact, including .sourceignore, sorted by key
	ignored []Object // excluded by rules, in any order
	notes   []string // for the report
	bytes   int64    // total size of files
}

// choose selects the files of the artifact: all listed objects except directory markers
// and those that rules ignore. The keys of the files must form a tree: they are paths,
// unique, and none is a directory of another. choose returns the revision's digest in
// hexadecimal.
//
// The error names the refused keys, or wraps a *[artifact.LimitError].
func (s *selection) choose(ctx context.Context, listed []Object, rules *artifact.Rules, limits artifact.Limits) (sum string, err error) {
	var refused, untagged, markers keyList
	s.files = make([]Object, 0, len(listed))
	for _, o := range listed {
		marker := strings.HasSuffix(o.Key, "/")
		if marker && o.Size == 0 {
			continue
		}
		if o.Key == ignoreFile {
			s.files = append(s.files, o)
			continue
		}
		_, ignored, err := rules.Match(ctx, strings.TrimSuffix(o.Key, "/"), marker)
		if err != nil {
			return "", err
		}
		problem := keyProblem(o.Key)
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
	if markers.count > 0 {
		s.notes = append(s.notes, fmt.Sprintf("the content of %d directory markers is left out: %s", markers.count, &markers))
	}
	sum = s.sum(&refused)
	switch {
	case refused.count > 0:
		return "", fmt.Errorf("keys that cannot be files of an artifact: %s: rename them, or exclude them with spec.ignore", &refused)
	case untagged.count > 0:
		return "", fmt.Errorf("objects whose changes cannot be detected: %s: the store must list an ETag for each", &untagged)
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

// limitsOf returns l with the default for each limit that is zero, and the maximum value
// for each that is negative, which means no limit.
func limitsOf(l artifact.Limits) artifact.Limits {
	l.Bytes = limitOrDefault(l.Bytes, 16<<30)
	l.FileBytes = limitOrDefault(l.FileBytes, l.Bytes)
	l.Entries = limitOrDefault(l.Entries, 1_000_000)
	l.NameBytes = limitOrDefault(l.NameBytes, maxPath)
	return l
}

func limitOrDefault[T int | int64](limit, standard T) T {
	if limit < 0 {
		return math.MaxInt
	}
	return cmp.Or(limit, standard)
}

// sum sorts the files, adds duplicate keys and keys that are directories of others to
// refused, and returns the digest of the revision's text.
func (s *selection) sum(refused *keyList) string {
	if !slices.IsSortedFunc(s.files, archiveOrder) {
		slices.SortFunc(s.files, archiveOrder) // the files of a directory are contiguous and follow a file of its name
	}
	for i, o := range s.files[min(1, len(s.files)):] {
		switch before := s.files[i].Key; {
		case o.Key == before:
			refused.add(o.Key, "is listed twice")
		case strings.HasPrefix(o.Key, before+"/"):
			refused.add(before, "is a directory of "+quoted(o.Key))
		}
	}
	if !slices.IsSortedFunc(s.files, byKey) {
		slices.SortFunc(s.files, byKey)
	}
	digest := sha256.New()
	for _, o := range s.files {
		if o.Key != ignoreFile {
			io.WriteString(digest, o.line())
		}
	}
	return hex.EncodeToString(digest.Sum(nil))
}

// all returns the files and the ignored objects, without ignored objects whose keys
// conflict with files or with each other.
func (s *selection) all() (all []Object) {
	file := func(o Object) bool { _, is := slices.BinarySearchFunc(s.files, o, byKey); return is }
	every := slices.Concat(s.files, s.ignored)
	slices.SortStableFunc(every, archiveOrder)
	for i, o := range every {
		last := len(all) - 1
		switch {
		case last >= 0 && (all[last].Key == o.Key || strings.HasPrefix(o.Key, all[last].Key+"/")):
		case !file(o) && i+1 < len(every) && strings.HasPrefix(every[i+1].Key, o.Key+"/"):
		default:
			all = append(all, o)
		}
	}
	return all
}

func byKey(a, b Object) int { return strings.Compare(a.Key, b.Key) }

// line returns the line for o in the text of a revision (reference A4).
func (o Object) line() string { return o.Key + " " + o.ETag + "\n" }

// Limits of a key that is a path.
const (
	maxPath = 4096 // bytes of the key
	maxPart = 255  // bytes between two slashes
)

// keyProblem describes why key is not a valid path; it returns "" if it is valid.
func keyProblem(key string) string {
	switch {
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
		switch {
		case len(part) > maxPart:
			return fmt.Sprintf("has a part of more than %d bytes", maxPart)
		case part == "":
			return "has an empty part"
		case part == "." || part == "..":
			return `has a part "." or ".."`
		}
	}
	return ""
}

// tagProblem describes why an ETag cannot be part of a revision's text; it returns "" if it can.
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

// keyList collects keys for an error or a note: the first maxNamed of them, and their number.
type keyList struct {
	first []string
	count int
}

// add adds key and its problem, which may be "".
func (n *keyList) add(key, problem string) {
	if n.count++; n.count <= maxNamed {
		n.first = append(n.first, strings.TrimSpace(quoted(key)+" "+problem))
	}
}

func (n *keyList) String() string {
	text := strings.Join(n.first, ", ")
	if more := n.count - len(n.first); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// quoted quotes a key, shortened to maxQuoted bytes.
func quoted(key string) string {
	if len(key) <= maxQuoted {
		return strconv.Quote(key)
	}
	return strconv.Quote(strings.ToValidUTF8(key[:maxQuoted], "")) + "…"
}

// A tree presents objects as files. They are in archive order: the files of a
// directory are contiguous, and its children are sorted by name.
type tree struct {
	list  []Object
	rules string // the content of .sourceignore
	open  func(o Object, i int) (io.ReadCloser, error)
}

// newTree returns the tree of objects whose keys are paths, none a directory of
// another. open opens o, which has index i in the tree.
func newTree(objects []Object, rules string, open func(o Object, i int) (io.ReadCloser, error)) *tree {
	if !slices.IsSortedFunc(objects, archiveOrder) {
		objects = slices.Clone(objects)
		slices.SortFunc(objects, archiveOrder)
	}
	return &tree{objects, rules, open}
}

// archiveOrder compares objects in the order of an archive: a/c precedes a-b, because
// the directory a does. By key, a/c would follow a-b.
func archiveOrder(a, b Object) int {
	for i := range min(len(a.Key), len(b.Key)) {
		x, y := a.Key[i], b.Key[i]
		switch {
		case x == y:
		case x == '/':
			return -1
		case y == '/':
			return 1
		default:
			return cmp.Compare(x, y)
		}
	}
	return cmp.Compare(len(a.Key), len(b.Key))
}

// search returns the index of the first object that does not precede key.
func (t *tree) search(key string) int {
	return sort.Search(len(t.list), func(i int) bool { return archiveOrder(t.list[i], Object{Key: key}) >= 0 })
}

// ReadDir implements [fs.ReadDirFS].
func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	prefix, end := "", len(t.list)
	if name != "." {
		prefix, end = name+"/", t.search(name+"/\xff") // no key has that byte
	}
	var list []fs.DirEntry
	for i := t.search(prefix); i < end; {
		child, _, isDir := strings.Cut(t.list[i].Key[len(prefix):], "/")
		if isDir {
			list = append(list, &entry{child, -1})
			i = t.search(prefix + child + "/\xff")
		} else {
			list = append(list, &entry{child, t.list[i].Size})
			i++
		}
	}
	switch {
	case !fs.ValidPath(name):
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrInvalid}
	case len(list) == 0 && name != ".":
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	return list, nil
}

// Open implements [fs.FS]. An opened directory cannot be read: use ReadDir of the tree.
func (t *tree) Open(name string) (fs.File, error) {
	if i := t.search(name); i < len(t.list) && t.list[i].Key == name {
		o := t.list[i]
		info := &entry{path.Base(name), o.Size}
		if name == ignoreFile {
			return &file{io.NopCloser(strings.NewReader(t.rules)), info}, nil
		}
		content, err := t.open(o, i)
		if err != nil {
			return nil, err
		}
		return &file{content, info}, nil
	}
	if _, err := t.ReadDir(name); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.Unwrap(err)}
	}
	return &file{io.NopCloser(strings.NewReader("")), &entry{path.Base(name), -1}}, nil
}

// A file is an open object, or a directory.
type file struct {
	io.ReadCloser
	info *entry
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }

// An entry describes a file or a directory.
type entry struct {
	name string
	size int64 // < 0: a directory
}

func (e *entry) Name() string               { return e.name }
func (e *entry) IsDir() bool                { return e.size < 0 }
func (e *entry) Type() fs.FileMode          { return e.Mode().Type() }
func (e *entry) Info() (fs.FileInfo, error) { return e, nil }
func (e *entry) Size() int64                { return max(e.size, 0) }
func (e *entry) ModTime() time.Time         { return time.Time{} }
func (e *entry) Sys() any                   { return nil }

func (e *entry) Mode() fs.FileMode {
	if e.IsDir() {
		return fs.ModeDir | 0o755
	}
	return 0o644
}

// directory returns the origin that reads a local directory instead of the bucket; ok is
// false if [source.Env].Local has none for it.
func (o *Origin) directory() (dir source.Origin, ok bool, err error) {
	spec := &o.bucket.Spec
	name, ok := o.env.Local[localName(spec)]
	if !ok {
		return nil, false, nil
	}
	text, err := localRules(name)
	if err != nil {
		return nil, true, fmt.Errorf("local directory %s: %w", name, err)
	}
	ignore := ignoreOf(spec, text)
	ignore.File = ""                    // files .sourceignore in subdirectories have no effect
	ignore.Extra += "\n!/" + ignoreFile // always in the artifact, as for a bucket
	view := source.DirView{Ignore: ignore}
	if spec.Prefix != "" {
		view.Select = func(_ context.Context, tree fs.FS) (fs.FS, error) { return prefixed{tree, spec.Prefix}, nil }
	}
	return source.Dir(o.bucket, name, view), true, nil
}

// localRules returns the text of .sourceignore at the top of a directory, or "" if there
// is no such regular file.
func localRules(dir string) (string, error) {
	list, err := os.ReadDir(dir)
	if !slices.ContainsFunc(list, func(e fs.DirEntry) bool { return e.Name() == ignoreFile && e.Type().IsRegular() }) {
		return "", err
	}
	f, err := os.OpenInRoot(dir, ignoreFile)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return readRules(f)
}

// readRules reads the text of .sourceignore, at most maxRules bytes.
func readRules(r io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxRules+1))
	if err == nil && len(text) > maxRules {
		err = fmt.Errorf("%s has more than %d bytes: shorten it", ignoreFile, maxRules)
	}
	return string(text), err
}

const maxRules = 1 << 20 // bytes of .sourceignore

// ignoreOf returns the ignore rules of a bucket whose .sourceignore contains text.
func ignoreOf(spec *source.BucketSpec, text string) artifact.Ignore {
	ignore := artifact.Ignore{File: ignoreFile, Top: text}
	if spec.Ignore != nil {
		ignore.Extra = *spec.Ignore
	}
	return ignore
}

// A prefixed tree contains .sourceignore and the files of another tree whose paths begin with prefix.
type prefixed struct {
	fs.FS
	prefix string
}

// ReadDir implements [fs.ReadDirFS].
func (p prefixed) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(p.FS, name)
	return slices.DeleteFunc(list, func(e fs.DirEntry) bool {
		at := path.Join(name, e.Name())
		return at != ignoreFile && !strings.HasPrefix(at, p.prefix) && !(e.IsDir() && strings.HasPrefix(p.prefix, at+"/"))
	}), err
}
