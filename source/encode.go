package source

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/headgate-io/headgate/internal/document"
	"go.yaml.in/yaml/v3"
)

// EncodeJSON writes obj as an indented JSON document. As in every document,
// fields come in the order apiVersion, kind, metadata, spec, status; the kind
// is spelled as in the document that obj was read from, or else as its group
// spells it; fields that the object's version does not have are left out.
func EncodeJSON(obj Object) ([]byte, error) {
	n, err := written(obj)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, n.AppendJSON(nil), "", "  "); err != nil {
		return nil, fmt.Errorf("encode %s: %w", obj.Head(), err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// EncodeYAML writes obj as a YAML document without markers; see [EncodeJSON].
func EncodeYAML(obj Object) ([]byte, error) {
	n, err := written(obj)
	if err != nil {
		return nil, err
	}
	text, err := encodeYAML(n)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", obj.Head(), err)
	}
	return text, nil
}

func encodeYAML(n *document.Node) ([]byte, error) {
	y, err := yamlNode(n)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	if err := enc.Encode(y); err != nil {
		return nil, err
	}
	return out.Bytes(), enc.Close()
}

// tree returns obj as the JSON encoding of its Go type.
func tree(obj Object) (*document.Node, error) {
	text, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", obj.Head(), err)
	}
	n, err := document.ReadJSON(text)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", obj.Head(), err)
	}
	return n, nil
}

// written returns obj as its version and group write it.
func written(obj Object) (*document.Node, error) {
	n, err := tree(obj)
	if err != nil {
		return nil, err
	}
	head := obj.Head()
	k := spelledKind(head.Kind)
	if k == nil {
		return n, nil
	}
	kind := head.spelling()
	set(n, kind, "kind")
	for r := range absent(k, versionSet(head.Version())) {
		n.Remove(r.path)
	}
	if d, err := ParseDuration(n.StringAt("spec", "timeout")); err == nil {
		set(n, d.timeout(), "spec", "timeout")
	}
	if ref := spelledKind(n.StringAt("spec", "sourceRef", "kind")); ref != nil && k.name == "PkgChart" && kind == k.reference {
		set(n, ref.reference, "spec", "sourceRef", "kind")
	}
	return n, nil
}

// set changes the text at path, if there is a string.
func set(n *document.Node, text string, path ...string) {
	if v := n.At(path...); v != nil && v.Kind == document.Text {
		v.Text = text
	}
}

// yamlNode returns the node as the YAML encoder takes it.
func yamlNode(n *document.Node) (*yaml.Node, error) {
	y := new(yaml.Node)
	switch n.Kind {
	case document.Null:
		y.Kind, y.Tag, y.Value = yaml.ScalarNode, "!!null", "null"
	case document.Bool, document.Number:
		y.Kind, y.Value = yaml.ScalarNode, n.Text
	case document.Text:
		return yamlText(n.Text)
	case document.List:
		y.Kind = yaml.SequenceNode
		for _, item := range n.Items {
			v, err := yamlNode(item)
			if err != nil {
				return nil, err
			}
			y.Content = append(y.Content, v)
		}
	case document.Map:
		y.Kind = yaml.MappingNode
		for _, f := range n.Fields {
			key, err := yamlText(f.Name)
			if err != nil {
				return nil, err
			}
			value, err := yamlNode(f.Value)
			if err != nil {
				return nil, err
			}
			y.Content = append(y.Content, key, value)
		}
	}
	return y, nil
}

// yamlText returns a string in a style that reads back as one, in YAML 1.1 too.
func yamlText(text string) (*yaml.Node, error) {
	y := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	switch {
	case text == "<<": // the library would write a merge
		y.Style = yaml.DoubleQuotedStyle
	case block(text):
		y.Style = yaml.LiteralStyle
	case strings.ContainsFunc(text, unicode.IsControl):
		y.Style = yaml.DoubleQuotedStyle
	default:
		y = new(yaml.Node)
		return y, y.Encode(text)
	}
	return y, nil
}

// block reports whether a text of several lines can be a block of YAML: the
// library gets the indentation of others wrong.
func block(text string) bool {
	if !strings.Contains(text, "\n") || strings.TrimLeft(text, " \t\n") != text {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
}
