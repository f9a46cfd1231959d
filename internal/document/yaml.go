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

	"go.yaml.in/yaml/v3"
)

// A yamlReader reads YAML documents as nodes.
type yamlReader struct {
	dec   *yaml.Decoder
	first int // line of the file that the text starts on
	budget
}

func newYAMLReader(text []byte, line int) *yamlReader {
	return &yamlReader{dec: yaml.NewDecoder(bytes.NewReader(text)), first: line}
}

// next returns the next document, io.EOF after the last.
func (r *yamlReader) next() (*Node, error) {
	r.budget = budget{}
	var doc yaml.Node
	if err := r.dec.Decode(&doc); err != nil {
		if err == io.EOF {
			return nil, err
		}
		return nil, r.explain(err)
	}
	return r.value(&doc)
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// explain moves the line that the parser counted to where the text is in its file.
func (r *yamlReader) explain(err error) error {
	text := err.Error()
	rest := shorten(text[len(yamlLine.FindString(text)):], 400) // it may quote a name
	if m := yamlLine.FindStringSubmatch(text); m != nil && m[1] != "" {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return &lineError{n + r.first - 1, errors.New("not YAML: " + rest)}
		}
	}
	return errors.New("not YAML: " + rest)
}

// A lineError is a defect of the syntax at a line of the file.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return e.err.Error() }

func (e *lineError) Unwrap() error { return e.err }

func (r *yamlReader) value(y *yaml.Node) (*Node, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.leave()
	n := &Node{Line: y.Line + r.first - 1}
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
		if key.Kind != yaml.ScalarNode {
			return &lineError{key.Line + r.first - 1, errors.New("a key must be a string")}
		}
		if err := r.hold(key.Value); err != nil {
			return err
		}
		v, err := r.value(y.Content[i+1])
		if err != nil {
			return err
		}
		if key.ShortTag() == "!!merge" {
			merged = append(merged, v)
			continue
		}
		n.Fields = append(n.Fields, Field{key.Value, key.Line + r.first - 1, v})
	}
	return n.merge(merged)
}

// merge adds the fields of the mappings, or lists of mappings, that n has not.
func (n *Node) merge(from []*Node) error {
	if len(from) == 0 {
		return nil
	}
	have := make(map[string]bool, len(n.Fields))
	for _, f := range n.Fields {
		have[f.Name] = true
	}
	var maps []*Node
	for _, m := range from {
		if m.Kind == List {
			maps = append(maps, m.Items...)
		} else {
			maps = append(maps, m)
		}
	}
	for _, m := range maps {
		if m.Kind != Map {
			return &lineError{m.Line, errors.New("<< merges mappings only")}
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

// oldBool holds the words that YAML 1.1, and so kubectl, reads as booleans.
var oldBool = regexp.MustCompile(`^(y|Y|yes|Yes|YES|on|On|ON|n|N|no|No|NO|off|Off|OFF)$`)

func (r *yamlReader) scalar(n *Node, y *yaml.Node) error {
	if err := r.hold(y.Value); err != nil {
		return err
	}
	n.Text = y.Value
	switch tag := y.ShortTag(); tag {
	case "!!null":
		n.Kind = Null
	case "!!bool":
		var b bool
		if y.Decode(&b) != nil {
			return &lineError{n.Line, errors.New("a value tagged !!bool is no boolean")}
		}
		n.Kind, n.Text = Bool, strconv.FormatBool(b)
	case "!!int", "!!float":
		return r.number(n, y)
	case "!!str", "!!timestamp", "!!merge":
		n.Kind = Text
		n.word = y.Style == 0 && oldBool.MatchString(y.Value)
	default:
		return &lineError{n.Line, fmt.Errorf("the tag %s is not supported", Quote(tag))}
	}
	return nil
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// number writes the number in JSON's form.
func (r *yamlReader) number(n *Node, y *yaml.Node) error {
	n.Kind = Number
	if jsonNumber.MatchString(y.Value) {
		return nil
	}
	var i int64
	if y.Decode(&i) == nil {
		n.Text = strconv.FormatInt(i, 10)
		return nil
	}
	var f float64
	if err := y.Decode(&f); err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return &lineError{n.Line, errors.New("a value is no number that JSON can hold")}
	}
	text, err := json.Marshal(f)
	n.Text = string(text)
	return err
}
