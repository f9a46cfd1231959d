package source

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
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
	y, err := yamlNode(n)
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	if err == nil {
		err = errors.Join(enc.Encode(y), enc.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", obj.Head(), err)
	}
	return out.Bytes(), nil
}

// tree returns obj as the JSON encoding of its Go type.
func tree(obj Object) (*document.Node, error) {
	text, err := json.Marshal(obj)
	var n *document.Node
	if err == nil {
		n, err = document.ReadJSON(text)
	}
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
func yamlNode(n *document.Node) (y *yaml.Node, err error) {
	if n.Kind == document.Text {
		return yamlText(n.Text)
	}
	y = &yaml.Node{Kind: yaml.ScalarNode, Value: cmp.Or(n.Text, "null")}
	add := func(child *yaml.Node, failed error) {
		y.Content, err = append(y.Content, child), cmp.Or(err, failed)
	}
	if n.Kind == document.List {
		y.Kind, y.Value = yaml.SequenceNode, ""
	} else if n.Kind == document.Map {
		y.Kind, y.Value = yaml.MappingNode, ""
	}
	for _, item := range n.Items {
		add(yamlNode(item))
	}
	for _, f := range n.Fields {
		add(yamlText(f.Name))
		add(yamlNode(f.Value))
	}
	return y, err
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
