package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	yaml2 "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"

	"github.com/headgate-io/headgate/internal/document"
)

// Limits of a YAML text, in bytes.
const (
	textBytes   = 1 << 20 // of the text
	aliasBytes  = 8 << 20 // that its aliases expand to, together
	valuesBytes = 5 << 20 // of values.yaml, as of any file of a chart
)

// Values returns the text of values.yaml, at most 5 MiB, or nil if there is none.
func (c *Chart) Values() ([]byte, error) {
	text, err := readFile(c.Files, valuesFile, valuesBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// Merge merges texts of values (reference A14): maps deeply, in the order of texts. For all
// other values the later text wins, and null stays null. The result is one YAML map with
// sorted keys, which the package manager treats like the texts given to it one by one. A
// text without content is an empty map.
//
// A text has at most 1 MiB and 100 levels, and its aliases expand to at most 8 MiB. Errors
// name the element of texts, counted from 0, that is not a map of values.
func Merge(texts ...[]byte) ([]byte, error) {
	all := map[string]any{}
	for i, text := range texts {
		m, err := parseValues(text)
		if err != nil {
			return nil, fmt.Errorf("merge values: text %d: %w", i, err)
		}
		overlay(all, m)
	}
	text, err := yaml2.Marshal(all)
	if err == nil && len(text) > valuesBytes {
		err = fmt.Errorf("the result has more than %d bytes", valuesBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("merge values: %w", err)
	}
	return text, nil
}

// parseValues reads one text of values.
func parseValues(text []byte) (map[string]any, error) {
	var v any
	if err := decode(text, &v, keepDigits); err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok && v != nil {
		return nil, errors.New("it is no map of values")
	}
	return m, nil
}

// overlay merges overrides into m. The values of overrides win.
func overlay(m, overrides map[string]any) {
	for k, v := range overrides {
		upper, isMap := v.(map[string]any)
		if lower, both := m[k].(map[string]any); isMap && both {
			overlay(lower, upper)
			continue
		}
		m[k] = v
	}
}

// decode decodes a text as the package manager does, into a value with json tags.
func decode(text []byte, into any, options ...yaml.JSONOpt) error {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) // a byte order mark
	if len(text) > textBytes {
		return fmt.Errorf("it has more than %d bytes", textBytes)
	}
	if err := document.CheckYAML(text, aliasBytes); err != nil {
		return decodeError(err)
	}
	return decodeError(yaml.Unmarshal(text, into, options...))
}

// keepDigits keeps all digits of integers.
func keepDigits(d *json.Decoder) *json.Decoder {
	d.UseNumber()
	return d
}

// decodeError returns the message of a decoder without the content that it quotes.
func decodeError(err error) error {
	if err == nil {
		return nil
	}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("field %s: it must not be of type %s", plain(kind.Field), kind.Value)
	}
	text := err.Error()
	for _, known := range []struct{ part, means string }{
		{"map key", "a key is neither text, number nor truth value"},
		{"unsupported value", "a number is infinite or none"},
		{"parsing time", "a time is not of the form 2006-01-02T15:04:05Z"},
	} {
		if strings.Contains(text, known.part) {
			return errors.New(known.means)
		}
	}
	if _, message, ok := strings.Cut(text, "yaml: "); ok {
		text = message
	}
	return errors.New(plain(text))
}

// readFile reads the file name at the root of a chart. The error is an fs.ErrNotExist if
// there is none, and wraps [ErrChart] if it has more than limit bytes or is not a regular
// file.
func readFile(files fs.FS, name string, limit int64) ([]byte, error) {
	info, err := fs.Stat(files, name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, invalid(name, errors.New("it is no file"))
	case info.Size() > limit:
		return nil, invalid(name, fmt.Errorf("it has more than %d bytes", limit))
	}
	return fs.ReadFile(files, name)
}
