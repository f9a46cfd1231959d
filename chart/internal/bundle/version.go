package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/Masterminds/semver/v3"
	yaml3 "go.yaml.in/yaml/v3"
)

// Stamp returns version with its build metadata replaced, as semver spells it:
// three numbers and no leading v (reference A4).
func Stamp(version, metadata string) (string, error) {
	v, err := semver.NewVersion(version)
	if err != nil {
		return "", fmt.Errorf("stamp version %s: %w", quoted(version), err)
	}
	stamped, err := v.SetMetadata(metadata)
	if err != nil {
		return "", fmt.Errorf("stamp version %s with %s: %w", quoted(version), quoted(metadata), err)
	}
	return stamped.String(), nil
}

// setVersion returns the text of a Chart.yaml with another version. Where the
// text allows it nothing else changes; otherwise what it means is written anew,
// with sorted keys and without comments.
func setVersion(text []byte, version string) ([]byte, error) {
	if _, err := semver.NewVersion(version); err != nil {
		return nil, fmt.Errorf("version %s: %w", quoted(version), err)
	}
	before, err := fields(text)
	if err != nil {
		return nil, invalid(chartFile, "%w", err)
	}
	if edited, ok := replaceVersion(text, version); ok {
		if after, err := fields(edited); err == nil && differOnlyIn(before, after, version) && sameMetadata(text, edited, version) == nil {
			return edited, nil
		}
	}
	for key := range before {
		if name, ok := key.(string); ok && strings.EqualFold(name, "version") {
			delete(before, key)
		}
	}
	before["version"] = version
	edited, err := rewritten(before)
	if err != nil {
		return nil, invalid(chartFile, "%w", err)
	}
	return edited, sameMetadata(text, edited, version)
}

// fields returns the entries of a Chart.yaml.
func fields(text []byte) (map[any]any, error) {
	v, err := values(trimBOM(text))
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[any]any)
	if !ok {
		return nil, errors.New("it is no map")
	}
	return m, nil
}

// differOnlyIn reports whether after is before with another version.
func differOnlyIn(before, after map[any]any, version string) bool {
	if after["version"] != version || len(before) != len(after) {
		return false
	}
	for key, value := range before {
		if now, ok := after[key]; !ok || key != "version" && !reflect.DeepEqual(value, now) {
			return false
		}
	}
	return true
}

// rewritten is the text of entries.
func rewritten(entries map[any]any) ([]byte, error) {
	v, err := plainValue(entries)
	if err != nil {
		return nil, err
	}
	return encode(v)
}

// sameMetadata fails unless edited has the metadata of text and version.
func sameMetadata(text, edited []byte, version string) error {
	before, err := parseMetadata(trimBOM(text))
	if err != nil {
		return err
	}
	after, err := parseMetadata(trimBOM(edited))
	if err != nil {
		return err
	}
	before.Version = version
	if !reflect.DeepEqual(before, after) {
		return invalid(chartFile, "its version cannot be replaced: write it as plain text on a line of its own")
	}
	return nil
}

// replaceVersion replaces the text of the version, if it can tell where it is.
func replaceVersion(text []byte, version string) ([]byte, bool) {
	mark := len(text) - len(trimBOM(text))
	doc, err := parse(text[mark:])
	if err != nil || doc == nil || len(doc.Content) == 0 || doc.Content[0].Kind != yaml3.MappingNode {
		return nil, false
	}
	var value *yaml3.Node
	for pair := doc.Content[0].Content; len(pair) >= 2; pair = pair[2:] {
		if pair[0].Kind == yaml3.ScalarNode && pair[0].Value == "version" {
			value = pair[1] // the last one counts
		}
	}
	if value == nil {
		return nil, false
	}
	start, ok := offset(text[mark:], value.Line, value.Column)
	if !ok {
		return nil, false
	}
	start += mark
	start += properties(text[start:])
	old, quote := scalar(text[start:], value)
	if old == 0 {
		return nil, false
	}
	return bytes.Join([][]byte{text[:start], text[start+old:]}, []byte(quote+version+quote)), true
}

// offset returns where a line and a column, counted in characters, both from 1,
// begin.
func offset(text []byte, line, column int) (int, bool) {
	at := 0
	for ; line > 1; line-- {
		end := bytes.IndexByte(text[at:], '\n')
		if end < 0 {
			return 0, false
		}
		at += end + 1
	}
	for ; column > 1; column-- {
		_, size := utf8.DecodeRune(text[at:])
		if size == 0 {
			return 0, false
		}
		at += size
	}
	return at, at < len(text)
}

// properties returns the length of the anchor and tag that text begins with.
func properties(text []byte) int {
	n := 0
	for n < len(text) && (text[n] == '&' || text[n] == '!') {
		end := bytes.IndexAny(text[n:], " \t\r\n")
		if end < 0 {
			return n
		}
		n += end
		n += len(text[n:]) - len(bytes.TrimLeft(text[n:], " \t"))
	}
	return n
}

// scalar returns the length of the scalar that text begins with, the one of
// node, and the quotes around it; 0 when it is written in another way.
func scalar(text []byte, node *yaml3.Node) (length int, quote string) {
	switch {
	case node.Kind != yaml3.ScalarNode:
		return 0, ""
	case node.Style&yaml3.DoubleQuotedStyle != 0:
		quote = `"`
	case node.Style&yaml3.SingleQuotedStyle != 0:
		quote = `'`
	case node.Style&(yaml3.LiteralStyle|yaml3.FoldedStyle) != 0:
		return 0, ""
	}
	whole := quote + node.Value + quote
	if node.Value == "" || !bytes.HasPrefix(text, []byte(whole)) {
		return 0, ""
	}
	return len(whole), quote
}
