package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// A node is one value of a document, whatever it was written in. It keeps
// what decoding into Go values loses: lines, duplicate keys, the case of keys
// and the difference between a number and a string.
type node struct {
	kind   nodeKind
	text   string // of scalars
	word   bool   // a string that YAML 1.1 reads as a boolean, such as yes
	line   int    // 1-based, 0 when unknown
	fields []field
	items  []*node
}

type field struct {
	name  string
	line  int
	value *node
}

type nodeKind uint8

const (
	nullNode nodeKind = iota
	boolNode
	numberNode
	textNode
	listNode
	mapNode
)

func (k nodeKind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "a list", "a mapping"}[k]
}

// Limits of one document: they bound aliases that multiply and nesting that
// would exhaust the stack.
const (
	maxNodes = 1 << 19
	maxDepth = 200
)

var (
	errTooDeep  = fmt.Errorf("nested deeper than %d levels", maxDepth)
	errTooLarge = fmt.Errorf("holds more than %d values, aliases counted where they are used", maxNodes)
)

// A budget counts the values of one document.
type budget struct {
	nodes   int
	depth   int // of the value that is being read
	deepest int // level reached since somebody last set it back
}

// enter counts one more value, one level further down.
func (b *budget) enter() error {
	b.depth++
	return b.spend(1, 0)
}

func (b *budget) leave() { b.depth-- }

// spend counts values that reach some levels below the one being read.
func (b *budget) spend(nodes, levels int) error {
	b.nodes += nodes
	b.deepest = max(b.deepest, b.depth+levels)
	if b.nodes > maxNodes {
		return errTooLarge
	}
	if b.depth+levels > maxDepth {
		return errTooDeep
	}
	return nil
}

// get returns the value of the first field called name, nil when there is none.
func (n *node) get(path ...string) *node {
	for _, name := range path {
		if n == nil {
			return nil
		}
		var next *node
		for i := range n.fields {
			if n.fields[i].name == name {
				next = n.fields[i].value
				break
			}
		}
		n = next
	}
	return n
}

// str returns the text at path when it is a string, and "" otherwise.
func (n *node) str(path ...string) string {
	if v := n.get(path...); v != nil && v.kind == textNode {
		return v.text
	}
	return ""
}

// remove removes the field at path, in every item where the path says [].
func (n *node) remove(path string) {
	name, rest, deeper := strings.Cut(path, ".")
	name, each := strings.CutSuffix(name, "[]")
	for i := range n.fields {
		if n.fields[i].name != name {
			continue
		}
		v := n.fields[i].value
		switch {
		case !deeper:
			n.fields = append(n.fields[:i], n.fields[i+1:]...)
		case each:
			for _, item := range v.items {
				item.remove(rest)
			}
		default:
			v.remove(rest)
		}
		return
	}
}

// appendJSON appends the value in compact JSON.
func (n *node) appendJSON(b []byte) []byte {
	switch n.kind {
	case nullNode:
		return append(b, "null"...)
	case boolNode, numberNode:
		return append(b, n.text...)
	case textNode:
		return appendText(b, n.text)
	case listNode:
		b = append(b, '[')
		for i, item := range n.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.appendJSON(b)
		}
		return append(b, ']')
	}
	b = append(b, '{')
	for i, f := range n.fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, f.name), ':')
		b = f.value.appendJSON(b)
	}
	return append(b, '}')
}

func appendText(b []byte, s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return append(b, `""`...) // strings always encode
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// errNotJSON says that a text is no JSON, so that it may still be YAML.
var errNotJSON = errors.New("not JSON")
