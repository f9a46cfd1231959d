package index

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"
)

// An Entry is one version of a chart.
type Entry struct {
	Name        string    `json:"name"`
	Version     string    `json:"version"` // in its original spelling
	AppVersion  string    `json:"appVersion,omitempty"`
	Created     time.Time `json:"created,omitzero"` // zero if missing
	Description string    `json:"description,omitempty"`
	Type        string    `json:"type,omitempty"` // application, library or ""
	Deprecated  bool      `json:"deprecated,omitempty"`
	Digest      string    `json:"digest,omitempty"` // sha256 in hex or sha256:HEX, "" if missing
	URLs        []string  `json:"urls,omitempty"`   // of the archive, in their original spelling; at least one
	Line        int       `json:"-"`                // in the index, where the entry begins, from 1
}

// Entries yields the versions of the named chart, in the order of the index. It skips
// malformed entries: see [Check]. An error is the last element. It is that of r, or says
// that r is not an index; the content of other charts is read only as far as needed to skip
// it.
func Entries(r io.ReadSeeker, name string) iter.Seq2[Entry, error] {
	return matching(r, func(chart string) bool { return chart == name })
}

// All yields the versions of all charts, in the order of the index. It skips malformed
// entries: see [Check]. An error is the last element. It is that of r, or says that r is
// not an index.
func All(r io.ReadSeeker) iter.Seq2[Entry, error] {
	return matching(r, func(string) bool { return true })
}

// matching yields the versions of the wanted charts.
func matching(r io.ReadSeeker, wanted func(chart string) bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		seen, yielded := 0, 0 // entries seen in this pass over r, and yielded in all passes
		err := walk(r, &visitor{
			begin:     func() { seen = 0 },
			chart:     wanted,
			malformed: func(string, int, error) {},
			version: func(chart string, v version) error {
				e, problem := v.entry(chart)
				if problem != nil {
					return nil
				}
				if seen++; seen <= yielded {
					return nil
				}
				yielded++
				if !yield(e, nil) {
					return errStop
				}
				return nil
			},
		})
		if err != nil && err != errStop {
			yield(Entry{}, err)
		}
	}
}

// Limits of an index.
const (
	entrySize    = 1 << 20 // bytes of an entry, and of a line; in an entry each value counts valueSize more
	valueSize    = 16
	versionLimit = 100_000 // versions of a chart
	bufferSize   = 64 << 10
)

// errStop ends a walk early.
var errStop = errors.New("stopped")

// A layoutError says that an index does not have a layout that the scanners expect. The
// index may still be valid.
type layoutError struct{ line int }

func (e *layoutError) Error() string {
	return fmt.Sprintf("line %d is not written as helm or chartmuseum write indexes", e.line)
}

// A visitor receives the content of an index. An error that its functions return ends the
// walk.
type visitor struct {
	begin     func() // called before the index is read, and again if it is read once more
	chart     func(name string) (wanted bool)
	version   func(chart string, v version) error // of a wanted chart
	malformed func(chart string, line int, problem error)
	sum       *sum // of all versions and fields, nil if it is not needed

	apiVersion bool // the field was seen
	fieldSeen  bool // some field of an index was seen
}

// walk reads the index: with a scanner if it has the layout of one, and otherwise whole.
func walk(r io.ReadSeeker, v *visitor) error {
	v.begin()
	src := &headReader{r: r}
	in := bufio.NewReaderSize(src, bufferSize)
	err := scan(in, v)
	layout, other := errors.AsType[*layoutError](err)
	switch {
	case src.err != nil:
		return src.err
	case err == nil || err == errStop:
		return err
	case other:
		if _, err := r.Seek(0, io.SeekStart); err != nil {
			return err
		}
		v.begin()
		v.apiVersion, src.head = false, nil
		if err = readWhole(src, layout, v); err == errStop || src.err != nil {
			return errors.Join(src.err, err)
		}
	}
	if err == nil {
		return nil
	}
	if v.fieldSeen || v.apiVersion {
		return fmt.Errorf("not a chart repository index: %w", err)
	}
	return fmt.Errorf("not a chart repository index: %w; it begins with %s", err, quote(string(src.head)))
}

// byteOrderMark may be the first character of an index.
var byteOrderMark = []byte("\ufeff")

// scan chooses the scanner by the first character that is not white space.
func scan(in *bufio.Reader, v *visitor) error {
	if mark, _ := in.Peek(len(byteOrderMark)); bytes.Equal(mark, byteOrderMark) {
		_, _ = in.Discard(len(mark))
	}
	for n := 1; n <= bufferSize; n++ {
		text, err := in.Peek(n)
		if err != nil {
			break
		}
		switch text[n-1] {
		case ' ', '\n', '\r', '\t':
			continue
		case '{':
			return (&jsonScanner{in: in, visitor: v, line: 1}).scan()
		}
		break
	}
	return (&blockScanner{in: in, visitor: v}).scan()
}

// A headReader records how a reader begins and why it failed.
type headReader struct {
	r    io.Reader
	head []byte
	err  error // other than io.EOF
}

func (s *headReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if room := 80 - len(s.head); room > 0 {
		s.head = append(s.head, p[:min(n, room)]...)
	}
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// A recording is the text of one part of an index, collected while it is read.
type recording struct {
	line int    // where it begins
	size int    // of the whole text
	all  []byte // the text, entrySize bytes at most
	kept []byte // the needed parts of the text
}

func (r *recording) start(line int) {
	r.line, r.size, r.all, r.kept = line, 0, r.all[:0], r.kept[:0]
}

// add appends text to all, and needed, the part of it that is needed, to kept.
func (r *recording) add(text, needed []byte) {
	if r.size += len(text); r.size <= entrySize {
		r.all, r.kept = append(r.all, text...), append(r.kept, needed...)
	}
}

// big reports whether the part is larger than an entry may be.
func (r *recording) big() bool {
	return r.size > entrySize || r.size+valueSize*estimateValues(r.kept) > entrySize
}

// addTo adds the part, and the name of what contains it, to s, unless s is nil.
func (r *recording) addTo(s *sum, name string) {
	if s != nil {
		h := sha256.New()
		fmt.Fprintf(h, "%s\x00%d\x00", name, r.size)
		h.Write(r.all)
		s.add(h)
	}
}
