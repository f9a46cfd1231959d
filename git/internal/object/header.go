package object

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Signature says who made a commit or a tag, and when.
type Signature struct {
	Name  string
	Email string
	When  time.Time // zero where the object holds no usable time
}

// parseSignature parses "Name <email> seconds zone". Histories hold broken
// ones, which Git reads as far as it can; so does this, without an error.
func parseSignature(b []byte) Signature {
	open := bytes.IndexByte(b, '<')
	end := bytes.LastIndexByte(b, '>')
	if open < 0 || end < open {
		return Signature{Name: string(bytes.TrimSpace(b))}
	}
	s := Signature{
		Name:  string(bytes.TrimSpace(b[:open])),
		Email: string(bytes.TrimSpace(b[open+1 : end])),
	}
	seconds, zone, _ := strings.Cut(strings.TrimSpace(string(b[end+1:])), " ")
	if n, err := strconv.ParseInt(seconds, 10, 64); err == nil && n >= 0 && n <= maxSeconds {
		s.When = time.Unix(n, 0).In(parseZone(zone))
	}
	return s
}

// maxSeconds is the end of the year 9999, the last that RFC 3339 can write.
const maxSeconds = 253402300799

// parseZone parses an offset such as +0130; anything else is UTC.
func parseZone(s string) *time.Location {
	if len(s) != 5 || s[0] != '+' && s[0] != '-' {
		return time.UTC
	}
	n, err := strconv.ParseUint(s[1:], 10, 16)
	if err != nil || n == 0 || n/100 > 23 || n%100 > 59 {
		return time.UTC
	}
	offset := int(n/100*60+n%100) * 60
	if s[0] == '-' {
		offset = -offset
	}
	return time.FixedZone("", offset)
}

// A headerField is one field of the header of a commit or tag: key, space, value.
// raw holds its lines with their ends, continuation lines included.
type headerField struct {
	key   string
	value []byte
	raw   []byte
}

// nextField cuts the first field off a header. Continuation lines start with a
// space, which is not part of the value. ok is false at the blank line that
// ends the header or at the end of the data; rest is then the message.
func nextField(data []byte) (f headerField, rest []byte, ok bool, err error) {
	if len(data) == 0 || data[0] == '\n' {
		return f, bytes.TrimPrefix(data, []byte{'\n'}), false, nil
	}
	line, rest, err := cutLine(data)
	key, value, found := bytes.Cut(line, []byte{' '})
	if err == nil && (!found || len(key) == 0) {
		err = lineError(line)
	}
	if err != nil {
		return f, nil, false, err
	}
	f.key, f.value = string(key), value
	if len(rest) > 0 && rest[0] == ' ' {
		f.value = bytes.Clone(value)
	}
	for len(rest) > 0 && rest[0] == ' ' {
		if line, rest, err = cutLine(rest); err != nil {
			return f, nil, false, err
		}
		f.value = append(append(f.value, '\n'), line[1:]...)
	}
	f.raw = data[:len(data)-len(rest)]
	return f, rest, true, nil
}

// cutLine cuts the first line off a header. It must have an end and no NUL.
func cutLine(data []byte) (line, rest []byte, err error) {
	line, rest, ended := bytes.Cut(data, []byte{'\n'})
	if !ended || bytes.IndexByte(line, 0) >= 0 {
		err = lineError(line)
	}
	return line, rest, err
}

func lineError(line []byte) error { return fmt.Errorf("%w: header line %.80q", ErrCorrupt, line) }

// subject returns the first paragraph of a message on one line.
func subject(message string) string {
	message = strings.TrimLeft(message, "\r\n")
	var lines []string
	for line := range strings.Lines(message) {
		if line = strings.TrimSpace(line); line == "" {
			break
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, " ")
}
