package gate

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// Bounds of texts, in bytes.
const (
	maxPart   = 253 // of a key; and checksums, phases and actors
	maxReason = 1000
)

// named returns the key with the gate that a key without one means.
func named(k api.Key) api.Key {
	if k.Gate == "" {
		k.Gate = api.DefaultGate
	}
	return k
}

// checkKey returns an error that wraps [ErrInvalid] unless k can be a key.
func checkKey(k api.Key) error {
	if k.Kind != api.KindGate && k.Kind != api.KindRollback {
		return fmt.Errorf("%w: kind: want %s or %s", ErrInvalid, api.KindGate, api.KindRollback)
	}
	for _, part := range []struct{ field, text string }{{"namespace", k.Namespace}, {"name", k.Name}, {"gate", k.Gate}} {
		if part.text == "." || part.text == ".." {
			return fmt.Errorf("%w: %s: %q is no name", ErrInvalid, part.field, part.text)
		}
		if err := checkText(part.field, part.text, maxPart); err != nil {
			return err
		}
	}
	return nil
}

func checkText(field, text string, most int) error {
	switch {
	case len(text) > most:
		return fmt.Errorf("%w: %s: %d bytes are too many, want at most %d", ErrInvalid, field, len(text), most)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: %s: it is no UTF-8", ErrInvalid, field)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("%w: %s: it has control characters", ErrInvalid, field)
	}
	return nil
}

// clone returns a key that holds on to nothing but its own text.
func clone(k api.Key) api.Key {
	return api.Key{Kind: api.Kind(strings.Clone(string(k.Kind))), Namespace: strings.Clone(k.Namespace), Name: strings.Clone(k.Name), Gate: strings.Clone(k.Gate)}
}

// stored is the key in the file: its parts, which have no control characters,
// with zero bytes between them.
func stored(k api.Key) []byte {
	return []byte(string(k.Kind) + "\x00" + k.Namespace + "\x00" + k.Name + "\x00" + k.Gate)
}

func parseStored(text []byte) (api.Key, error) {
	parts := strings.Split(string(text), "\x00")
	if len(parts) != 4 || parts[3] == "" {
		return api.Key{}, fmt.Errorf("%w: key", ErrInvalid)
	}
	k := api.Key{Kind: api.Kind(parts[0]), Namespace: parts[1], Name: parts[2], Gate: parts[3]}
	return k, checkKey(k)
}
