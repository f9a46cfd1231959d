package transport

import (
	"encoding/binary"
	"errors"
	"hash"
	"maps"
	"slices"
	"sync"

	"github.com/headgate-io/headgate/source"
)

// Note adds texts to h so that no other sequence of texts adds the same.
func Note(h hash.Hash, texts ...string) {
	for _, t := range texts {
		binary.Write(h, binary.BigEndian, int64(len(t)))
		h.Write([]byte(t))
	}
}

// Note adds the type of s and all that it holds to h, but not its name.
func (s Secret) Note(h hash.Hash) {
	Note(h, s.Type)
	binary.Write(h, binary.BigEndian, int64(len(s.Data)))
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		Note(h, key, string(s.Data[key]))
	}
}

// Trusted remembers the fingerprint of whom a spec trusted when a revision was
// looked up. It is safe for concurrent use.
type Trusted struct {
	mu    sync.Mutex
	print string
}

// Set remembers print.
func (t *Trusted) Set(print string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.print = print
}

// Check returns an error unless print is what was remembered last, or nothing
// was: what a run remembers would be a trust that did not count.
func (t *Trusted) Check(print string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.print == "" || t.print == print {
		return nil
	}
	return Unverified(errors.New("spec.verify: the keys changed since the revision was looked up, try again"))
}

// Unverified is a verification that could not be done.
func Unverified(err error) error {
	return &source.StepError{Step: source.StepVerify, Reason: "VerificationError", Err: err}
}
