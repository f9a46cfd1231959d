package index

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// Limits of an index that is read whole. The YAML library makes a node of each
// value.
const (
	wholeLimit  = 64 << 20
	wholeValues = 4 << 20
	tagLimit    = 1000 // %TAG directives; the library compares each with all before it
)

// wholeMutex allows only one index at a time to be read whole, because that takes much
// memory.
var wholeMutex sync.Mutex

// readWhole decodes an index, as one document, with the YAML library.
func readWhole(r io.Reader, layout *layoutError, v *visitor) error {
	wholeMutex.Lock()
	defer wholeMutex.Unlock()
	var text bytes.Buffer
	if _, err := text.ReadFrom(io.LimitReader(r, wholeLimit+1)); err != nil {
		return err
	}
	switch {
	case text.Len() > wholeLimit:
		return fmt.Errorf("%w, and it is larger than the %d bytes that another layout may have", layout, wholeLimit)
	case estimateValues(text.Bytes()) > wholeValues:
		return fmt.Errorf("%w, and it has more than the %d values that another layout may have", layout, wholeValues)
	case bytes.Count(text.Bytes(), []byte("%TAG")) > tagLimit:
		return fmt.Errorf("it has more than %d directives %%TAG", tagLimit)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text.Bytes(), &doc); err != nil {
		return errors.New(strings.ToValidUTF8(truncate(strings.TrimPrefix(err.Error(), "yaml: ")), ""))
	}
	if len(doc.Content) == 0 {
		return errors.New("it is empty")
	}
	return (&document{v, wholeValues}).read(doc.Content[0])
}

// estimateValues estimates how many values a YAML text has: the result is at least a third of the
// real number.
func estimateValues(text []byte) (n int) {
	for i, c := range text {
		switch c {
		case '\n', '\r', ',', '[', '{':
			n++
		case ':', '-', '?':
			if i+1 == len(text) || text[i+1] == ' ' || text[i+1] == '\t' || c == ':' && i > 0 && (text[i-1] == '"' || text[i-1] == '\'') {
				n++
			}
		}
	}
	return n
}

// A document is an index that was read whole.
type document struct {
	*visitor
	left int // values that its aliases may still expand to
}

func (d *document) read(root *yaml.Node) error {
	err := eachPair(root, "it is no mapping", func(key string, line int, value *yaml.Node) error {
		switch key {
		case "entries":
			d.fieldSeen = true
			return d.charts(value)
		case "apiVersion":
			if !isText(resolveAlias(value)) {
				return fmt.Errorf("line %d: field apiVersion must be a text", line)
			}
			d.apiVersion, d.fieldSeen = true, true
		}
		if key != "generated" {
			d.add("field", value)
		}
		return nil
	})
	if err == nil && !d.apiVersion {
		err = errors.New("field apiVersion is missing")
	}
	return err
}

// eachPair calls do with each pair of a mapping. If n is not a mapping, the error is
// otherwise.
func eachPair(n *yaml.Node, otherwise string, do func(key string, line int, value *yaml.Node) error) error {
	if n = resolveAlias(n); n.Kind != yaml.MappingNode {
		return errors.New(otherwise)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := resolveAlias(n.Content[i])
		switch {
		case key.Kind != yaml.ScalarNode:
			return fmt.Errorf("line %d: a key must be a text", key.Line)
		case key.Value == "<<" && key.Style == 0:
			return fmt.Errorf("line %d: mappings can be merged (<<) within an entry only", key.Line)
		}
		if err := do(key.Value, n.Content[i].Line, n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// charts reads the field entries.
func (d *document) charts(n *yaml.Node) error {
	if isNull(resolveAlias(n)) {
		return nil
	}
	return eachPair(n, fmt.Sprintf("line %d: field entries must be a mapping of names to versions", n.Line), func(chart string, _ int, n *yaml.Node) error {
		if !d.chart(chart) {
			return nil
		}
		if n.Kind == yaml.AliasNode {
			return fmt.Errorf("line %d: chart %s: an alias instead of its versions", n.Line, quote(chart))
		}
		if n.Kind != yaml.SequenceNode {
			if d.add(chart, n); !isNull(n) {
				d.malformed(chart, n.Line, errNoList)
			}
			return nil
		}
		for i, element := range n.Content {
			if i == versionLimit {
				return tooManyVersions(element.Line, chart)
			}
			v := version{line: resolveAlias(element).Line}
			v.read(element, &d.left)
			d.add(chart, element)
			if err := d.version(chart, v); err != nil {
				return err
			}
		}
		return nil
	})
}

// add adds a node to the sum, if there is one.
func (d *document) add(name string, n *yaml.Node) {
	if d.sum != nil {
		h := sha256.New()
		fmt.Fprintf(h, "%s\x00", name)
		writeNode(h, n)
		d.sum.add(h)
	}
}

// writeNode writes everything that distinguishes a node from others, except its style.
func writeNode(h hash.Hash, n *yaml.Node) {
	line := []byte{byte(n.Kind), ' '}
	line = strconv.AppendBool(line, isNull(n))
	line = strconv.AppendInt(line, int64(len(n.Content)), 10)
	line = strconv.AppendQuote(line, n.Anchor)
	h.Write(strconv.AppendQuote(line, n.Value))
	for _, e := range n.Content {
		writeNode(h, e)
	}
}
