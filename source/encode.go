package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/headgate-io/headgate/internal/document"
	"go.yaml.in/yaml/v3"
)

// EncodeJSON writes obj as an indented JSON document, with fields sorted by name. The kind is
// spelled as in the document that obj was read from, or else as in its group. Fields that the
// object's version does not have are left out.
func EncodeJSON(obj Object) ([]byte, error) {
	y, err := encodeNode(obj)
	var value any
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err == nil {
		err = y.Decode(&value)
	}
	if err == nil {
		err = enc.Encode(value)
	}
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", obj.Head(), err)
	}
	return out.Bytes(), nil
}

// EncodeYAML writes obj as a YAML document without markers, with fields in the
// order apiVersion, kind, metadata, spec, status; see [EncodeJSON].
func EncodeYAML(obj Object) ([]byte, error) {
	y, err := encodeNode(obj)
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

// EncodeStatus writes the status of obj as compact JSON, without the fields that the object's version does not have.
func EncodeStatus(obj Object) ([]byte, error) {
	out, err := deepCopy(obj)
	if err != nil {
		return nil, fmt.Errorf("encode status of %s: %w", obj.Head(), err)
	}
	if k := kindBySpelling(out.Head().Kind); k != nil {
		removeFields(out, k, out.Head().Version(), new(document.Findings))
	}
	return json.Marshal(statusOf(out).Interface())
}

// DecodeStatus sets the status of obj to the output of [EncodeStatus].
func DecodeStatus(obj Object, text []byte) error {
	status := statusOf(obj)
	status.SetZero()
	return json.Unmarshal(text, status.Addr().Interface())
}

// encodeNode returns obj as a document in its version and group.
func encodeNode(obj Object) (*yaml.Node, error) {
	out, err := deepCopy(obj)
	if err != nil {
		return nil, err
	}
	head := out.Head()
	if k := kindBySpelling(head.Kind); k != nil {
		removeFields(out, k, head.Version(), new(document.Findings))
		head.Kind = head.spelling()
		if c, ok := out.(*PkgChart); ok && head.Kind == k.reference {
			c.Spec.SourceRef.Kind = c.kindOf(c.Spec.SourceRef.Kind)
		}
		if g, ok := out.(*ArtifactGenerator); ok {
			for i := range g.Spec.Sources {
				g.Spec.Sources[i].Kind = g.kindOf(g.Spec.Sources[i].Kind)
			}
		}
	}
	text, err := json.Marshal(out)
	var doc yaml.Node
	if err == nil {
		err = yaml.Unmarshal(document.FromJSON(text), &doc)
	}
	if err != nil {
		return nil, err
	}
	y := doc.Content[0]
	timeout := member(member(y, "spec"), "timeout")
	if d, err := ParseDuration(timeout.Value); err == nil {
		timeout.Value = d.timeout()
	}
	restyle(y)
	return y, nil
}

// deepCopy returns a copy of obj that shares nothing with it.
func deepCopy(obj Object) (Object, error) {
	out := newLike(obj)
	text, err := json.Marshal(obj)
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	out.Head().spelled = obj.Head().spelled
	return out, err
}

// member returns the value of a field of a mapping, an empty node if there is none.
func member(y *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(y.Content); i += 2 {
		if y.Content[i].Value == name {
			return y.Content[i+1]
		}
	}
	return new(yaml.Node)
}

// yaml11Special matches strings that YAML 1.1 reads as a boolean or a number of seconds, and a key that the
// library would write as a merge.
var yaml11Special = regexp.MustCompile(`^(?:(?i:y|n|yes|no|on|off)|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?|<<)$`)

// restyle gives nodes read from JSON the style of YAML documents. Strings decode as strings, also
// in YAML 1.1.
func restyle(y *yaml.Node) {
	y.Style = 0
	switch {
	case y.ShortTag() != "!!str":
	case strings.Contains(y.Value, "\n") && canBeBlock(y.Value):
		y.Style = yaml.LiteralStyle
	case yaml11Special.MatchString(y.Value) || strings.ContainsFunc(y.Value, unicode.IsControl):
		y.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range y.Content {
		restyle(child)
	}
}

// canBeBlock reports whether a text of several lines can be a YAML block scalar: the library gets the
// indentation of others wrong.
func canBeBlock(text string) bool {
	if strings.TrimLeft(text, " \t\n") != text {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
}
