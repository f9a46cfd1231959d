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

// maxLeftOut bounds the entries that each list of a [Report] names.
const maxLeftOut = 1000

// A Report says what an archive holds and what was left out of it.
type Report struct {
	Files        int       // regular files
	Dirs         int       // directories, the root included
	Bytes        int64     // content bytes of the files
	LeftOut      []LeftOut // what an archive never holds: links, devices, submodules; the first 1,000
	LeftOutTotal int       // how many there were
	Replaced     []string  // files that an archive being read has more than once, the last of which counts; the first 1,000
	Respelled    []string  // files that an archive being read spells otherwise, for example ./NAME or DIR//NAME; the first 1,000
}

// LeftOut names one entry that was left out and the mode that says why. A
// hard link in an archive has mode [fs.ModeIrregular].
type LeftOut struct {
	Name string
	Mode fs.FileMode
}

func (r *Report) leaveOut(name string, mode fs.FileMode) {
	if r.LeftOutTotal++; len(r.LeftOut) < maxLeftOut {
		r.LeftOut = append(r.LeftOut, LeftOut{Name: name, Mode: mode})
	}
}

// Pack writes tree to w as a gzip-compressed archive in normal form: [Tar]
// compressed in parallel, the same bytes on any machine.
func Pack(ctx context.Context, w io.Writer, tree fs.FS) (Report, error) {
	var none *Cache
	return none.Pack(ctx, w, tree)
}

// Tar writes tree to w as an uncompressed archive in normal form, which the
// package comment specifies. Files of up to 256 KiB are read ahead, several at
// a time and at most 5 MiB in all, so tree must be safe for concurrent use;
// larger ones are streamed. A directory for which the tree's method
//
//	Omits(dir string) bool
//
// reports true, if it has one, gets no entry of its own; what it holds does.
//
// When ctx ends, Tar fails with its cause as soon as reads of the tree that
// are under way return; a tree that waits for a network should watch ctx too.
// Nothing runs on after Tar has returned. Errors name the entry: the tree's
// own; one that wraps [fs.ErrInvalid] for a name that no consumer would accept;
// one that wraps [ErrChanged] when a file does not have the size it announced.
// With an error the report is incomplete, and so is what was written.
func Tar(ctx context.Context, w io.Writer, tree fs.FS) (Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	p := newPacker(ctx, tree)
	err := p.writeTo(w)
	cancel()
	p.running.Wait()
	if err != nil {
		return p.report, fmt.Errorf("pack: %w", err)
	}
	return p.report, nil
}

// How far reading may run ahead of writing. A tree's small files are read
// straight into the place they have in the tar stream, in segments.
const (
	segmentSize = 128 << 10 // a segment is handed on once it has this many bytes
	smallFile   = 256 << 10 // larger files are streamed
	segments    = 12        // segments in flight; one is less than segmentSize + smallFile
	readers     = 16        // files read at a time, so that a slow tree's latencies overlap
)

// ErrChanged is wrapped by the error about a file that was longer or shorter
// than announced when it was packed.
var ErrChanged = errors.New("size changed while it was read: pack again once the tree is at rest")

// A packer turns a tree into a tar stream: one goroutine walks and lays out
// segments, several fill them, and the caller's writes them in order.
type packer struct {
	ctx     context.Context
	tree    fs.FS
	omits   func(dir string) bool
	report  Report // the walker's, until running is done
	laidOut chan *segment
	free    chan *segment
	tasks   chan task
	stream  []byte // buffer for large files
	running sync.WaitGroup
}

// A segment is a stretch of the tar stream.
type segment struct {
	data    []byte
	stream  *fileRef       // a file too large for data, which follows it
	pending sync.WaitGroup // tasks that still fill data
	mu      sync.Mutex
	failed  *fileRef // the first file, in order, that could not be read
	err     error
}

// A fileRef names a file and the bytes it announced.
type fileRef struct {
	name   string
	size   int64
	offset int // in the segment's data
}

// A task is to read one file into its segment.
type task struct {
	to   *segment
	file fileRef
}

func newPacker(ctx context.Context, tree fs.FS) *packer {
	p := &packer{
		ctx: ctx, tree: tree, omits: func(string) bool { return false },
		laidOut: make(chan *segment, segments),
		free:    make(chan *segment, segments),
		tasks:   make(chan task, readers),
	}
	if o, ok := tree.(interface{ Omits(dir string) bool }); ok {
		p.omits = o.Omits
	}
	for range segments {
		p.free <- &segment{}
	}
	p.running.Go(p.walk)
	for range readers {
		p.running.Go(p.fill)
	}
	return p
}

// fill reads files into their segments until there are no more.
func (p *packer) fill() {
	for t := range p.tasks {
		err := context.Cause(p.ctx)
		if err == nil {
			err = p.readFile(t)
		}
		if err != nil {
			t.to.fail(t.file, err)
		}
		t.to.pending.Done()
	}
}

// fail records the error of the first file in order.
func (s *segment) fail(file fileRef, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil || file.offset < s.failed.offset {
		s.failed, s.err = &file, fmt.Errorf("%q: %w", file.name, err)
	}
}

// readFile reads a whole file into its place.
func (p *packer) readFile(t task) error {
	f, err := p.tree.Open(t.file.name)
	if err != nil {
		return err
	}
	defer f.Close()
	n := 0
	for content := t.to.data[t.file.offset:][:t.file.size]; n < len(content) && err == nil; {
		var more int
		more, err = f.Read(content[n:])
		n += more
	}
	switch {
	case int64(n) == t.file.size:
		return atEnd(f)
	case err == io.EOF:
		return fmt.Errorf("%w (%d bytes instead of %d)", ErrChanged, n, t.file.size)
	}
	return err
}

// atEnd checks that r has no more to give; reading up to the end is also what
// makes a verifying reader check.
func atEnd(r io.Reader) error {
	switch n, err := io.ReadFull(r, make([]byte, 1)); {
	case n > 0:
		return fmt.Errorf("%w (it has grown)", ErrChanged)
	case err != io.EOF:
		return err
	}
	return nil
}

// writeTo writes the segments in order, then the end of the archive.
func (p *packer) writeTo(w io.Writer) error {
	for {
		select {
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		case s, more := <-p.laidOut:
			if !more {
				return p.writeEnd(w)
			}
			if err := p.writeSegment(w, s); err != nil {
				return err
			}
			s.data, s.stream = s.data[:0], nil
			p.free <- s
		}
	}
}

// writeEnd ends the archive, unless that is only where the walk was cut off.
func (p *packer) writeEnd(w io.Writer) error {
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	if _, err := w.Write(tarEnd[:]); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return nil
}

func (p *packer) writeSegment(w io.Writer, s *segment) error {
	s.pending.Wait()
	if s.err != nil {
		return s.err
	}
	if _, err := w.Write(s.data); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	if s.stream == nil {
		return nil
	}
	if err := p.writeFile(w, *s.stream); err != nil {
		return fmt.Errorf("%q: %w", s.stream.name, err)
	}
	return nil
}

// writeFile streams a large file and its padding.
func (p *packer) writeFile(w io.Writer, file fileRef) error {
	f, err := p.tree.Open(file.name)
	if err != nil {
		return err
	}
	defer f.Close()
	if p.stream == nil {
		p.stream = make([]byte, segmentSize)
	}
	in := &contextReader{p.ctx, f}
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, io.LimitReader(in, file.size), p.stream)
	if err != nil {
		return err
	}
	if n < file.size {
		return fmt.Errorf("%w (%d bytes instead of %d)", ErrChanged, n, file.size)
	}
	if err := atEnd(f); err != nil {
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

// A layout collects entries in the segment that is being laid out.
type layout struct {
	*packer
	seg   *segment
	files []fileRef // of seg, to be read once it is complete
}

// walk lays out the tree, entry after entry in lexical order.
func (p *packer) walk() {
	defer close(p.tasks)
	defer close(p.laidOut)
	l := &layout{packer: p}
	if err := l.next(); err != nil {
		return
	}
	if err := fs.WalkDir(p.tree, ".", l.visit); err != nil && l.seg != nil {
		l.seg.fail(fileRef{offset: len(l.seg.data)}, err)
	}
	l.handOn()
}

// next takes a free segment, waiting for one if need be.
func (l *layout) next() error {
	select {
	case l.seg = <-l.free:
		l.seg.data = slices.Grow(l.seg.data, segmentSize+segmentSize/4)
		return nil
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
}

// handOn passes the segment on, if there is one, and has its files read.
func (l *layout) handOn() {
	if l.seg == nil {
		return
	}
	l.seg.pending.Add(len(l.files))
	l.laidOut <- l.seg // never blocks: there is room for all segments
	for _, file := range l.files {
		l.tasks <- task{l.seg, file}
	}
	l.seg, l.files = nil, l.files[:0]
}

// visit lays out one entry; it is an [fs.WalkDirFunc].
func (l *layout) visit(name string, d fs.DirEntry, err error) error {
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	if root := l.report.Dirs == 0; err == nil && !root {
		err = checkBase(d.Name())
	}
	if err == nil {
		err = l.entry(name, d)
	}
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	if len(l.seg.data) < segmentSize && l.seg.stream == nil {
		return nil
	}
	l.handOn()
	return l.next()
}

// checkBase refuses names that consumers refuse (reference A7) and those that
// no [fs.FS] may have.
func checkBase(base string) error {
	switch {
	case base == "" || base == "." || base == ".." || strings.Contains(base, "/"):
		return fmt.Errorf("%w: %q is not a file name", fs.ErrInvalid, base)
	case strings.ContainsAny(base, "\\\x00"):
		return fmt.Errorf("%w: no artifact can hold a name with a backslash or NUL: rename it or ignore it", fs.ErrInvalid)
	}
	return nil
}

// entry lays out a directory or a file and reports what is neither.
func (l *layout) entry(name string, d fs.DirEntry) error {
	switch {
	case d.IsDir():
		if name != "." && l.omits(name) {
			return nil
		}
		l.report.Dirs++
		return l.putHeader(name, modeDir, 0)
	case name == ".":
		return errors.New("the tree is not a directory")
	case !d.Type().IsRegular():
		l.report.leaveOut(name, d.Type())
		return nil
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() < 0 {
		return fmt.Errorf("%w (it is no regular file any more)", ErrChanged)
	}
	return l.file(name, info)
}

// file lays out a regular file: its header, and its place unless it is large.
func (l *layout) file(name string, info fs.FileInfo) error {
	mode, size := int64(modeFile), info.Size()
	if info.Mode()&0o111 != 0 {
		mode = modeExec
	}
	if err := l.putHeader(name, mode, size); err != nil {
		return err
	}
	l.report.Files++
	l.report.Bytes += size
	file := fileRef{name: name, size: size, offset: len(l.seg.data)}
	if size > smallFile {
		l.seg.stream = &file
		return nil
	}
	l.files = append(l.files, file)
	end := file.offset + int(size)
	l.seg.data = slices.Grow(l.seg.data, int(size)+tarBlock)[:end+padding(size)]
	clear(l.seg.data[end:])
	return nil
}

// putHeader lays out one header.
func (l *layout) putHeader(name string, mode, size int64) (err error) {
	l.seg.data, err = appendHeader(l.seg.data, name, mode, size)
	return err
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

// padding returns how many bytes fill a file's last block.
func padding(size int64) int { return int(-size & (tarBlock - 1)) }

// The fields of a USTAR header in which entries differ.
const (
	nameSize   = 100 // at 0
	modeOffset = 100
	sizeOffset = 124
	sumOffset  = 148
	typeOffset = 156
)

// ustar is the header that those fields are put into. Numbers are octal; the
// checksum is spaces, as it counts towards itself.
var ustar = func() (header [tarBlock]byte) {
	for offset, text := range map[int]string{
		modeOffset: "0000000\x00",
		108:        "0000000\x00",     // user
		116:        "0000000\x00",     // group
		sizeOffset: "00000000000\x00", //
		136:        "00000000000\x00", // modification time
		sumOffset:  "        ",        //
		257:        "ustar\x0000",     // magic and version
		329:        "0000000\x00",     // device, major
		337:        "0000000\x00",     // device, minor
	} {
		copy(header[offset:], text)
	}
	return header
}()

// appendHeader appends the header of an entry to data. It is the one that
// archive/tar makes: USTAR where that can hold the values, PAX where not. The
// simple ones, nearly all, are made here: that takes a third of the time and no
// memory.
func appendHeader(data []byte, name string, mode, size int64) ([]byte, error) {
	kind := byte(tar.TypeReg)
	if mode == modeDir {
		kind = tar.TypeDir
	}
	if len(name) > nameSize || !isText(name) || size >= 1<<(3*11) {
		var header bytes.Buffer
		err := tar.NewWriter(&header).WriteHeader(&tar.Header{Typeflag: kind, Name: name, Mode: mode, Size: size})
		return append(data, header.Bytes()...), err
	}
	data = append(data, ustar[:]...)
	header := data[len(data)-tarBlock:]
	copy(header, name)
	putOctal(header[modeOffset:][:7], mode)
	putOctal(header[sizeOffset:][:11], size)
	header[typeOffset] = kind
	var sum int64
	for _, b := range header {
		sum += int64(b)
	}
	putOctal(header[sumOffset:][:6], sum)
	header[sumOffset+6] = 0
	return data, nil
}

// putOctal fills field with the digits of n.
func putOctal(field []byte, n int64) {
	for i := len(field) - 1; i >= 0; i-- {
		field[i] = '0' + byte(n&7)
		n >>= 3
	}
}

// isText reports whether s can stand in a USTAR header: ASCII without NUL.
func isText(s string) bool {
	for i := range len(s) {
		if s[i] == 0 || s[i] >= 0x80 {
			return false
		}
	}
	return true
}
