package lfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/headgate-io/headgate/git/internal/object"
)

// Options configures [Fill]. A limit below 1 means no limit.
type Options struct {
	FileBytes int64 // content of one object
	Bytes     int64 // content of all files, including Used
	Used      int64
	Temp      func() (*os.File, error)
	Progress  func(done, total int64) // bytes; called by one goroutine at a time

	// Fetch gets objects of the repository that tree is of, and gives each to spool.
	Fetch func(ctx context.Context, tree *object.FS, objects []Object, spool *Spool) error
}

// A pointerFile is a file that is a pointer.
type pointerFile struct {
	Object
	tree *object.FS
	name string // its path in tree
}

// Fill fetches the objects of all pointers in view and replaces the pointers in the
// trees that view shows. nonPointers names the files that have the attribute and are no
// pointers: they stay unchanged. The caller closes held, which keeps the content,
// when the trees are no longer used; it is nil if there are no objects. view must not
// be read during the call.
func Fill(ctx context.Context, view fs.FS, o Options) (held io.Closer, nonPointers []string, err error) {
	finds, nonPointers, err := o.findPointers(ctx, view)
	if err != nil || len(finds) == 0 {
		return nil, nonPointers, err
	}
	type key struct {
		tree *object.FS
		oid  string
	}
	spool := &Spool{progress: o.Progress}
	known := map[key]Object{} // each object has one offset in the spool, per repository
	wanted := map[*object.FS][]Object{}
	var trees []*object.FS
	for i, f := range finds {
		before, again := known[key{f.tree, f.OID}]
		if again && before.Size != f.Size {
			return nil, nil, fmt.Errorf("%s and %s are pointers to one object with two sizes, %d and %d bytes", before.Path, f.Path, before.Size, f.Size)
		}
		if again {
			finds[i].Object = before
			continue
		}
		finds[i].offset = spool.total
		known[key{f.tree, f.OID}] = finds[i].Object
		if spool.total += f.Size; f.Size == 0 { // the empty object is not fetched
			continue
		}
		if wanted[f.tree] == nil {
			trees = append(trees, f.tree)
		}
		wanted[f.tree] = append(wanted[f.tree], finds[i].Object)
	}
	if err := spool.create(o.Temp); err != nil {
		return nil, nil, err
	}
	for _, tree := range trees {
		if err := o.Fetch(ctx, tree, wanted[tree], spool); err != nil {
			return nil, nil, errors.Join(err, spool.Close())
		}
	}
	for _, f := range finds {
		f.tree.Replace(f.name, spool.open(f.Object))
	}
	return spool, nonPointers, nil
}

// findPointers finds the pointers in view. It reads the attributes of a tree when it meets
// the first file of that tree.
func (o Options) findPointers(ctx context.Context, view fs.FS) (finds []pointerFile, nonPointers []string, err error) {
	total := o.Used
	attributes := map[*object.FS]*Attributes{}
	err = walkFiles(ctx, view, func(shown string, info fs.FileInfo) (err error) {
		tree, name := object.Locate(info)
		if tree == nil || info.Size() == 0 { // an empty file is no pointer
			return nil
		}
		if attributes[tree] == nil {
			if attributes[tree], err = ReadAttributes(tree); err != nil {
				return err
			}
		}
		if !attributes[tree].Tracks(name) {
			return nil
		}
		p, err := Pointer{}, ErrNotPointer
		if info.Size() < maxPointer {
			var b []byte
			if b, err = tree.ReadFile(name); err == nil {
				p, err = ParsePointer(b)
			}
		}
		if errors.Is(err, ErrNotPointer) {
			nonPointers = append(nonPointers, shown)
			return nil
		}
		if err == nil {
			total, err = o.addSize(total, p)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", shown, err)
		}
		finds = append(finds, pointerFile{Object{Pointer: p, Path: shown}, tree, name})
		return nil
	})
	return finds, nonPointers, err
}

// walkFiles calls f for each regular file of view.
func walkFiles(ctx context.Context, view fs.FS, f func(name string, info fs.FileInfo) error) error {
	return fs.WalkDir(view, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return f(name, info)
	})
}

// addSize adds the size of a pointer to total. It returns an error if a limit is
// exceeded.
func (o Options) addSize(total int64, p Pointer) (int64, error) {
	if o.FileBytes > 0 && p.Size > o.FileBytes {
		return 0, fmt.Errorf("the LFS object has %d bytes: more than the limit of %d, raise it if that is right", p.Size, o.FileBytes)
	}
	limit := o.Bytes
	if limit <= 0 {
		limit = math.MaxInt64
	}
	if p.Size > limit-total {
		return 0, fmt.Errorf("with the LFS object, which has %d bytes, all files have more than the limit of %d bytes, raise it if that is right", p.Size, limit)
	}
	return total + p.Size, nil
}

// Count returns how many files of view look like pointers, whatever their
// attributes. It reads only files that are as long as git-lfs writes pointers.
func Count(ctx context.Context, view fs.FS) (n int, err error) {
	err = walkFiles(ctx, view, func(name string, info fs.FileInfo) error {
		if info.Size() < 120 || info.Size() > 150 {
			return nil
		}
		b, err := fs.ReadFile(view, name)
		if err != nil {
			return err
		}
		if _, err := ParsePointer(b); err == nil {
			n++
		}
		return nil
	})
	return n, err
}

// maxPointer is the size that a pointer stays below, in bytes.
const maxPointer = 1024

// A Pointer is the content of a file that stands for an object.
type Pointer struct {
	OID  string // SHA-256 of the content, 64 hexadecimal digits in lower case
	Size int64  // of the content, in bytes
}

var (
	// ErrNotPointer is returned for content that is not a pointer.
	ErrNotPointer = errors.New("not a Git LFS pointer")
	// ErrExtension is returned for a pointer whose content went through extensions.
	ErrExtension = errors.New("the pointer uses Git LFS extensions, which are not supported: " +
		"store the file without them (git lfs ext, git lfs migrate)")
)

// versions are the first lines of pointers.
var versions = map[string]bool{
	"version https://git-lfs.github.com/spec/v1": true,
	"version https://hawser.github.com/spec/v1":  true, // before the first release of git-lfs
}

var emptyOID = hex.EncodeToString(sha256.New().Sum(nil))

// ParsePointer reads the content of a file. As git-lfs does, it takes a pointer
// whose lines end in CR LF, and one with blanks around it or no last line break.
func ParsePointer(b []byte) (Pointer, error) {
	if len(b) >= maxPointer {
		return Pointer{}, ErrNotPointer
	}
	lines := strings.Split(strings.ReplaceAll(strings.TrimSpace(string(b)), "\r\n", "\n"), "\n")
	if !versions[lines[0]] {
		return Pointer{}, ErrNotPointer
	}
	lines = lines[1:]
	if len(lines) > 0 && strings.HasPrefix(lines[0], "ext-") {
		return Pointer{}, ErrExtension
	}
	if len(lines) != 2 {
		return Pointer{}, fmt.Errorf("%w: it has %d lines after the first, want oid and size", ErrNotPointer, len(lines))
	}
	oid, ok := strings.CutPrefix(lines[0], "oid sha256:")
	if !ok || len(oid) != len(emptyOID) || strings.Trim(oid, "0123456789abcdef") != "" {
		return Pointer{}, fmt.Errorf("%w: no SHA-256 in the line oid", ErrNotPointer)
	}
	digits, ok := strings.CutPrefix(lines[1], "size ")
	size, err := strconv.ParseUint(digits, 10, 63)
	if !ok || err != nil {
		return Pointer{}, fmt.Errorf("%w: no number in the line size", ErrNotPointer)
	}
	if (size == 0) != (oid == emptyOID) {
		return Pointer{}, fmt.Errorf("%w: its size %d and its oid contradict each other", ErrNotPointer, size)
	}
	return Pointer{oid, int64(size)}, nil
}

// An Object is an object to fetch.
type Object struct {
	Pointer
	Path   string // of a file with its pointer, for messages
	offset int64  // in the spool
}

func (o Object) String() string { return fmt.Sprintf("object %s of %s", o.OID, o.Path) }

// A Spool holds objects in one temporary file, each in its own place. It is safe
// for concurrent use.
type Spool struct {
	file *os.File
	name string // removed by Close, "" if the file has no name

	mu       sync.Mutex
	done     int64
	total    int64
	progress func(done, total int64)
}

// create makes the file with temp; nil means one in [os.TempDir].
func (s *Spool) create(temp func() (*os.File, error)) (err error) {
	if temp != nil {
		s.file, err = temp()
	} else if s.file, err = os.CreateTemp("", "headgate-lfs-*"); err == nil {
		if s.name = s.file.Name(); os.Remove(s.name) == nil { // works where an open file can lose its name
			s.name = ""
		}
	}
	if err != nil {
		return fmt.Errorf("create spool: %w", err)
	}
	return nil
}

// Close removes the spool.
func (s *Spool) Close() error {
	err := s.file.Close()
	if s.name != "" {
		err = errors.Join(err, os.Remove(s.name))
	}
	return err
}

// open returns the content of an object.
func (s *Spool) open(o Object) *io.SectionReader {
	return io.NewSectionReader(s.file, o.offset, o.Size)
}

// errContent says that what was received is not what the pointer tells.
var errContent = errors.New("wrong content")

// Receive writes the content of an object from r to the spool and checks it. It reads
// at most one byte more than the object has. If r ends too early, the error wraps
// [io.ErrUnexpectedEOF], and the object can be received again.
func (s *Spool) Receive(ctx context.Context, o Object, r io.Reader) error {
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(io.NewOffsetWriter(s.file, o.offset), sum, progressWriter{ctx, s}), io.LimitReader(r, o.Size))
	if err == nil && n == o.Size {
		if more, _ := io.ReadFull(r, make([]byte, 1)); more > 0 {
			err = fmt.Errorf("%w: more than the %d bytes that its pointer tells", errContent, o.Size)
		}
	}
	switch digest := hex.EncodeToString(sum.Sum(nil)); {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
	case n < o.Size:
		err = fmt.Errorf("it ends after %d of %d bytes: %w", n, o.Size, io.ErrUnexpectedEOF)
	case digest != o.OID:
		err = fmt.Errorf("%w: its SHA-256 is %s, not that of its pointer", errContent, digest)
	}
	if err != nil {
		s.report(-n)
	}
	return err
}

// A progressWriter reports the bytes that are written to it, and fails when ctx ends.
type progressWriter struct {
	ctx   context.Context
	spool *Spool
}

func (c progressWriter) Write(p []byte) (int, error) {
	c.spool.report(int64(len(p)))
	return len(p), c.ctx.Err()
}

// report adds n bytes to the progress.
func (s *Spool) report(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done += n; s.progress != nil && n > 0 {
		s.progress(s.done, s.total)
	}
}

// FromRepository copies objects from the folder dir of a local repository to spool.
// Errors name the repository as repo.
func FromRepository(ctx context.Context, repo, dir string, objects []Object, spool *Spool) error {
	for _, o := range objects {
		name := filepath.Join(dir, o.OID[:2], o.OID[2:4], o.OID)
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("the local repository %s does not have it: run git lfs fetch there: %w", repo, fs.ErrNotExist)
		}
		if err == nil {
			err = fromFile(ctx, name, o, spool)
		}
		if err != nil {
			return fmt.Errorf("git lfs: %s: %w", o, err)
		}
	}
	return nil
}

func fromFile(ctx context.Context, name string, o Object, spool *Spool) error {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	return spool.Receive(ctx, o, in)
}
