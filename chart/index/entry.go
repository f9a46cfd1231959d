package index

import (
	"bytes"
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
	fields  map[string]any // nil, strings, []any and map[string]any
	problem error          // why it cannot be used, nil if that is not known yet
}

var (
	errBig    = fmt.Errorf("it is larger than %d bytes", entrySize)
	errDeep   = fmt.Errorf("collections are more than %d deep", depthLimit)
	errAlias  = fmt.Errorf("aliases stand for more than %d bytes", aliasLimit)
	errNull   = errors.New("it is null")
	errNoMap  = errors.New("it is no mapping")
	errNoList = errors.New("its versions are no list")
)

func errTwice(field string) error { return fmt.Errorf("field %s is there twice", quote(field)) }

func tooManyVersions(line int, chart string) error {
	return fmt.Errorf("line %d: chart %s has more than %d versions", line, quote(chart), versionLimit)
}

const (
	depthLimit = 100      // collections within each other
	aliasLimit = 16 << 20 // bytes that aliases of an index stand for, together
)

// read reads a version in YAML. The bytes that its aliases stand for are added
// to aliases. The error is that of an index that is not to be read.
func (v *version) read(n *yaml.Node, aliases *int) error {
	r := valueReader{left: entrySize, aliases: aliases}
	value, err := r.value(n, 0)
	switch fields, ok := value.(map[string]any); {
	case err == errBig:
		v.problem = err
	case err != nil:
		return err
	case ok:
		v.fields = fields
		if r.twice != "" {
			v.problem = errTwice(r.twice)
		}
	case value == nil:
		v.problem = errNull
	default:
		v.problem = errNoMap
	}
	return nil
}

// A valueReader returns what nodes of YAML stand for.
type valueReader struct {
	left    int    // bytes that the value may have yet
	aliases *int   // bytes that aliases stand for
	within  int    // aliases that are being read
	twice   string // a field of the outermost mapping that is there twice
}

// value returns nil for null, a string for any other scalar, []any or
// map[string]any.
func (r *valueReader) value(n *yaml.Node, depth int) (any, error) {
	size := len(n.Value) + valueSize
	if r.left -= size; r.left < 0 {
		return nil, errBig
	}
	if r.within > 0 {
		if *r.aliases += size; *r.aliases > aliasLimit {
			return nil, errAlias
		}
	}
	switch {
	case depth > depthLimit:
		return nil, errDeep
	case n.Kind == yaml.AliasNode:
		r.within++
		defer func() { r.within-- }()
		return r.value(n.Alias, depth)
	case isNull(n):
		return nil, nil
	case n.Kind == yaml.ScalarNode:
		return n.Value, nil
	case n.Kind == yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, e := range n.Content {
			var err error
			if list[i], err = r.value(e, depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return r.mapping(n, depth)
}

// mapping is value for a mapping. What it says itself counts before what it
// takes over by the key <<.
func (r *valueReader) mapping(n *yaml.Node, depth int) (map[string]any, error) {
	m, merged := make(map[string]any, len(n.Content)/2), map[string]any{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := target(n.Content[i])
		value, err := r.value(n.Content[i+1], depth+1)
		switch {
		case err != nil:
			return nil, err
		case key.Kind != yaml.ScalarNode:
			return nil, fmt.Errorf("line %d: a key must be a text", key.Line)
		case key.Value == "<<" && key.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0:
			merge(merged, value)
			continue
		}
		if r.left -= len(key.Value) + valueSize; r.left < 0 {
			return nil, errBig
		}
		if _, twice := m[key.Value]; twice && depth == 0 && r.twice == "" {
			r.twice = key.Value
		}
		m[key.Value] = value
	}
	merge(m, merged)
	return m, nil
}

// merge adds the fields that m does not have from a mapping, or a list of them.
func merge(m map[string]any, from any) {
	switch from := from.(type) {
	case map[string]any:
		for k, v := range from {
			if _, ok := m[k]; !ok {
				m[k] = v
			}
		}
	case []any:
		for _, e := range from {
			if e, ok := e.(map[string]any); ok {
				merge(m, e)
			}
		}
	}
}

// target returns the node that an alias stands for.
func target(n *yaml.Node) *yaml.Node {
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

// isText tells whether a node is a scalar that says something.
func isText(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Value != "" && !isNull(n) }

// readJSON reads a version in JSON, false if it is none.
func (v *version) readJSON(text []byte) (ok bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	switch {
	case string(text) == "null":
		v.problem = errNull
		return true
	case len(text) == 0 || text[0] != '{':
		v.problem = errNoMap
		return json.Valid(text)
	}
	v.fields = map[string]any{}
	_, err := d.Token()
	for err == nil && d.More() {
		var key json.Token
		var value any
		if key, err = d.Token(); err == nil {
			err = d.Decode(&value)
		}
		name, _ := key.(string)
		if _, twice := v.fields[name]; twice && v.problem == nil {
			v.problem = errTwice(name)
		}
		v.fields[name] = value
	}
	if err == nil {
		_, err = d.Token()
	}
	return err == nil
}

// entry returns the entry that a version of the chart is, and the first thing
// that makes it useless.
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
		text, err := scalar(v.fields[f.name])
		*f.to = text
		problem = first(problem, f.name, err)
	}
	e.Deprecated, e.Created = strings.EqualFold(deprecated, "true"), parseTime(created)
	urls, err := list(v.fields["urls"])
	problem = first(problem, "urls", err)
	for _, u := range urls {
		text, err := scalar(u)
		problem = first(problem, "urls", err)
		if text != "" {
			e.URLs = append(e.URLs, text)
		}
	}
	for _, field := range []string{"maintainers", "dependencies"} {
		all, err := list(v.fields[field])
		problem = first(problem, field, err)
		for _, m := range all {
			if _, ok := m.(map[string]any); !ok {
				problem = first(problem, field, errors.New("must have mappings in it"))
			}
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

// first returns problem, or what err says about a field if there is none.
func first(problem error, field string, err error) error {
	if problem != nil || err == nil {
		return problem
	}
	return fmt.Errorf("field %s %w", quote(field), err)
}

// scalar returns a text, "" for null.
func scalar(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	}
	return "", errors.New("must be a text")
}

// list returns the elements of a list, none for null.
func list(v any) ([]any, error) {
	all, ok := v.([]any)
	if !ok && v != nil {
		return nil, errors.New("must be a list")
	}
	return all, nil
}

// timeLayouts are the spellings of times in YAML, beside that of JSON.
var timeLayouts = []string{time.RFC3339Nano, "2006-01-02t15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999 Z07:00", "2006-01-02 15:04:05.999999999", time.DateOnly}

// parseTime returns the time that text is, zero when it is none.
func parseTime(text string) time.Time {
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t
		}
	}
	return time.Time{}
}

// problem says why the entry cannot be used, which calls itself name.
func (e *Entry) problem(name string) error {
	switch {
	case name == "":
		return errors.New("name is missing")
	case name != e.Name:
		return fmt.Errorf("its name is %s, not that of the list it is in", quote(name))
	case !allowed(name):
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

// allowed tells whether a chart may have the name.
func allowed(name string) bool {
	return name != "." && !strings.Contains(name, "..") && !strings.ContainsAny(name, `/\`) && !strings.ContainsFunc(name, unicode.IsControl) && utf8.ValidString(name)
}

// isSHA256 tells whether text is HEX or sha256:HEX.
func isSHA256(text string) bool {
	digest := strings.TrimPrefix(text, "sha256:")
	return len(digest) == 64 && strings.Trim(digest, "0123456789abcdefABCDEF") == ""
}

// quote makes text of an index fit for a message.
func quote(text string) string { return strconv.Quote(cut(text)) }

// cut returns the first 100 bytes of text.
func cut(text string) string {
	if len(text) > 100 {
		return text[:100] + "…"
	}
	return text
}
