package bundle

import (
	"errors"
	"fmt"
	"io/fs"
)

// valuesBytes is how many bytes values.yaml may have, as any file of a chart.
const valuesBytes = 5 << 20

// Values returns the text of values.yaml without a byte order mark, nil when
// there is none. It has at most 5 MiB.
func (c *Chart) Values() ([]byte, error) {
	text, err := readFile(c.Files, valuesFile, valuesBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read values of the chart: %w", err)
	}
	if text == nil {
		text = []byte{}
	}
	return text, nil
}

// Merge merges texts of values (reference A14): maps deeply, in the order of
// texts, and of all else the later wins; a null stays a null. The result is one
// map in YAML with sorted keys, which means to the package manager what the
// texts given to it one by one mean. A text without content is an empty map.
//
// A text has at most 1 MiB and 100 levels, and its aliases stand for at most
// 8 MiB. Errors name the element of texts, counted from 0, that is no map
// of values.
func Merge(texts ...[]byte) ([]byte, error) {
	all := map[string]any{}
	for i, text := range texts {
		m, err := valueMap(text)
		if err != nil {
			return nil, fmt.Errorf("merge values: text %d: %w", i, err)
		}
		overlay(all, m)
	}
	text, err := encode(all)
	if err != nil {
		return nil, fmt.Errorf("merge values: %w", err)
	}
	if len(text) > valuesBytes {
		return nil, fmt.Errorf("merge values: the result has more than %d bytes", valuesBytes)
	}
	return text, nil
}

// checkValues fails when text, of values.yaml, is none that the package manager
// can load. It passes over texts that are too large for Merge.
func checkValues(text []byte) error {
	if len(text) > textBytes {
		return nil
	}
	if _, err := valueMap(text); err != nil {
		return invalid(valuesFile, "%w", err)
	}
	return nil
}

// valueMap reads one text of values.
func valueMap(text []byte) (map[string]any, error) {
	v, err := values(trimBOM(text))
	if err == nil {
		v, err = plainValue(v)
	}
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return v, nil
	}
	return nil, errors.New("it is no map of values")
}

// overlay sets in m what over has.
func overlay(m, over map[string]any) {
	for k, v := range over {
		upper, isMap := v.(map[string]any)
		if lower, both := m[k].(map[string]any); isMap && both {
			overlay(lower, upper)
			continue
		}
		m[k] = v
	}
}
