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
	Text   string // of scalars; numbers have the form of JSON
	Line   int    // of the file, 1-based
	Fields []Field
	Items  []*Node

	yaml11Bool bool // a string that YAML 1.1 reads as a boolean, such as yes
}

// A Field is one field of a mapping.
type Field struct {
	Name  string
	Line  int // of the name
	Value *Node
}

// A Kind is the sort of value of a [Node].
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

// At returns the value at path, nil if there is none. Of duplicate fields it uses the
// first.
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

// StringAt returns the text at path if it is a string, else "".
func (n *Node) StringAt(path ...string) string {
	if v := n.At(path...); v != nil && v.Kind == Text {
		return v.Text
	}
	return ""
}

// lineOf returns the line of the field at path, such as spec.items[2].name or
// metadata.labels[a.b/c]. If there is no such field, it returns the line of the nearest
// field around it, or else line.
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
		if path != "" && (path == f.Name || isBelow(path, f.Name)) {
			return f.Value.lineOf(path[len(f.Name):], f.Line)
		}
	}
	return line
}

// jsonValue returns the value in a form for package json to encode.
func (n *Node) jsonValue() any {
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
			list[i] = item.jsonValue()
		}
		return list
	}
	fields := make(map[string]any, len(n.Fields))
	for _, f := range n.Fields {
		fields[f.Name] = f.Value.jsonValue()
	}
	return fields
}

// read yields the values of a text: JSON values that follow each other, or YAML documents.
// before is the number of lines that precede the text in its file. read ends with the first
// error. Text that begins like JSON but is not JSON is read as YAML, whose flow style looks
// alike, unless isJSON is set.
func read(text []byte, before int, isJSON bool) iter.Seq2[*Node, error] {
	return func(yield func(*Node, error) bool) {
		values, value := json.NewDecoder(bytes.NewReader(text)), json.RawMessage(nil)
		first, err := bytes.TrimSpace(text)[0], error(nil)
		like := first == '{' || first == '['
		if like {
			err = values.Decode(&value)
		}
		if !like || err != nil && !isJSON {
			for documents := newDocuments(text, before); ; {
				n, err := documents.next()
				if err == io.EOF || !yield(n, err) || err != nil {
					return
				}
			}
		}
		end := 0
		for ; err == nil; err = values.Decode(&value) {
			start := int(values.InputOffset()) - len(value)
			before += bytes.Count(text[end:start], []byte("\n"))
			n, err := newDocuments(FromJSON(value), before).next()
			if !yield(n, err) || err != nil {
				return
			}
			end = start
		}
		if err != io.EOF {
			rest := bytes.TrimSpace(text[end+len(value):])
			line := before + 1 + bytes.Count(text[end:bytes.LastIndex(text, rest)], []byte("\n"))
			if err == io.ErrUnexpectedEOF {
				err = errors.New("the text ends inside a value")
			}
			yield(nil, &Error{Line: line, Err: fmt.Errorf("not JSON: %w", err)})
		}
	}
}

// notYAML matches what JSON strings may contain and YAML strings may not: surrogate halves,
// escaped slashes, and characters that YAML treats as control characters or line breaks. It
// also matches other escapes.
var notYAML = regexp.MustCompile(`\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u[dD][89a-fA-F]..|.)|[\x{7f}-\x{9f}\x{2028}\x{2029}\x{feff}\x{fffe}\x{ffff}]`)

// FromJSON converts a JSON value to YAML with the same lines. YAML cannot read keys of more
// than 1024 bytes.
func FromJSON(text []byte) []byte {
	return notYAML.ReplaceAllFunc(text, func(found []byte) []byte {
		if char, n := utf8.DecodeRune(found); found[0] != '\\' && n == len(found) {
			return fmt.Appendf(nil, `\u%04x`, char)
		}
		if len(found) > 2 || found[1] == '/' {
			var char string
			json.Unmarshal([]byte(`"`+string(found)+`"`), &char) // a lone surrogate half becomes U+FFFD
			return []byte(char)
		}
		return found
	})
}

// Limits of one document: they bound aliases that multiply values, and nesting that would
// exhaust the stack. A value counts each time an alias uses it.
const (
	maxValues = 1 << 19
	valueSize = 32 // bytes of text that count as one value
	maxDepth  = 200
)

// documents reads consecutive YAML documents as nodes.
type documents struct {
	dec    *yaml.Decoder
	size   int // of the text
	before int // lines of the file before the text

	used int // of maxValues*valueSize
}

func newDocuments(text []byte, before int) *documents {
	return &documents{dec: yaml.NewDecoder(bytes.NewReader(text)), size: len(text), before: before}
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// next returns the next document, or io.EOF after the last one.
func (r *documents) next() (*Node, error) {
	if r.size > MaxDocument {
		return nil, fmt.Errorf("larger than %d MiB: split it", MaxDocument>>20)
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

// value returns a YAML value, at the given depth, with aliases and merges resolved.
func (r *documents) value(y *yaml.Node, depth int) (*Node, error) {
	if depth++; depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	if r.used += valueSize + len(y.Value); r.used > maxValues*valueSize {
		return nil, fmt.Errorf("holds more than %d values or %d MiB of text, aliases counted where they are used", maxValues, maxValues*valueSize>>20)
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

// mapping reads the fields of a mapping, and then those fields of merged mappings that it
// does not have itself.
func (r *documents) mapping(n *Node, y *yaml.Node, depth int) error {
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
		r.used += valueSize + len(key.Value)
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
		n.yaml11Bool = y.Style == 0 && oldBool.MatchString(y.Value)
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
