package index

import (
	"bytes"
	"io"
)

// A filter is an index without the versions of charts that are not asked for:
// their names are still there, with empty lists. It passes over what it leaves
// out without taking it apart, and leaves out only what it surely understands:
// block style as generators write it, and JSON. Where it meets what it does not,
// it lets everything through, from the beginning of the entry that this is in,
// for the parser to judge. Its memory is one buffer.
type filter struct {
	src  io.Reader
	name string
	// Of buf, [start:ok] is let through, [ok:scan] is what was read of an entry
	// that may be left out, and what follows up to end is still to be read.
	buf                  []byte
	start, ok, scan, end int
	err                  error   // of src, after end
	style                style   // nil before the first byte
	through              bool    // all that follows is let through
	odd                  bool    // there are line breaks that only YAML has
	last                 [2]byte // of what was read of src

	passed  int   // line breaks in what was let through so far
	dropped int   // line breaks in what was left out so far
	gaps    []gap // where something was left out, in order
	past    int   // as many of them are not asked for any more
}

// filterSize is the size of the buffer, and thereby that of the largest entry
// that can be left out; the parser passes over larger ones.
const filterSize = 64 << 10

// A gap says how many lines were left out before what comes after as many
// line breaks of what was let through.
type gap struct{ passed, dropped int }

// A style is how an index is written.
type style interface {
	// step reads on in the buffer and calls keep, drop and give. It returns true
	// when something is let through, for there to be nothing before what is left
	// out next, and false when it needs more text than there is.
	step(f *filter) bool
	// long is called when the buffer is full: the entry that is read cannot be
	// left out.
	long(f *filter)
}

func newFilter(src io.Reader, name string) *filter {
	return &filter{src: src, name: name, buf: make([]byte, filterSize)}
}

// Read implements [io.Reader].
func (f *filter) Read(p []byte) (int, error) {
	for {
		switch {
		case f.start < f.ok:
			n := copy(p, f.buf[f.start:f.ok])
			f.start += n
			return n, nil
		case f.through && f.ok < f.end:
			f.scan = f.end
			f.keep()
		case f.through && f.err != nil:
			return 0, f.err
		case f.through:
			return f.src.Read(p)
		case f.style == nil:
			if f.begin(); f.style == nil && !f.fill() {
				f.through = true
			}
		case f.style.step(f) || f.start < f.ok || f.through:
		case !f.fill():
			f.through = true
		}
	}
}

// begin chooses the style by the first byte. Behind a byte order mark may be
// either; what begins like one is let through.
func (f *filter) begin() {
	for _, c := range f.buf[f.start:f.end] {
		switch c {
		case ' ', '\n', '\r':
		case '{':
			f.style = &flowStyle{}
			return
		case 0xEF:
			f.through = true
			return
		default:
			f.style = &blockStyle{}
			return
		}
	}
}

// fill reads more of the source. It returns false at its end.
func (f *filter) fill() bool {
	if f.err != nil {
		return false
	}
	if f.end == len(f.buf) && f.start == 0 {
		if f.style == nil {
			return false
		}
		f.style.long(f)
		return true
	}
	copy(f.buf, f.buf[f.start:f.end])
	f.ok, f.scan, f.end, f.start = f.ok-f.start, f.scan-f.start, f.end-f.start, 0
	for range 100 {
		var n int
		n, f.err = f.src.Read(f.buf[f.end:])
		f.look(f.buf[f.end : f.end+n])
		if f.end += n; n > 0 || f.err != nil {
			return true
		}
	}
	f.err = io.ErrNoProgress
	return true
}

// look finds line breaks that only YAML has, in what comes next of src. One of
// them may begin in what came before, which may not be in buf any more.
func (f *filter) look(text []byte) {
	if len(text) == 0 || f.odd {
		return
	}
	edge := [4]byte{f.last[0], f.last[1]}
	n := copy(edge[2:], text)
	f.odd = oddBreak(edge[:2+n]) || oddBreak(text)
	if n == 1 {
		f.last = [2]byte(edge[1:])
	} else {
		f.last = [2]byte(text[len(text)-2:])
	}
}

// keep lets through what was read.
func (f *filter) keep() {
	if f.ok == f.scan {
		return
	}
	if last := len(f.gaps) - 1; f.dropped > 0 && (last < 0 || f.gaps[last].dropped != f.dropped) {
		if cap(f.gaps) == len(f.gaps) && f.past > 0 {
			f.gaps, f.past = f.gaps[:copy(f.gaps, f.gaps[f.past:])], 0
		}
		f.gaps = append(f.gaps, gap{f.passed, f.dropped})
	}
	f.passed += bytes.Count(f.buf[f.ok:f.scan], newline)
	f.ok = f.scan
}

// drop leaves out what was read. All that was let through before has been given.
func (f *filter) drop() {
	f.dropped += bytes.Count(f.buf[f.ok:f.scan], newline)
	f.start, f.ok = f.scan, f.scan
}

// dropWithin is drop for what begins within a line. When it has line breaks, one
// of them is let through, for lines that have what comes before it to be others
// than those that have what comes after it, and it returns true.
func (f *filter) dropWithin() bool {
	before := f.dropped
	if f.drop(); f.dropped == before {
		return false
	}
	f.start--
	f.buf[f.start] = '\n'
	f.passed, f.dropped = f.passed+1, f.dropped-1
	return true
}

// give lets everything through, from the entry that is read.
func (f *filter) give() bool {
	f.through = true
	return true
}

var newline = []byte{'\n'}

// line returns which line of the index line n of what was let through is. n
// does not become less from call to call.
func (f *filter) line(n int) int {
	for f.past+1 < len(f.gaps) && f.gaps[f.past+1].passed < n {
		f.past++
	}
	if f.past < len(f.gaps) && f.gaps[f.past].passed < n {
		return n + f.gaps[f.past].dropped
	}
	return n
}
