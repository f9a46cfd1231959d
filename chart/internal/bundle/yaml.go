package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	yaml2 "go.yaml.in/yaml/v2"
	yaml3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// Bounds of a YAML text.
const (
	textBytes  = 1 << 20 // of the text
	treeBytes  = 8 << 20 // of what its aliases stand for, together
	nodeBytes  = 32      // that a node counts beside its text
	treeLevels = 100
	maxTags    = 1000 // occurrences of %TAG, each of which is compared with all before
)

var (
	errDeep  = fmt.Errorf("it is more than %d levels deep", treeLevels)
	errLarge = fmt.Errorf("its aliases stand for more than %d bytes", treeBytes)
	errCycle = errors.New("an alias is part of what it stands for")
)

// parse returns the first document of a text, checked against the bounds; nil
// when there is none.
func parse(text []byte) (*yaml3.Node, error) {
	if len(text) > textBytes {
		return nil, fmt.Errorf("it has more than %d bytes", textBytes)
	}
	if bytes.Count(text, []byte("%TAG")) > maxTags {
		return nil, fmt.Errorf("it has more than %d directives %%TAG", maxTags)
	}
	var doc yaml3.Node
	if err := yaml3.Unmarshal(text, &doc); err != nil {
		return nil, problem(err)
	}
	if doc.Kind == 0 {
		return nil, nil
	}
	m := &meter{done: map[*yaml3.Node]extent{}}
	_, err := m.measure(&doc, 0)
	return &doc, err
}

// An extent is the size of a node, aliases written out.
type extent struct{ bytes, levels int }

// A meter measures nodes, each one once.
type meter struct {
	done    map[*yaml3.Node]extent // of nodes with an anchor; zero while being measured
	aliases int                    // bytes that the aliases so far stand for
}

func (m *meter) measure(n *yaml3.Node, level int) (extent, error) {
	if level > treeLevels {
		return extent{}, errDeep
	}
	if n.Kind == yaml3.AliasNode {
		e, ok := m.done[n.Alias]
		switch {
		case !ok || e.bytes == 0:
			return extent{}, errCycle
		case level+e.levels > treeLevels:
			return extent{}, errDeep
		}
		if m.aliases += e.bytes; m.aliases > treeBytes {
			return extent{}, errLarge
		}
		return e, nil
	}
	if n.Anchor != "" {
		m.done[n] = extent{}
	}
	e := extent{bytes: nodeBytes + len(n.Value) + len(n.Tag)}
	for _, child := range n.Content {
		c, err := m.measure(child, level+1)
		if err != nil {
			return extent{}, err
		}
		e.bytes += c.bytes
		e.levels = max(e.levels, c.levels+1)
	}
	if n.Anchor != "" {
		m.done[n] = e
	}
	return e, nil
}

// decode decodes a text into a value with json tags, as the package manager
// does.
func decode(text []byte, into any) error {
	if _, err := parse(text); err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		return problem(err)
	}
	return nil
}

// values decodes a text into what its nodes mean: maps with keys of any type,
// lists, and scalars.
func values(text []byte) (any, error) {
	if _, err := parse(text); err != nil {
		return nil, err
	}
	var v any
	if err := yaml2.Unmarshal(text, &v); err != nil {
		return nil, problem(err)
	}
	return v, nil
}

// problem returns what a decoder says, without the content it says it about.
func problem(err error) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fmt.Errorf("field %s: it must not be of type %s", plain(kind.Field), kind.Value)
	}
	text := err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "error unmarshaling JSON: ", "while decoding JSON: ", "yaml: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	for _, known := range []struct{ part, means string }{
		{"unsupported map key", "a key is neither text, number nor truth value"},
		{"invalid map key", "a key is a map or a list"},
		{"unsupported value", "a number is infinite or none"},
		{"parsing time", "a time is not of the form 2006-01-02T15:04:05Z"},
	} {
		if strings.Contains(text, known.part) {
			text = known.means
		}
	}
	return errors.New(plain(text))
}

// named returns the entries of a map by the names that the package manager
// gives its keys.
func named(m map[any]any) (map[string]any, error) {
	out := make(map[string]any, len(m))
	for k, v := range m {
		name, err := keyName(k)
		if err != nil {
			return nil, err
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("two keys are %s", quoted(name))
		}
		out[name] = v
	}
	return out, nil
}

// keyName returns the text that JSON has in place of a key.
func keyName(k any) (string, error) {
	switch k := k.(type) {
	case string:
		return valid(k), nil
	case int:
		return strconv.Itoa(k), nil
	case int64:
		return strconv.FormatInt(k, 10), nil
	case bool:
		return strconv.FormatBool(k), nil
	case float64:
		if math.IsInf(k, 0) || math.IsNaN(k) {
			return strings.ToLower(strings.Replace(fmt.Sprintf(".%v", k), ".-", "-.", 1)), nil
		}
		return strconv.FormatFloat(k, 'g', -1, 32), nil
	}
	return "", errors.New("a key is neither text, number nor truth value")
}

// valid returns text as JSON has it: what is no UTF-8 is replaced.
func valid(text string) string { return string([]rune(text)) }

// plainValue returns v, of [values], as the package manager has it: names for
// keys, valid text, finite numbers.
func plainValue(v any) (any, error) {
	switch v := v.(type) {
	case map[any]any:
		m, err := named(v)
		if err != nil {
			return nil, err
		}
		for k := range m {
			if m[k], err = plainValue(m[k]); err != nil {
				return nil, err
			}
		}
		return m, nil
	case []any:
		list := make([]any, len(v))
		for i := range v {
			var err error
			if list[i], err = plainValue(v[i]); err != nil {
				return nil, err
			}
		}
		return list, nil
	case string:
		return valid(v), nil
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return nil, errors.New("a number is infinite or none")
		}
	}
	return v, nil
}

// encode writes v, of [plainValue], with the keys of maps in order.
func encode(v any) ([]byte, error) {
	text, err := yaml2.Marshal(ordered(v))
	if err != nil {
		return nil, problem(err)
	}
	return text, nil
}

// ordered returns v with lists of entries in place of maps.
func ordered(v any) any {
	switch v := v.(type) {
	case map[string]any:
		entries := make(yaml2.MapSlice, 0, len(v))
		for k, value := range v {
			entries = append(entries, yaml2.MapItem{Key: k, Value: ordered(value)})
		}
		slices.SortFunc(entries, func(a, b yaml2.MapItem) int { return strings.Compare(a.Key.(string), b.Key.(string)) })
		return entries
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = ordered(v[i])
		}
		return list
	}
	return v
}
