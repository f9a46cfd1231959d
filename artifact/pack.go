package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
)

// maxLeftOut bounds the number of entries in each list of a [Report].
const maxLeftOut = 1000

// A Report describes the content of an archive and what was left out of it.
type Report struct {
	Files        int       // regular files
	Dirs         int       // directories, including the root
	Bytes        int64     // content bytes of the files
	LeftOut      []LeftOut // entries that an archive cannot contain: links, devices, submodules; the first 1,000
	LeftOutTotal int       // number of entries left out
	Replaced     []string  // files that occur more than once in an archive that was read; the last one counts; the first 1,000
	Respelled    []string  // files whose names in an archive that was read are not clean, for example ./NAME or DIR//NAME; the first 1,000
}

// LeftOut is an entry that was left out and the mode that is the reason. A hard link in an archive
// has mode [fs.ModeIrregular].
type LeftOut struct {
	Name string
	Mode fs.FileMode
}

func (r *Report) addLeftOut(name string, mode fs.FileMode) {
	if r.LeftOutTotal++; len(r.LeftOut) < maxLeftOut {
		r.LeftOut = append(r.LeftOut, LeftOut{Name: name, Mode: mode})
	}
}

// Pack writes tree to w as a gzip-compressed archive in normal form: it compresses the output of
// [Tar] in parallel, and writes the same bytes on any machine.
func Pack(ctx context.Context, w io.Writer, tree fs.FS) (Report, error) {
	var none *Cache
	return none.Pack(ctx, w, tree)
}

// Tar writes tree to w as an uncompressed archive in normal form, as specified by the package
// comment. It reads files of up to 256 KiB ahead, several concurrently and at most 5 MiB in total,
// so tree must be safe for concurrent use; larger files are streamed. If the tree has a method
//
//	Omits(dir string) bool
//
// that reports true for a directory, the directory gets no entry of its own, but its contents do.
//
// When ctx ends, Tar fails with its cause as soon as pending reads of the tree return; a tree that
// waits for a network should watch ctx too. No goroutine is left running when Tar returns. Errors
// name the entry. They are errors of the tree, wrap [fs.ErrInvalid] for a name that no consumer
// would accept, or wrap [ErrChanged] if a file does not have the announced size. On an error, the
// report and the output are incomplete.
func Tar(ctx context.Context, w io.Writer, tree fs.FS) (Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	p := newPacker(ctx, tree)
	p.running.Go(p.walk)
	err := p.writeTo(w)
	cancel()
	p.running.Wait()
	if err != nil {
		return p.report, fmt.Errorf("pack: %w", err)
	}
	return p.report, nil
}

// Limits of reading ahead of writing.
const (
	smallFile  = 256 << 10 // larger files are streamed
	maxPending = 16        // entries; hides the latencies of a slow tree
)

// ErrChanged is wrapped by the error about a file whose size differs from the announced size when
// it is packed.
var ErrChanged = errors.New("size changed while it was read: pack again when no program changes the tree")

// A packer turns a tree into a tar stream: one goroutine walks the tree and prepares the entries,
// another goroutine reads each small file, and the caller's goroutine writes all in order.
type packer struct {
	ctx     context.Context
	tree    fs.FS
	omits   func(dir string) bool
	report  Report // owned by the walker until running is done
	entries chan *tarEntry
	free    chan *tarEntry
	stream  []byte // buffer for large files
	running sync.WaitGroup
}

// A tarEntry is a directory or file and its bytes in the tar stream.
type tarEntry struct {
	name   string
	size   int64
	data   []byte // header, content and padding; only the header if stream
	stream bool   // a large file, whose content follows data
	ready  chan error
}

func newPacker(ctx context.Context, tree fs.FS) *packer {
	p := &packer{
		ctx: ctx, tree: tree, omits: func(string) bool { return false },
		entries: make(chan *tarEntry, maxPending), free: make(chan *tarEntry, maxPending),
	}
	if o, ok := tree.(omitter); ok {
		p.omits = o.Omits
	}
	for range maxPending {
		p.free <- &tarEntry{ready: make(chan error, 1)}
	}
	return p
}

// readFile reads a whole file into content.
func (p *packer) readFile(name string, content []byte) error {
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	f, err := p.tree.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	n := 0
	for n < len(content) && err == nil {
		var more int
		more, err = f.Read(content[n:])
		n += more
	}
	switch {
	case n == len(content):
		return checkEOF(f)
	case err == io.EOF:
		return fmt.Errorf("%w (%d bytes instead of %d)", ErrChanged, n, len(content))
	}
	return err
}

// checkEOF checks that r is at its end. Reading to the end also makes a verifying reader check the
// content.
func checkEOF(r io.Reader) error {
	switch n, err := io.ReadFull(r, make([]byte, 1)); {
	case n > 0:
		return fmt.Errorf("%w (it has grown)", ErrChanged)
	case err != io.EOF:
		return err
	}
	return nil
}

// writeTo writes the entries in order, then the end of the archive.
func (p *packer) writeTo(w io.Writer) error {
	for e := range p.entries {
		if err := <-e.ready; err != nil {
			return err
		}
		if _, err := w.Write(e.data); err != nil {
			return fmt.Errorf("write archive: %w", err)
		}
		if e.stream {
			if err := p.writeFile(w, e); err != nil {
				return fmt.Errorf("%q: %w", e.name, err)
			}
		}
		p.free <- e
	}
	if p.ctx.Err() != nil { // the walk was cut short
		return context.Cause(p.ctx)
	}
	if _, err := w.Write(tarEnd[:]); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return nil
}

// writeFile streams a large file and its padding.
func (p *packer) writeFile(w io.Writer, file *tarEntry) error {
	f, err := p.tree.Open(file.name)
	if err != nil {
		return err
	}
	defer f.Close()
	if p.stream == nil {
		p.stream = make([]byte, 128<<10)
	}
	in := &contextReader{p.ctx, f}
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, io.LimitReader(in, file.size), p.stream)
	if err != nil {
		return err
	}
	if n < file.size {
		return fmt.Errorf("%w (%d bytes instead of %d)", ErrChanged, n, file.size)
	}
	if err := checkEOF(f); err != nil {
		return err
	}
	_, err = w.Write(tarEnd[:padding(file.size)])
	return err
}

// A contextReader stops reading when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// walk prepares the entries of the tree in lexical order. If an entry fails, its error replaces it.
func (p *packer) walk() {
	defer close(p.entries)
	if err := fs.WalkDir(p.tree, ".", p.visit); err != nil && p.ctx.Err() == nil {
		if e, err1 := p.takeEntry(); err1 == nil {
			e.ready <- err
			p.entries <- e
		}
	}
}

// takeEntry takes a free entry, and waits for one if necessary.
func (p *packer) takeEntry() (*tarEntry, error) {
	select {
	case e := <-p.free:
		return e, nil
	case <-p.ctx.Done():
		return nil, context.Cause(p.ctx)
	}
}

// visit prepares one entry; it is an [fs.WalkDirFunc].
func (p *packer) visit(name string, d fs.DirEntry, err error) error {
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	if root := p.report.Dirs == 0; err == nil && !root {
		err = checkBase(d.Name())
	}
	if err == nil {
		err = p.addEntry(name, d)
	}
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	return nil
}

// checkBase refuses names that consumers refuse (reference A7) and names that no [fs.FS] may have.
func checkBase(base string) error {
	switch {
	case base == "" || base == "." || base == ".." || strings.Contains(base, "/"):
		return fmt.Errorf("%w: %q is not a file name", fs.ErrInvalid, base)
	case strings.ContainsAny(base, "\\\x00"):
		return fmt.Errorf("%w: no artifact can hold a name with a backslash or NUL: rename it or ignore it", fs.ErrInvalid)
	}
	return nil
}

// addEntry prepares a directory or a file, and reports any other entry as left out.
func (p *packer) addEntry(name string, d fs.DirEntry) error {
	switch {
	case d.IsDir():
		if name != "." && p.omits(name) {
			return nil
		}
		p.report.Dirs++
		return p.enqueue(name, modeDir, 0)
	case name == ".":
		return errors.New("the tree is not a directory")
	case !d.Type().IsRegular():
		p.report.addLeftOut(name, d.Type())
		return nil
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() < 0 {
		return fmt.Errorf("%w (it is no regular file any more)", ErrChanged)
	}
	p.report.Files++
	p.report.Bytes += info.Size()
	if isExec(info) {
		return p.enqueue(name, modeExec, info.Size())
	}
	return p.enqueue(name, modeFile, info.Size())
}

// enqueue prepares an entry and starts reading the content of a small file.
func (p *packer) enqueue(name string, mode, size int64) error {
	e, err := p.takeEntry()
	if err != nil {
		return err
	}
	e.name, e.size, e.stream = name, size, size > smallFile
	if e.data, err = appendHeader(e.data[:0], name, mode, size); err != nil {
		return err
	}
	if mode == modeDir || e.stream {
		e.ready <- nil
	} else {
		start := len(e.data)
		end := start + int(size)
		e.data = slices.Grow(e.data, int(size)+tarBlock)[:end+padding(size)]
		clear(e.data[end:])
		p.running.Go(func() {
			err := p.readFile(name, e.data[start:end])
			if err != nil {
				err = fmt.Errorf("%q: %w", name, err)
			}
			e.ready <- err
		})
	}
	p.entries <- e // never blocks: there is room for all entries
	return nil
}

// The modes of the normal form (reference A6).
const (
	modeDir  = 0o750
	modeFile = 0o600
	modeExec = 0o700
)

// tarBlock is the unit of the tar format.
const tarBlock = 512

// tarEnd is the end-of-archive marker.
var tarEnd [2 * tarBlock]byte

// padding returns the number of bytes that fill a file's last block.
func padding(size int64) int { return int(-size & (tarBlock - 1)) }

// appendHeader appends the header of an entry to data: USTAR if that can hold the values, else PAX.
func appendHeader(data []byte, name string, mode, size int64) ([]byte, error) {
	header := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size}
	if mode == modeDir {
		header.Typeflag = tar.TypeDir
	}
	out := bytes.NewBuffer(data)
	err := tar.NewWriter(out).WriteHeader(&header)
	return out.Bytes(), err
}

func isExec(info fs.FileInfo) bool { return info.Mode()&0o111 != 0 }
