package index

import (
	"crypto/sha256"
	"crypto/sha3"
	"encoding/binary"
	"encoding/hex"

	"github.com/headgate-io/headgate/chart/internal/yaml"
)

// A sum is a hash of a multiset: that of what was added, in whatever order, and
// how often. It is LtHash: what SHAKE128 makes of an element, 1024 numbers of 16
// bits, is added lane by lane, so that two multisets with one sum cannot be
// found by choosing elements, as they can when numbers of a few hundred bits
// are added.
type sum struct {
	lanes  [1024]uint16
	shake  *sha3.SHAKE
	form   []byte // the canonical form of an element
	stream [2 * 1024]byte
}

func newSum() *sum { return &sum{shake: sha3.NewSHAKE128()} }

// add adds a node: what it is, the name that it belongs to, and its canonical form.
func (s *sum) add(kind string, name []byte, r *record) {
	s.form = text(text(s.form[:0], []byte(kind)), name)
	s.form = r.canonical(s.form, 0)
	s.shake.Reset()
	s.shake.Write(s.form)
	s.shake.Read(s.stream[:])
	for i := range s.lanes {
		s.lanes[i] += binary.LittleEndian.Uint16(s.stream[2*i:])
	}
}

// String returns the SHA-256 of the lanes in hex.
func (s *sum) String() string {
	for i, lane := range s.lanes {
		binary.LittleEndian.PutUint16(s.stream[2*i:], lane)
	}
	digest := sha256.Sum256(s.stream[:])
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
