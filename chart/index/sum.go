package index

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"

	"github.com/headgate-io/headgate/chart/internal/yaml"
)

// A sum is a hash of a multiset: that of what was added, in whatever order, and
// how often. It is an LtHash: each element is stretched to 1024 numbers of 16
// bits by ChaCha8Rand (C2SP) from its SHA-256, and these are added lane by lane.
// Two multisets with one sum cannot be found by choosing elements, as they could
// if numbers of a few hundred bits were added.
type sum struct {
	lanes  [256]uint64 // four in each
	stream rand.ChaCha8
	form   []byte // the canonical form of an element
}

// add adds a node: what it is, the name that it belongs to, and its canonical form.
func (s *sum) add(kind string, name []byte, r *record) {
	s.form = text(text(s.form[:0], []byte(kind)), name)
	s.form = r.canonical(s.form, 0)
	s.stream.Seed(sha256.Sum256(s.form))
	const low = 0x7fff_7fff_7fff_7fff // all bits but the highest of each lane, which would carry
	for i, a := range s.lanes {
		b := s.stream.Uint64()
		s.lanes[i] = (a&low + b&low) ^ (a^b)&^low
	}
}

// String returns the SHA-256 of the lanes in hex.
func (s *sum) String() string {
	var all []byte
	for _, lane := range s.lanes {
		all = binary.LittleEndian.AppendUint64(all, lane)
	}
	digest := sha256.Sum256(all)
	return "sha256:" + hex.EncodeToString(digest[:])
}

// canonical appends the canonical form of a node: texts with their lengths,
// whatever the spelling; the elements of lists in their order; the pairs of
// mappings in the order of the keys, without those whose value is null.
func (r *record) canonical(form []byte, n int) []byte {
	if r.null(n) {
		return append(form, 'n')
	}
	switch r.nodes[n].kind {
	case yaml.Scalar:
		return text(form, r.value(n))
	case yaml.SeqStart:
		form = append(form, '[')
		for i := range r.elements(n) {
			form = r.canonical(form, i)
		}
		return append(form, ']')
	}
	form = append(form, '{')
	from := len(r.pairs)
	r.mapping(n)
	for i, to := from, len(r.pairs); i < to; i++ { // what is within appends to r.pairs and cuts it back
		if p := r.pairs[i]; !r.null(p.value) {
			form = r.canonical(r.canonical(form, p.key), p.value)
		}
	}
	r.pairs = r.pairs[:from]
	return append(form, '}')
}

// text appends a text with its length.
func text(form, value []byte) []byte {
	form = append(form, 's')
	form = binary.AppendUvarint(form, uint64(len(value)))
	return append(form, value...)
}
