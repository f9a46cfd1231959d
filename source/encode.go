package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/headgate-io/headgate/internal/document"
	"go.yaml.in/yaml/v3"
)

// EncodeJSON writes obj as an indented JSON document, with fields in the order of
// their names. The kind is spelled as in the document that obj was read from, or
// else as its group spells it; fields that the object's version does not have are
// left out.
func EncodeJSON(obj Object) ([]byte, error) {
	n, err := written(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", obj.Head(), err)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err = enc.Encode(n.Value())
	return out.Bytes(), err
}

// EncodeYAML writes obj as a YAML document without markers, with fields in the
// order apiVersion, kind, metadata, spec, status; see [EncodeJSON].
func EncodeYAML(obj Object) ([]byte, error) {
	n, err := written(obj)
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	enc.CompactSeqIndent()
	if err == nil {
		err = errors.Join(enc.Encode(styled(n)), enc.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", obj.Head(), err)
	}
	return out.Bytes(), nil
}

// written returns obj as its version and group write it.
func written(obj Object) (*document.Node, error) {
	out, err := copyOf(obj)
	if err != nil {
		return nil, err
	}
	head := out.Head()
	if k := spelledKind(head.Kind); k != nil {
		drop(out, k, versionSet(head.Version()), new(document.Findings))
		head.Kind = head.spelling()
		if c, ok := out.(*PkgChart); ok && head.Kind == k.reference {
			c.Spec.SourceRef.Kind = c.kindOf(c.Spec.SourceRef.Kind)
		}
	}
	text, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	n, err := document.ParseJSON(text)
	if err == nil {
		if timeout := n.At("spec", "timeout"); timeout != nil {
			if d, err := ParseDuration(timeout.Text); err == nil {
				timeout.Text = d.timeout()
			}
		}
	}
	return n, err
}

// copyOf returns a copy of obj that shares nothing with it.
func copyOf(obj Object) (Object, error) {
	out := blank(obj)
	text, err := json.Marshal(obj)
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	out.Head().spelled = obj.Head().spelled
	return out, err
}

// styled returns n in the style of YAML documents.
func styled(n *document.Node) *yaml.Node {
	y := &yaml.Node{Kind: yaml.ScalarNode, Value: n.Text}
	switch n.Kind {
	case document.Null:
		y.Value = "null"
	case document.Text:
		return styledText(n.Text)
	case document.List:
		y.Kind = yaml.SequenceNode
		for _, item := range n.Items {
			y.Content = append(y.Content, styled(item))
		}
	case document.Map:
		y.Kind = yaml.MappingNode
		for _, f := range n.Fields {
			y.Content = append(y.Content, styledText(f.Name), styled(f.Value))
		}
	}
	return y
}

// styledText returns a text that reads back as a string, in YAML 1.1 too.
func styledText(text string) *yaml.Node {
	y := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	switch {
	case text == "<<": // the library would write a merge
		y.Style = yaml.DoubleQuotedStyle
	case block(text):
		y.Style = yaml.LiteralStyle
	case strings.ContainsFunc(text, unicode.IsControl):
		y.Style = yaml.DoubleQuotedStyle
	default:
		y.Encode(text) // a string, which does not fail
	}
	return y
}

// block reports whether a text of several lines can be a block of YAML: the
// library gets the indentation of others wrong.
func block(text string) bool {
	if !strings.Contains(text, "\n") || strings.TrimLeft(text, " \t\n") != text {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
}
