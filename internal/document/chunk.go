package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
)

// Limits of what is read.
const (
	MaxStream   = 64 << 20 // bytes of one stream
	MaxDocument = 3 << 20  // bytes of one document, as an API server has it
	MaxErrors   = 1000     // of one stream, and as many warnings
)

var (
	errLargeDocument = fmt.Errorf("larger than %d MiB: split it", MaxDocument>>20)
	errManyErrors    = fmt.Errorf("more than %d defects: the rest was not read", MaxErrors)
	errManyWarnings  = fmt.Errorf("more than %d warnings: the rest is not told", MaxErrors)
)

// readStream reads a stream within its limit.
func readStream(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxStream+1))
	if err != nil {
		return nil, fmt.Errorf("read documents: %w", err)
	}
	if len(text) > MaxStream {
		return nil, fmt.Errorf("larger than %d MiB: split the stream", MaxStream>>20)
	}
	return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), nil
}

// A chunk is the text between two document markers and the line it starts on.
type chunk struct {
	text []byte
	line int
}

// chunks splits a stream at the lines that begin with "---", so that a
// defect of the syntax ends with its document.
func chunks(text []byte) iter.Seq[chunk] {
	return func(yield func(chunk) bool) {
		start, line, first := 0, 1, 1
		for at := 0; at < len(text); line++ {
			end := len(text)
			if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
				end = at + i + 1
			}
			if marker(text[at:end]) && at > start {
				if !yield(chunk{text[start:at], first}) {
					return
				}
				start, first = at, line
			}
			at = end
		}
		yield(chunk{text[start:], first})
	}
}

// marker reports whether a line begins a YAML document.
func marker(line []byte) bool {
	rest, found := bytes.CutPrefix(line, []byte("---"))
	return found && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0)
}

// blank reports whether a chunk holds nothing but comments, directives and markers.
func (c chunk) blank() bool {
	for line := range bytes.Lines(c.text) {
		rest := bytes.TrimSpace(line)
		if len(rest) > 0 && rest[0] != '#' && line[0] != '%' && string(rest) != "---" && string(rest) != "..." {
			return false
		}
	}
	return true
}

// nodes yields the values of a chunk, and at the end the error that stopped
// it, if any. Text that looks like JSON and is not is read as YAML, whose flow
// style looks alike.
func (c chunk) nodes(file string) iter.Seq2[*Node, error] {
	return func(yield func(*Node, error) bool) {
		if c.blank() {
			return
		}
		if first := bytes.TrimSpace(c.text)[0]; first == '{' || first == '[' {
			next := c.json()
			n, err := next()
			if !errors.Is(err, errNotJSON) || strings.HasSuffix(file, ".json") {
				yieldAll(n, err, next, yield)
				return
			}
		}
		if len(c.text) > MaxDocument {
			yield(nil, errLargeDocument)
			return
		}
		next := newYAMLReader(c.text, c.line).next
		n, err := next()
		yieldAll(n, err, next, yield)
	}
}

// yieldAll yields what next returned and all that it returns.
func yieldAll(n *Node, err error, next func() (*Node, error), yield func(*Node, error) bool) {
	for err == nil {
		if !yield(n, nil) {
			return
		}
		n, err = next()
	}
	if err != io.EOF {
		yield(nil, err)
	}
}

// json reads JSON values that follow each other.
func (c chunk) json() func() (*Node, error) {
	r := newJSONReader(c.text, c.line)
	end := int64(0)
	return func() (*Node, error) {
		n, err := r.next()
		if err == nil && r.dec.InputOffset()-end > MaxDocument {
			return nil, errLargeDocument
		}
		end = r.dec.InputOffset()
		return n, err
	}
}
