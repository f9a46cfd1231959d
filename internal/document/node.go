package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
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

// At returns the value at path, nil when there is none. Of fields that are
// given twice it is the first.
func (n *Node) At(path ...string) *Node {
	for _, name := range path {
		f := n.field(func(f string) bool { return f == name })
		if f == nil {
			return nil
		}
		n = f.Value
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

func (n *Node) field(is func(name string) bool) *Field {
	for i := range n.Fields {
		if is(n.Fields[i].Name) {
			return &n.Fields[i]
		}
	}
	return nil
}

// LineOf returns the line of the field at path, such as spec.items[2].name or
// metadata.labels[a.b/c], or of the nearest one around it.
func (n *Node) LineOf(path string) int { return n.lineOf(path, n.Line) }

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
	f := n.field(func(name string) bool { return path == name || below(path, name) })
	if f == nil || path == "" {
		return line
	}
	return f.Value.lineOf(path[len(f.Name):], f.Line)
}

// Remove removes the field at path, in every item where the path says [].
func (n *Node) Remove(path string) {
	name, rest, deeper := strings.Cut(path, ".")
	name, each := strings.CutSuffix(name, "[]")
	for i, f := range n.Fields {
		switch {
		case f.Name != name:
			continue
		case !deeper:
			n.Fields = append(n.Fields[:i], n.Fields[i+1:]...)
		case each:
			for _, item := range f.Value.Items {
				item.Remove(rest)
			}
		default:
			f.Value.Remove(rest)
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

// appendText appends a string as JSON has it, without the escapes of HTML.
func appendText(b []byte, s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // strings always encode
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// Limits of one document: they bound aliases that multiply and nesting that
// would exhaust the stack.
const (
	maxValues = 1 << 19
	valueSize = 32 // bytes of text that count as one value
	maxDepth  = 200
)

var (
	errDeep  = fmt.Errorf("nested deeper than %d levels", maxDepth)
	errLarge = fmt.Errorf("holds more than %d values or %d MiB of text, aliases counted where they are used", maxValues, maxValues*valueSize>>20)
)

// A budget counts the values of one document. A value that an alias stands for
// counts where it is used.
type budget struct{ used, depth int }

// enter counts one more value, one level further down.
func (b *budget) enter() error {
	if b.depth++; b.depth > maxDepth {
		return errDeep
	}
	return b.hold("")
}

func (b *budget) leave() { b.depth-- }

// hold counts the text of a scalar or key.
func (b *budget) hold(text string) error {
	if b.used += valueSize + len(text); b.used > maxValues*valueSize {
		return errLarge
	}
	return nil
}

// A jsonReader reads JSON values that follow each other.
type jsonReader struct {
	text []byte
	dec  *json.Decoder
	line int // line that offset is on
	at   int // offset that line was counted to
	budget
}

func newJSONReader(text []byte, line int) *jsonReader {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return &jsonReader{text: text, dec: dec, line: line}
}

// ReadJSON reads one JSON value, such as a Go value was encoded as.
func ReadJSON(text []byte) (*Node, error) { return newJSONReader(text, 1).next() }

// next returns the next value, io.EOF after the last.
func (r *jsonReader) next() (*Node, error) {
	start := r.dec.InputOffset()
	r.budget = budget{}
	tok, err := r.dec.Token()
	if err == io.EOF {
		return nil, err
	}
	n, err := r.value(tok, err)
	switch {
	case err == nil && r.dec.InputOffset()-start > MaxDocument:
		return nil, errLargeDocument
	case err == nil || err == errDeep || err == errLarge:
		return n, err
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("the text ends inside a value")
	}
	return nil, &Error{Line: r.here(), Err: fmt.Errorf("not JSON: %w", err)}
}

// here returns the line of the token just read.
func (r *jsonReader) here() int {
	end := min(int(r.dec.InputOffset()), len(r.text))
	r.line += bytes.Count(r.text[r.at:end], []byte("\n"))
	r.at = end
	return r.line
}

// value reads the value that begins with tok.
func (r *jsonReader) value(tok json.Token, err error) (*Node, error) {
	if err == nil {
		err = r.enter()
	}
	if err != nil {
		return nil, err
	}
	defer r.leave()
	n := &Node{Line: r.here()}
	switch tok := tok.(type) {
	case bool:
		n.Kind, n.Text = Bool, strconv.FormatBool(tok)
	case json.Number:
		n.Kind, n.Text = Number, tok.String()
	case string:
		n.Kind, n.Text = Text, tok
	case json.Delim:
		if n.Kind = List; tok == '{' {
			n.Kind = Map
		}
		return n, r.inner(n)
	}
	return n, nil
}

// inner reads what a list or mapping holds, to its end.
func (r *jsonReader) inner(n *Node) error {
	for {
		tok, err := r.dec.Token()
		if tok == json.Delim(']') || tok == json.Delim('}') {
			return nil
		}
		name, line := "", 0
		if n.Kind == Map && err == nil {
			name, line = tok.(string), r.here()
			tok, err = r.dec.Token()
		}
		v, err := r.value(tok, err)
		if err != nil {
			return err
		}
		if n.Kind == Map {
			n.Fields = append(n.Fields, Field{name, line, v})
		} else {
			n.Items = append(n.Items, v)
		}
	}
}

// A yamlReader reads YAML documents as nodes.
type yamlReader struct {
	dec    *yaml.Decoder
	before int // lines of the file before the text
	budget
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// next returns the next document, io.EOF after the last.
func (r *yamlReader) next() (*Node, error) {
	r.budget = budget{}
	var doc yaml.Node
	err := r.dec.Decode(&doc)
	if err == nil {
		return r.value(&doc)
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

func (r *yamlReader) value(y *yaml.Node) (*Node, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.leave()
	n := &Node{Line: y.Line + r.before}
	switch y.Kind {
	case yaml.DocumentNode:
		if len(y.Content) == 1 {
			return r.value(y.Content[0])
		}
	case yaml.AliasNode:
		return r.value(y.Alias) // the budget bounds aliases that multiply
	case yaml.SequenceNode:
		n.Kind = List
		for _, item := range y.Content {
			v, err := r.value(item)
			if err != nil {
				return nil, err
			}
			n.Items = append(n.Items, v)
		}
	case yaml.MappingNode:
		n.Kind = Map
		return n, r.mapping(n, y)
	case yaml.ScalarNode:
		return n, r.scalar(n, y)
	}
	return n, nil
}

func (r *yamlReader) mapping(n *Node, y *yaml.Node) error {
	var merged []*Node
	for i := 0; i+1 < len(y.Content); i += 2 {
		key := y.Content[i]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		line := key.Line + r.before
		if key.Kind != yaml.ScalarNode {
			return &Error{Line: line, Err: errors.New("a key must be a string")}
		}
		if err := r.hold(key.Value); err != nil {
			return err
		}
		v, err := r.value(y.Content[i+1])
		switch {
		case err != nil:
			return err
		case key.ShortTag() != "!!merge":
			n.Fields = append(n.Fields, Field{key.Value, line, v})
		case v.Kind == List:
			merged = append(merged, v.Items...)
		default:
			merged = append(merged, v)
		}
	}
	return n.merge(merged)
}

// merge adds the fields of the mappings that n has not.
func (n *Node) merge(from []*Node) error {
	have := make(map[string]bool)
	for _, f := range n.Fields {
		have[f.Name] = true
	}
	for _, m := range from {
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

func (r *yamlReader) scalar(n *Node, y *yaml.Node) error {
	if err := r.hold(y.Value); err != nil {
		return err
	}
	n.Text = y.Value
	wrong := ""
	switch tag := y.ShortTag(); tag {
	case "!!null":
	case "!!bool":
		var b bool
		if y.Decode(&b) != nil {
			wrong = "a value tagged !!bool is no boolean"
		}
		n.Kind, n.Text = Bool, strconv.FormatBool(b)
	case "!!int", "!!float":
		n.Kind = Number
		if !jsonNumber.MatchString(n.Text) && !n.number(y) {
			wrong = "a value is no number that JSON can hold"
		}
	case "!!str", "!!timestamp", "!!merge":
		n.Kind = Text
		n.word = y.Style == 0 && oldBool.MatchString(y.Value)
	default:
		wrong = "the tag " + Quote(tag) + " is not supported"
	}
	if wrong != "" {
		return &Error{Line: n.Line, Err: errors.New(wrong)}
	}
	return nil
}

// number writes a number of YAML in JSON's form, if it has one.
func (n *Node) number(y *yaml.Node) bool {
	var i int64
	var f float64
	if y.Decode(&i) == nil {
		n.Text = strconv.FormatInt(i, 10)
		return true
	}
	if y.Decode(&f) != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return false
	}
	text, err := json.Marshal(f)
	n.Text = string(text)
	return err == nil
}
