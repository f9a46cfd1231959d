package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"
)

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
	case !utf8.ValidString(base):
		return fmt.Errorf("%w: no artifact can hold a name that is not UTF-8: rename it or ignore it", fs.ErrInvalid)
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
