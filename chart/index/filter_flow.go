package index

import "bytes"

// A flowStyle is an index in JSON, or in YAML written like it.
type flowStyle struct {
	skip  skipper
	level flowLevel
	apart bool // a line break was let through for what is left out of the list
}

// A flowLevel is what comes next in an index in JSON.
type flowLevel uint8

const (
	beforeIndex flowLevel = iota
	fieldName             // of the index, or its end
	fieldValue
	chartName // or the end of entries
	chartValue
	entryValue // of a chart that is not asked for, or the end of its list
)

// step implements [style].
func (s *flowStyle) step(f *filter) bool {
	if f.odd { // a carriage return alone is a line, to be counted
		return f.give()
	}
	for {
		var more, sure bool
		switch s.level {
		case beforeIndex:
			f.scan += bytes.IndexByte(f.buf[f.scan:f.end], '{') + 1
			f.keep()
			s.level = fieldName
			continue
		case fieldName, chartName:
			more, sure = s.name(f)
		case fieldValue, chartValue:
			more, sure = s.value(f)
		case entryValue:
			more, sure = s.entry(f)
		}
		switch {
		case !sure:
			return f.give()
		case !more:
			return false
		case s.level == entryValue && f.start < f.ok:
			return true // for there to be nothing before what is left out
		}
	}
}

// name reads a name with its colon and what is before the value. It reads on
// only when the first byte of the value is there too.
func (s *flowStyle) name(f *filter) (more, sure bool) {
	text := f.buf[f.scan:f.end]
	name, at, sure := nameAt(text)
	if at < 0 || !sure {
		return false, sure
	}
	escapes := bytes.ContainsAny(name, "\\\n\r") // or line breaks, which are folded
	f.scan += at
	switch {
	case s.level == chartName && text[at] == '[' && !escapes && string(name) != f.name:
		f.scan++
		s.level, s.apart = entryValue, false
	case s.level == chartName:
		s.level = chartValue
	case escapes:
		return false, false
	case string(name) == "entries" && text[at] == '{':
		f.scan++
		s.level = chartName
	default:
		s.level = fieldValue
	}
	f.keep()
	s.skip = skipper{}
	return true, true
}

// nameAt returns a name without its quotes and where the value begins, -1 when
// the text ends before.
func nameAt(text []byte) (name []byte, at int, sure bool) {
	from := space(text, 0)
	if from < len(text) && text[from] == ',' {
		from = space(text, from+1)
	}
	if from == len(text) {
		return nil, -1, true
	}
	if text[from] != '"' { // } ends entries, or the index
		return nil, -1, false
	}
	to := closing(text, from+1, '"')
	if to < 0 {
		return nil, -1, true
	}
	colon := space(text, to+1)
	if colon < len(text) && text[colon] != ':' {
		return nil, -1, false
	}
	if at = space(text, min(colon+1, len(text))); at == len(text) {
		return nil, -1, true
	}
	return text[from+1 : to], at, true
}

// value reads a value that is let through.
func (s *flowStyle) value(f *filter) (more, sure bool) {
	n, state := s.skip.skip(f.buf[f.scan:f.end])
	f.scan += n
	if state == skipUnclear {
		return false, false
	}
	f.keep()
	if state == skipMore {
		return false, true
	}
	s.level-- // to the next name; a comma or a bracket comes first
	return true, true
}

// entry reads an entry that is left out.
func (s *flowStyle) entry(f *filter) (more, sure bool) {
	n, state := s.skip.skip(f.buf[f.scan:f.end])
	f.scan += n
	switch {
	case state == skipUnclear:
		return false, false
	case state == skipMore:
		return false, true
	case f.buf[f.scan] == ',':
		f.scan++
		s.drop(f)
		s.skip = skipper{}
		return true, true
	case f.buf[f.scan] != ']':
		return false, false
	}
	s.drop(f)
	f.scan++
	f.keep()
	s.level = chartName
	return true, true
}

// drop leaves out what was read.
func (s *flowStyle) drop(f *filter) {
	if s.apart {
		f.drop()
	} else {
		s.apart = f.dropWithin()
	}
}

// long implements [style].
func (s *flowStyle) long(f *filter) {
	if f.scan == f.ok { // it is a name that does not fit
		f.through = true
		return
	}
	// What is left of the list is let through: a comma must not be its last.
	s.level, s.skip.depth = chartValue, s.skip.depth+1
	f.keep()
}

// space returns the index behind the spaces at i.
func space(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\r' || text[i] == '\t') {
		i++
	}
	return i
}
