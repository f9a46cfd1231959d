package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// A Node is one value of a document, whatever it was written in. It keeps
// what decoding into Go values loses: lines, duplicate keys, the case of keys
// and the difference between a number and a string.
type Node struct {
	Kind   Kind
	Text   string // of scalars
	Line   int    // of the file, 1-based; 0 when unknown
	Fields []Field
	Items  []*Node

	word bool // a string that YAML 1.1 reads as a boolean, such as yes
}

// A Field is one field of a mapping.
type Field struct {
	Name  string
	Line  int // of the name
	Value *Node
}

// A Kind is what sort of value a [Node] is.
type Kind uint8

// The kinds of values.
const (
	Null Kind = iota
	Bool
	Number
	Text
	List
	Map
)

// String returns the kind with its article, as errors say it.
func (k Kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "a list", "a mapping"}[k]
}

// Limits of one document: they bound aliases that multiply and nesting that
// would exhaust the stack.
const (
	maxNodes = 1 << 19
	maxText  = 16 << 20 // bytes of scalars and keys
	maxDepth = 200
)

var (
	errTooDeep  = fmt.Errorf("nested deeper than %d levels", maxDepth)
	errTooLarge = fmt.Errorf("holds more than %d values, aliases counted where they are used", maxNodes)
	errTooLong  = fmt.Errorf("holds more than %d MiB of text, aliases counted where they are used", maxText>>20)
)

// A budget counts the values of one document. A value that an alias stands for
// counts where it is used.
type budget struct {
	nodes int
	text  int // bytes
	depth int // of the value that is being read
}

// enter counts one more value, one level further down.
func (b *budget) enter() error {
	b.depth++
	b.nodes++
	switch {
	case b.nodes > maxNodes:
		return errTooLarge
	case b.depth > maxDepth:
		return errTooDeep
	}
	return nil
}

func (b *budget) leave() { b.depth-- }

// hold counts the text of a scalar or key.
func (b *budget) hold(text string) error {
	if b.text += len(text); b.text > maxText {
		return errTooLong
	}
	return nil
}

// At returns the value at path, nil when there is none. Of fields that are
// given twice it is the first.
func (n *Node) At(path ...string) *Node {
	for _, name := range path {
		if n == nil {
			return nil
		}
		var next *Node
		for i := range n.Fields {
			if n.Fields[i].Name == name {
				next = n.Fields[i].Value
				break
			}
		}
		n = next
	}
	return n
}

// StringAt returns the text at path when it is a string, and "" otherwise.
func (n *Node) StringAt(path ...string) string {
	if v := n.At(path...); v != nil && v.Kind == Text {
		return v.Text
	}
	return ""
}

// LineOf returns the line of the field at path, such as spec.items[2].name, or of
// the nearest one around it.
func (n *Node) LineOf(path string) int {
	line := n.Line
	for n != nil && path != "" {
		var found *Field
		for i := range n.Fields {
			if name := n.Fields[i].Name; path == name || below(path, name) {
				found = &n.Fields[i]
				break
			}
		}
		if found == nil {
			break
		}
		line, n, path = found.Line, found.Value, path[len(found.Name):]
		for strings.HasPrefix(path, "[") && n.Kind == List {
			var i int
			if _, err := fmt.Sscanf(path, "[%d]", &i); err != nil || i >= len(n.Items) {
				break
			}
			n, path = n.Items[i], path[strings.IndexByte(path, ']')+1:]
			line = n.Line
		}
		path = strings.TrimPrefix(path, ".")
		if strings.HasPrefix(path, "[") {
			path = strings.TrimSuffix(path[1:], "]")
		}
	}
	return line
}

// Remove removes the field at path, in every item where the path says [].
func (n *Node) Remove(path string) {
	name, rest, deeper := strings.Cut(path, ".")
	name, each := strings.CutSuffix(name, "[]")
	for i := range n.Fields {
		if n.Fields[i].Name != name {
			continue
		}
		v := n.Fields[i].Value
		switch {
		case !deeper:
			n.Fields = append(n.Fields[:i], n.Fields[i+1:]...)
		case each:
			for _, item := range v.Items {
				item.Remove(rest)
			}
		default:
			v.Remove(rest)
		}
		return
	}
}

// AppendJSON appends the value as compact JSON.
func (n *Node) AppendJSON(b []byte) []byte {
	switch n.Kind {
	case Null:
		return append(b, "null"...)
	case Bool, Number:
		return append(b, n.Text...)
	case Text:
		return appendText(b, n.Text)
	case List:
		b = append(b, '[')
		for i, item := range n.Items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.AppendJSON(b)
		}
		return append(b, ']')
	}
	b = append(b, '{')
	for i, f := range n.Fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, f.Name), ':')
		b = f.Value.AppendJSON(b)
	}
	return append(b, '}')
}

func appendText(b []byte, s string) []byte {
	if plain(s) {
		b = append(b, '"')
		b = append(b, s...)
		return append(b, '"')
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return append(b, `""`...) // strings always encode
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// plain reports whether a string is in JSON as it is.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			return false
		}
	}
	return true
}

// errNotJSON says that a text is no JSON, so that it may still be YAML.
var errNotJSON = errors.New("not JSON")
