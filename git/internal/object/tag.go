package object

import (
	"bytes"
	"fmt"
)

// A TagData is a parsed annotated tag.
type TagData struct {
	Object  ID   // what the tag points at
	Type    Type // the type of Object
	Name    string
	Tagger  Signature // zero in some very old tags
	Message string    // without the signature

	// PGPSignature is the armored signature (PGP, SSH or X.509) that ends the
	// tag; it is nil for an unsigned tag. Payload is what it signs.
	PGPSignature []byte
	Payload      []byte
}

// tagFields are the fields that a tag starts with, in order.
var tagFields = []string{"object", "type", "tag"}

// armors are the lines that begin a signature at the end of a tag.
var armors = [][]byte{
	[]byte("-----BEGIN PGP SIGNATURE-----"),
	[]byte("-----BEGIN PGP MESSAGE-----"),
	[]byte("-----BEGIN SSH SIGNATURE-----"),
	[]byte("-----BEGIN SIGNED MESSAGE-----"),
}

// ParseTag parses the content of an annotated tag.
func ParseTag(data []byte) (*TagData, error) {
	t := new(TagData)
	t.Payload = data
	if at := armorIndex(data); at >= 0 {
		t.Payload, t.PGPSignature = data[:at:at], data[at:]
	}
	if err := t.parse(t.Payload); err != nil {
		return nil, fmt.Errorf("parse tag: %w", err)
	}
	return t, nil
}

func (t *TagData) parse(data []byte) error {
	for _, key := range tagFields {
		f, rest, ok, err := nextField(data)
		if err == nil && (!ok || f.key != key) {
			err = fmt.Errorf("%w: field %s missing", ErrCorrupt, key)
		}
		if err == nil {
			err = t.field(f)
		}
		if err != nil {
			return err
		}
		data = rest
	}
	for tagged := false; ; {
		f, rest, ok, err := nextField(data)
		if err != nil || !ok {
			t.Message = string(rest)
			return err
		}
		if f.key == "tagger" && !tagged {
			t.Tagger, tagged = parseSignature(f.value), true
		}
		data = rest
	}
}

func (t *TagData) field(f headerField) (err error) {
	switch f.key {
	case "object":
		t.Object, err = headerID(f.value, 0)
	case "type":
		if t.Type = parseType(f.value); t.Type == 0 {
			err = fmt.Errorf("%w: object type %.80q", ErrCorrupt, f.value)
		}
	case "tag":
		t.Name = string(f.value)
	}
	return err
}

// parseType returns the type that a word names, 0 for none.
func parseType(word []byte) Type {
	for t := Commit; t <= Tag; t++ {
		if string(word) == t.String() {
			return t
		}
	}
	return 0
}

// armorIndex returns where the signature of a tag begins: the last line that
// begins one, as Git has it; -1 without any.
func armorIndex(data []byte) int {
	last := -1
	for at := 0; at < len(data); {
		for _, armor := range armors {
			if bytes.HasPrefix(data[at:], armor) {
				last = at
			}
		}
		end := bytes.IndexByte(data[at:], '\n')
		if end < 0 {
			break
		}
		at += end + 1
	}
	return last
}

// MaxTags is how many tags may stand between a ref and its commit.
const MaxTags = 16

// ReadTag reads and parses a tag of at most 1 MiB.
func ReadTag(db Database, id ID) (*TagData, error) {
	data, err := Read(db, id, Tag, maxHeaders)
	if err != nil {
		return nil, err
	}
	return ParseTag(data)
}
