package index

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// A version is an element of the list of a chart.
type version struct {
	line    int
	fields  map[string]any // of [Entry]: nil, a string, []any of these, or any other value if malformed
	problem error          // why it cannot be used, nil if no reason is known yet
}

var (
	errBig    = fmt.Errorf("it is larger than %d bytes", entrySize)
	errNull   = errors.New("it is null")
	errNoMap  = errors.New("it is no mapping")
	errNoList = errors.New("its versions are no list")
	errAlias  = errors.New("aliases and merged mappings of the index stand for too much")
)

// neededFields are the fields of an index entry that [Entry] depends on.
var neededFields = map[string]bool{
	"<<": true, "name": true, "version": true, "appVersion": true, "description": true, "type": true, "deprecated": true,
	"created": true, "digest": true, "urls": true,
}

// urlLimit is the number of URLs of an entry that count.
const urlLimit = 100

func tooManyVersions(line int, chart string) error {
	return fmt.Errorf("line %d: chart %s has more than %d versions", line, quote(chart), versionLimit)
}

// read decodes a version from YAML. left is the number of values that aliases and merged
// mappings of the index may still expand to.
func (v *version) read(n *yaml.Node, left *int) {
	if n.Kind == yaml.AliasNode {
		*left -= len(resolveAlias(n).Content)
	}
	switch n = resolveAlias(n); {
	case isNull(n):
		v.problem = errNull
	case n.Kind != yaml.MappingNode:
		v.problem = errNoMap
	default:
		v.fields = map[string]any{}
		v.addFields(n, 0, left)
	}
}

// addFields adds the fields of a mapping that v does not have, the last of each name. The
// mapping's own fields take precedence over those that it merges by the key <<.
func (v *version) addFields(n *yaml.Node, depth int, left *int) {
	if n = resolveAlias(n); depth > 0 {
		*left -= 1 + len(n.Content)
	}
	if *left < 0 {
		v.problem = errAlias
		return
	}
	if n.Kind == yaml.SequenceNode && depth == 1 {
		for _, e := range n.Content {
			v.addFields(e, depth+1, left)
		}
	}
	for i := len(n.Content) - 2; i >= 0 && n.Kind == yaml.MappingNode; i -= 2 {
		key := resolveAlias(n.Content[i])
		if _, ok := v.fields[key.Value]; !ok && neededFields[key.Value] && !isMergeKey(key) {
			v.fields[key.Value] = valueOf(n.Content[i+1], true)
		}
	}
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode && depth < 3; i += 2 {
		if isMergeKey(resolveAlias(n.Content[i])) {
			v.addFields(n.Content[i+1], depth+1, left)
		}
	}
}

// isMergeKey reports whether a key merges a mapping, or several.
func isMergeKey(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.Value == "<<" && key.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0
}

// valueOf returns the value of a node in the form of version.fields.
func valueOf(n *yaml.Node, lists bool) any {
	switch n = resolveAlias(n); {
	case isNull(n):
		return nil
	case n.Kind == yaml.ScalarNode:
		return n.Value
	case n.Kind == yaml.SequenceNode && lists:
		all := []any{}
		for _, e := range n.Content[:min(len(n.Content), urlLimit)] {
			all = append(all, valueOf(e, false))
		}
		return all
	}
	return n
}

// resolveAlias returns the node that an alias stands for.
func resolveAlias(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// isNull tells whether a node is null, whatever its spelling.
func isNull(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode || n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return false
	}
	switch n.Value {
	case "", "~", "null", "Null", "NULL":
		return true
	}
	return false
}

// isText reports whether a node is a scalar that is neither empty nor null.
func isText(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Value != "" && !isNull(n) }

// readJSON decodes a version from JSON. It returns false if text is not JSON.
func (v *version) readJSON(text []byte) (ok bool) {
	if string(text) == "null" {
		v.problem = errNull
		return true
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(text, &all) != nil {
		v.problem = errNoMap
		return json.Valid(text)
	}
	v.fields = map[string]any{}
	for name, value := range all {
		if neededFields[name] {
			v.fields[name] = valueOfJSON(value, true)
		}
	}
	return true
}

// valueOfJSON is valueOf for valid JSON. Numbers keep their spelling.
func valueOfJSON(text json.RawMessage, lists bool) any {
	switch text[0] {
	case 'n':
		return nil
	case '"':
		var s string
		_ = json.Unmarshal(text, &s)
		return s
	case '[', '{':
		var list []json.RawMessage
		if !lists || json.Unmarshal(text, &list) != nil {
			return text
		}
		all := []any{}
		for _, e := range list[:min(len(list), urlLimit)] {
			all = append(all, valueOfJSON(e, false))
		}
		return all
	}
	return string(text)
}

// entry returns the entry for a version of the chart, and the first problem that makes it
// unusable.
func (v *version) entry(chart string) (e Entry, problem error) {
	e = Entry{Name: chart, Line: v.line}
	var name, deprecated, created string
	for _, f := range []struct {
		name string
		to   *string
	}{
		{"name", &name}, {"version", &e.Version}, {"appVersion", &e.AppVersion}, {"description", &e.Description}, {"type", &e.Type},
		{"deprecated", &deprecated}, {"created", &created}, {"digest", &e.Digest},
	} {
		text, ok := scalar(v.fields[f.name])
		if *f.to = text; !ok && problem == nil {
			problem = fmt.Errorf("field %s must be a text", quote(f.name))
		}
	}
	e.Deprecated, e.Created = strings.EqualFold(deprecated, "true"), parseTime(created)
	urls, list := v.fields["urls"].([]any)
	if !list && v.fields["urls"] != nil && problem == nil {
		problem = errors.New(`field "urls" must be a list`)
	}
	for _, u := range urls {
		text, ok := scalar(u)
		if !ok && problem == nil {
			problem = errors.New(`field "urls" must be a text`)
		}
		if text != "" {
			e.URLs = append(e.URLs, text)
		}
	}
	switch {
	case v.problem != nil:
		problem = v.problem
	case problem == nil:
		problem = e.problem(name)
	}
	return e, problem
}

// scalar returns a string, or "" for null. It returns false for any other value.
func scalar(v any) (text string, ok bool) {
	text, ok = v.(string)
	return text, ok || v == nil
}

// timeLayouts are the layouts of times in JSON and YAML.
var timeLayouts = []string{time.RFC3339Nano, "2006-01-02t15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999 Z07:00", "2006-01-02 15:04:05.999999999", time.DateOnly}

// parseTime parses a time. It returns the zero time if text has none of the layouts.
func parseTime(text string) time.Time {
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t
		}
	}
	return time.Time{}
}

// problem returns why the entry cannot be used, nil if it can. name is the name in the
// entry itself.
func (e *Entry) problem(name string) error {
	switch {
	case name == "":
		return errors.New("name is missing")
	case name != e.Name:
		return fmt.Errorf("its name is %s, not that of the list it is in", quote(name))
	case !validName(name):
		return fmt.Errorf("name %s is not allowed", quote(name))
	case e.Version == "":
		return errors.New("version is missing")
	case e.Type != "" && e.Type != "application" && e.Type != "library":
		return fmt.Errorf("type %s is neither application nor library", quote(e.Type))
	case len(e.URLs) == 0:
		return errors.New("urls is empty")
	case e.Digest != "" && !isSHA256(e.Digest):
		return fmt.Errorf("digest %s is no sha256", quote(e.Digest))
	}
	if _, err := parseVersion(e.Version); err != nil {
		return fmt.Errorf("version %s: %w", quote(e.Version), err)
	}
	return nil
}

// validName reports whether a chart may have the name.
func validName(name string) bool {
	return name != "." && !strings.Contains(name, "..") && !strings.ContainsAny(name, `/\`) && !strings.ContainsFunc(name, unicode.IsControl) && utf8.ValidString(name)
}

// isSHA256 tells whether text is HEX or sha256:HEX.
func isSHA256(text string) bool {
	digest := strings.TrimPrefix(text, "sha256:")
	return len(digest) == 64 && strings.Trim(digest, "0123456789abcdefABCDEF") == ""
}

// quote quotes text of an index for a message, and shortens it.
func quote(text string) string { return strconv.Quote(truncate(text)) }

// truncate returns the first 100 bytes of text.
func truncate(text string) string {
	if len(text) > 100 {
		return text[:100] + "…"
	}
	return text
}
