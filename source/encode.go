package source

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// EncodeJSON writes obj as an indented JSON document. As in every document,
// fields come in the order apiVersion, kind, metadata, spec, status; the kind
// is spelled as in the document that obj was read from, or else as its group
// spells it; fields that the object's version does not have are left out.
func EncodeJSON(obj Object) ([]byte, error) {
	n, err := document(obj)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, n.appendJSON(nil), "", "  "); err != nil {
		return nil, fmt.Errorf("encode %s: %w", obj.Head(), err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// EncodeYAML writes obj as a YAML document without markers; see [EncodeJSON].
func EncodeYAML(obj Object) ([]byte, error) {
	n, err := document(obj)
	if err != nil {
		return nil, err
	}
	y, err := n.yaml()
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", obj.Head(), err)
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	if err := enc.Encode(y); err != nil {
		return nil, fmt.Errorf("encode %s: %w", obj.Head(), err)
	}
	return out.Bytes(), enc.Close()
}

// tree returns obj as the JSON encoding of its Go type.
func tree(obj Object) (*node, error) {
	text, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", obj.Head(), err)
	}
	n, err := newJSONReader(text, 1).next()
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", obj.Head(), err)
	}
	return n, nil
}

// document returns obj as its version and group write it.
func document(obj Object) (*node, error) {
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
	n.set(kind, "kind")
	for r := range absent(k, versionSet(head.Version())) {
		n.remove(r.path)
	}
	if d, err := ParseDuration(n.str("spec", "timeout")); err == nil {
		n.set(d.timeout(), "spec", "timeout")
	}
	if ref := spelledKind(n.str("spec", "sourceRef", "kind")); ref != nil && k.name == "PkgChart" && kind == k.reference {
		n.set(ref.reference, "spec", "sourceRef", "kind")
	}
	return n, nil
}

// set changes the text at path, if there is a string.
func (n *node) set(text string, path ...string) {
	if v := n.get(path...); v != nil && v.kind == textNode {
		v.text = text
	}
}

// yaml returns the node as the YAML encoder takes it.
func (n *node) yaml() (*yaml.Node, error) {
	y := new(yaml.Node)
	switch n.kind {
	case nullNode:
		y.Kind, y.Tag, y.Value = yaml.ScalarNode, "!!null", "null"
	case boolNode, numberNode:
		y.Kind, y.Value = yaml.ScalarNode, n.text
	case textNode:
		return yamlText(n.text)
	case listNode:
		y.Kind = yaml.SequenceNode
		for _, item := range n.items {
			v, err := item.yaml()
			if err != nil {
				return nil, err
			}
			y.Content = append(y.Content, v)
		}
	case mapNode:
		y.Kind = yaml.MappingNode
		for _, f := range n.fields {
			key, err := yamlText(f.name)
			if err != nil {
				return nil, err
			}
			value, err := f.value.yaml()
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
