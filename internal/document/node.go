package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// A Node is one value of a document. It keeps what decoding into Go values loses: lines, duplicate
// keys, the case of keys and the difference between a number and a string.
type Node struct {
	Kind   Kind
	Text   string // of scalars; numbers as JSON has them
	Line   int    // of the file, 1-based
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

// At returns the value at path, nil when there is none. Of fields that are given twice it is the first.
func (n *Node) At(path ...string) *Node {
	for _, name := range path {
		i := slices.IndexFunc(n.Fields, func(f Field) bool { return f.Name == name })
		if i < 0 {
			return nil
		}
		n = n.Fields[i].Value
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

// lineOf returns the line of the field at path, such as spec.items[2].name or
// metadata.labels[a.b/c], or of the nearest one around it, else line.
func (n *Node) lineOf(path string, line int) int {
	path = strings.TrimPrefix(path, ".")
	if rest, ok := strings.CutPrefix(path, "["); ok && n.Kind == List {
		index, rest, _ := strings.Cut(rest, "]")
		if i, err := strconv.ParseUint(index, 10, 32); err == nil && i < uint64(len(n.Items)) {
			return n.Items[i].lineOf(rest, n.Items[i].Line)
		}
	} else if ok { // the key of a mapping
		path = strings.TrimSuffix(rest, "]")
	}
	for _, f := range n.Fields {
		if path != "" && (path == f.Name || below(path, f.Name)) {
			return f.Value.lineOf(path[len(f.Name):], f.Line)
		}
	}
	return line
}

// Value returns the value as package json encodes it.
func (n *Node) Value() any {
	switch n.Kind {
	case Null:
		return nil
	case Bool:
		return n.Text == "true"
	case Number:
		return json.Number(n.Text)
	case Text:
		return n.Text
	case List:
		list := make([]any, len(n.Items))
		for i, item := range n.Items {
			list[i] = item.Value()
		}
		return list
	}
	fields := make(map[string]any, len(n.Fields))
	for _, f := range n.Fields {
		fields[f.Name] = f.Value.Value()
	}
	return fields
}

var errLargeDocument = fmt.Errorf("larger than %d MiB: split it", MaxDocument>>20)

// read yields the values of a text, which begins after so many lines of its file: JSON values that
// follow each other, or YAML documents. It ends with the first error. Text that begins like JSON and
// is not is YAML, whose flow style looks alike, unless it has to be JSON.
func read(text []byte, before int, isJSON bool) iter.Seq2[*Node, error] {
	return func(yield func(*Node, error) bool) {
		next := newYAML(text, before).next
		if first := bytes.TrimSpace(text)[0]; (first == '{' || first == '[') && utf8.Valid(text) {
			values := newJSON(text, before)
			n, err := values.next()
			if _, syntax := err.(*Error); isJSON || !syntax {
				if !yield(n, err) || err != nil {
					return
				}
				next = values.next
			}
		}
		for {
			n, err := next()
			if err == io.EOF || !yield(n, err) || err != nil {
				return
			}
		}
	}
}

// Limits of one document: they bound aliases that multiply and nesting that would exhaust the stack.
// A value that an alias stands for counts where it is used.
const (
	maxValues = 1 << 19
	valueSize = 32 // bytes of text that count as one value
	maxDepth  = 200
)

// A budget counts what one document holds.
type budget int

// take takes a value with its text, which is so many levels deep.
func (b *budget) take(text string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	if *b += budget(valueSize + len(text)); *b > maxValues*valueSize {
		return fmt.Errorf("holds more than %d values or %d MiB of text, aliases counted where they are used", maxValues, maxValues*valueSize>>20)
	}
	return nil
}

// jsonReader reads JSON values that follow each other as nodes.
type jsonReader struct {
	text    []byte
	dec     *json.Decoder
	start   int64 // of the value
	counted int64 // lines were counted up to here
	line    int
	used    budget
}

func newJSON(text []byte, before int) *jsonReader {
	r := &jsonReader{text: text, dec: json.NewDecoder(bytes.NewReader(text)), line: before + 1}
	r.dec.UseNumber()
	return r
}

// ParseJSON returns one JSON value as a node.
func ParseJSON(text []byte) (*Node, error) { return newJSON(text, 0).next() }

// next returns the next value, io.EOF after the last. Errors of the syntax are each an [Error].
func (r *jsonReader) next() (*Node, error) {
	if !r.dec.More() && r.dec.InputOffset() > 0 && len(bytes.TrimSpace(r.text[r.dec.InputOffset():])) == 0 {
		return nil, io.EOF
	}
	r.start, r.used = r.dec.InputOffset(), 0
	return r.value(1)
}

// token returns the next token, at r.line.
func (r *jsonReader) token() (json.Token, error) {
	t, err := r.dec.Token()
	at := r.dec.InputOffset()
	if wrong, ok := err.(*json.SyntaxError); ok {
		at = min(max(at, wrong.Offset), int64(len(r.text)))
	}
	r.line += bytes.Count(r.text[r.counted:at], []byte("\n"))
	r.counted = at
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = errors.New("the text ends inside a value")
	}
	if err != nil {
		return nil, &Error{Line: r.line, Err: fmt.Errorf("not JSON: %w", err)}
	}
	if at-r.start > MaxDocument {
		err = errLargeDocument
	}
	return t, err
}

// value returns a value, which is so many levels deep.
func (r *jsonReader) value(depth int) (*Node, error) {
	t, err := r.token()
	if err != nil {
		return nil, err
	}
	n := &Node{Line: r.line}
	switch t := t.(type) {
	case bool:
		n.Kind, n.Text = Bool, strconv.FormatBool(t)
	case json.Number:
		n.Kind, n.Text = Number, t.String()
	case string:
		n.Kind, n.Text = Text, t
	case json.Delim:
		if n.Kind = List; t == '{' {
			n.Kind = Map
		}
	}
	if err = r.used.take(n.Text, depth); err != nil || n.Kind < List {
		return n, err
	}
	for r.dec.More() {
		f := Field{}
		if n.Kind == Map {
			name, err := r.token()
			if err != nil {
				return nil, err
			}
			f.Name, f.Line = name.(string), r.line
		}
		if f.Value, err = r.value(depth + 1); err != nil {
			return nil, err
		}
		if n.Kind == Map {
			n.Fields = append(n.Fields, f)
		} else {
			n.Items = append(n.Items, f.Value)
		}
	}
	_, err = r.token() // the end
	return n, err
}

// yamlReader reads YAML documents that follow each other as nodes.
type yamlReader struct {
	dec    *yaml.Decoder
	large  bool
	before int // lines of the file before the text
	used   budget
}

func newYAML(text []byte, before int) *yamlReader {
	return &yamlReader{dec: yaml.NewDecoder(bytes.NewReader(text)), large: len(text) > MaxDocument, before: before}
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// next returns the next document, io.EOF after the last.
func (r *yamlReader) next() (*Node, error) {
	if r.large {
		return nil, errLargeDocument
	}
	var doc yaml.Node
	err := r.dec.Decode(&doc)
	if err == nil {
		r.used = 0
		return r.value(&doc, 0)
	}
	if err == io.EOF {
		return nil, err
	}
	at := yamlLine.FindStringSubmatch(err.Error())
	text := strings.TrimPrefix(err.Error(), at[0])
	line, _ := strconv.Atoi(at[1])
	if line > 0 {
		line += r.before
	}
	return nil, &Error{Line: line, Err: errors.New("not YAML: " + shorten(text, 400))} // it may quote a name
}

// value returns a YAML value without aliases and merges, which is so many levels deep.
func (r *yamlReader) value(y *yaml.Node, depth int) (*Node, error) {
	depth++
	if err := r.used.take(y.Value, depth); err != nil {
		return nil, err
	}
	n := &Node{Line: y.Line + r.before}
	switch y.Kind {
	case yaml.DocumentNode:
		if len(y.Content) == 1 {
			return r.value(y.Content[0], depth)
		}
	case yaml.AliasNode:
		return r.value(y.Alias, depth)
	case yaml.SequenceNode:
		n.Kind = List
		for _, item := range y.Content {
			v, err := r.value(item, depth)
			if err != nil {
				return nil, err
			}
			n.Items = append(n.Items, v)
		}
	case yaml.MappingNode:
		n.Kind = Map
		return n, r.mapping(n, y, depth)
	case yaml.ScalarNode:
		return n, n.scalar(y)
	}
	return n, nil
}

// mapping reads the fields of a mapping, then those of mappings that it merges and has not itself.
func (r *yamlReader) mapping(n *Node, y *yaml.Node, depth int) error {
	var merged []*Node
	have := make(map[string]bool)
	for i := 0; i+1 < len(y.Content); i += 2 {
		key := y.Content[i]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		line := key.Line + r.before
		if key.Kind != yaml.ScalarNode {
			return &Error{Line: line, Err: errors.New("a key must be a string")}
		}
		r.used += budget(valueSize + len(key.Value))
		v, err := r.value(y.Content[i+1], depth)
		switch {
		case err != nil:
			return err
		case key.ShortTag() != "!!merge":
			have[key.Value] = true
			n.Fields = append(n.Fields, Field{key.Value, line, v})
		case v.Kind == List:
			merged = append(merged, v.Items...)
		default:
			merged = append(merged, v)
		}
	}
	for _, m := range merged {
		if m.Kind != Map {
			return &Error{Line: m.Line, Err: errors.New("<< merges mappings only")}
		}
		for _, f := range m.Fields {
			if !have[f.Name] {
				have[f.Name] = true
				n.Fields = append(n.Fields, f)
			}
		}
	}
	return nil
}

var (
	// oldBool holds the words that YAML 1.1, and so kubectl, reads as booleans.
	oldBool    = regexp.MustCompile(`^(y|Y|yes|Yes|YES|on|On|ON|n|N|no|No|NO|off|Off|OFF)$`)
	jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
)

// scalarKinds are the kinds of scalars by their tags.
var scalarKinds = map[string]Kind{"!!null": Null, "!!bool": Bool, "!!int": Number, "!!float": Number, "!!str": Text, "!!timestamp": Text, "!!merge": Text}

func (n *Node) scalar(y *yaml.Node) error {
	kind, known := scalarKinds[y.ShortTag()]
	if !known {
		return &Error{Line: n.Line, Err: fmt.Errorf("the tag %s is not supported", Quote(y.ShortTag()))}
	}
	n.Kind, n.Text = kind, y.Value
	if kind == Text {
		n.word = y.Style == 0 && oldBool.MatchString(y.Value)
	} else if kind == Bool || kind == Number && !jsonNumber.MatchString(n.Text) {
		var v any
		err := y.Decode(&v)
		text, failed := json.Marshal(v)
		if err != nil || failed != nil {
			return &Error{Line: n.Line, Err: fmt.Errorf("a value is not %s that JSON can hold", kind)}
		}
		n.Text = string(text)
	}
	return nil
}
