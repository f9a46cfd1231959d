package index

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/headgate-io/headgate/chart/internal/yaml"
)

// A record holds one node of a document: an entry. Its memory is used again for
// the next.
type record struct {
	nodes []node // in the order of the document, collections before what is in them
	text  []byte
	pairs []pair // see mapping
	open  []int  // the collections that have begun
	big   bool   // it exceeds entrySize; what is held is not all of it
}

// A node is one value of a record.
type node struct {
	kind     yaml.Kind // Scalar, Null, MapStart or SeqStart
	plain    bool
	line     int
	from, to int // of a scalar: where its text is
	end      int // of a collection: the index after its last node
}

// A pair is a key of a mapping and its value, as indexes of nodes.
type pair struct {
	key, value int
	merged     int // 0 for what the mapping itself says, more for what it takes over by <<
}

// read fills r with the node whose first event is first.
func (r *record) read(in *yaml.Reader, first yaml.Event, limit int) error {
	r.nodes, r.text, r.big = r.nodes[:0], r.text[:0], false
	r.open, r.pairs = r.open[:0], r.pairs[:0]
	for e := first; ; {
		switch e.Kind {
		case yaml.MapEnd, yaml.SeqEnd:
			r.nodes[r.open[len(r.open)-1]].end = len(r.nodes)
			r.open = r.open[:len(r.open)-1]
		default:
			if e.Kind == yaml.MapStart || e.Kind == yaml.SeqStart {
				r.open = append(r.open, len(r.nodes))
			}
			from := len(r.text)
			r.text = append(r.text, e.Value...)
			r.nodes = append(r.nodes, node{kind: e.Kind, plain: e.Plain, line: e.Line, from: from, to: len(r.text), end: len(r.nodes) + 1})
			r.big = len(r.text)+nodeSize*len(r.nodes) > limit
		}
		if len(r.open) == 0 {
			return nil
		}
		if r.big {
			return skipTo(in, len(r.open))
		}
		var err error
		if e, err = in.Next(); err != nil {
			return err
		}
	}
}

// nodeSize is what a node counts for beside its text, in bytes.
const nodeSize = 16

// skipTo passes over what is left of as many collections within each other.
func skipTo(in *yaml.Reader, depth int) error {
	for depth > 0 {
		e, err := in.Next()
		if err != nil {
			return err
		}
		switch e.Kind {
		case yaml.MapStart, yaml.SeqStart:
			depth++
		case yaml.MapEnd, yaml.SeqEnd:
			depth--
		}
	}
	return nil
}

// value returns the text of a scalar, valid until the next read.
func (r *record) value(n int) []byte { return r.text[r.nodes[n].from:r.nodes[n].to] }

// null tells whether a node is null, in one spelling or another.
func (r *record) null(n int) bool {
	at := r.nodes[n]
	return at.kind == yaml.Null || at.kind == yaml.Scalar && at.plain && isNull(r.value(n))
}

// isNull tells whether a plain scalar is null.
func isNull(text []byte) bool {
	switch string(text) {
	case "", "~", "null", "Null", "NULL":
		return true
	}
	return false
}

// elements yields the indexes of the nodes in a list.
func (r *record) elements(list int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for n := list + 1; n < r.nodes[list].end; n = r.nodes[n].end {
			if !yield(n) {
				return
			}
		}
	}
}

// mapping returns the pairs of a mapping in the order of their keys, those of
// equal keys in the order of the document. What it takes over from others by
// the key << is left out when it says it itself. The caller drops the pairs by
// cutting r.pairs back to the length it had.
func (r *record) mapping(n int) []pair {
	from := len(r.pairs)
	r.collect(n, 0)
	all := r.pairs[from:]
	slices.SortStableFunc(all, func(a, b pair) int {
		return cmp.Or(bytes.Compare(r.value(a.key), r.value(b.key)), cmp.Compare(a.merged, b.merged))
	})
	kept := all[:0]
	for _, p := range all {
		if last := len(kept) - 1; last >= 0 && kept[last].merged < p.merged && bytes.Equal(r.value(kept[last].key), r.value(p.key)) {
			continue
		}
		kept = append(kept, p)
	}
	r.pairs = r.pairs[:from+len(kept)]
	return kept
}

// collect appends the pairs of a mapping, whose own count as merged says, and
// returns the highest such number that it used.
func (r *record) collect(n, merged int) int {
	used := merged
	for key := n + 1; key < r.nodes[n].end; {
		value := r.nodes[key].end
		if k := r.nodes[key]; k.kind == yaml.Scalar && k.plain && string(r.value(key)) == "<<" {
			used = r.merge(value, used)
		} else {
			r.pairs = append(r.pairs, pair{key, value, merged})
		}
		key = r.nodes[value].end
	}
	return used
}

// merge appends the pairs of what << stands for: a mapping or a list of them.
func (r *record) merge(n, used int) int {
	switch r.nodes[n].kind {
	case yaml.MapStart:
		return r.collect(n, used+1)
	case yaml.SeqStart:
		for e := range r.elements(n) {
			if r.nodes[e].kind == yaml.MapStart {
				used = r.collect(e, used+1)
			}
		}
	}
	return used
}
