package object

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A CommitData is a parsed commit.
type CommitData struct {
	Tree    ID
	Parents []ID
	Message string

	// PGPSignature is the value of the header gpgsig: an armored signature of
	// any kind (PGP, SSH, X.509). It is nil for an unsigned commit.
	PGPSignature []byte

	// Payload is what PGPSignature signs: the commit without its signatures.
	Payload []byte

	committer []byte
}

// Subject returns the first paragraph of the message on one line.
func (c *CommitData) Subject() string {
	var lines []string
	for line := range strings.Lines(strings.TrimLeft(c.Message, "\r\n")) {
		if line = strings.TrimSpace(line); line == "" {
			break
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, " ")
}

// signatureKeys are the header fields that hold a signature, by hash function. A
// commit may have both; neither is part of the signed payload.
var signatureKeys = map[Format]string{SHA1: "gpgsig", SHA256: "gpgsig-sha256"}

// ParseCommit parses the content of a commit. It wants one tree, then the
// parents, then an author and a committer; of repeated fields the first counts,
// but a second signature is refused.
func ParseCommit(data []byte) (*CommitData, error) {
	c := &CommitData{Payload: data}
	seen := map[string]bool{}
	signed := make([]byte, 0, len(data))
	message, err := eachField(data, func(f headerField) error {
		if f.key != signatureKeys[SHA1] && f.key != signatureKeys[SHA256] {
			signed = append(signed, f.raw...)
		}
		err := c.field(f, seen)
		seen[f.key] = true
		return err
	})
	if err == nil && !(seen["author"] && seen["committer"]) {
		err = fmt.Errorf("%w: no author or no committer", ErrCorrupt)
	}
	if err != nil {
		return nil, fmt.Errorf("parse commit: %w", err)
	}
	c.Message = string(message)
	if c.PGPSignature != nil {
		c.Payload = slices.Concat(signed, []byte{'\n'}, message)
	}
	return c, nil
}

// field takes one header field; seen tells which keys came before.
func (c *CommitData) field(f headerField, seen map[string]bool) (err error) {
	switch {
	case len(seen) == 0 && f.key != "tree":
		return fmt.Errorf("%w: it does not start with a tree", ErrCorrupt)
	case len(seen) == 0:
		c.Tree, err = headerID(f.value)
	case f.key == "parent":
		id, err := headerID(f.value)
		if err == nil && (id.len != c.Tree.len || seen["author"] || seen["committer"]) {
			err = fmt.Errorf("%w: a parent after the author, or of another format", ErrCorrupt)
		}
		c.Parents = append(c.Parents, id)
		return err
	case f.key == "committer" && !seen[f.key]:
		c.committer = f.value
	case f.key == signatureKeys[c.Tree.Format()]:
		if seen[f.key] {
			return fmt.Errorf("%w: two signatures", ErrCorrupt)
		}
		c.PGPSignature = bytes.Clone(f.value)
	}
	return err
}

// Time returns the time in the committer field, which is "Name <email> seconds zone".
// It returns the zero time for the malformed fields that some histories hold.
func (c *CommitData) Time() time.Time {
	fields := strings.Fields(string(c.committer[bytes.LastIndexByte(c.committer, '>')+1:]))
	if len(fields) == 0 {
		return time.Time{}
	}
	n, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || n < 0 || n > maxSeconds {
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}

// maxSeconds is the end of the year 9999, the last that RFC 3339 can write.
const maxSeconds = 253402300799

// A TagData is a parsed annotated tag.
type TagData struct {
	Object ID   // what the tag points at
	Type   Type // the type of Object
	Name   string

	// PGPSignature is the armored signature (PGP, SSH or X.509) that ends the
	// tag; it is nil for an unsigned tag. Payload is what it signs.
	PGPSignature []byte
	Payload      []byte
}

// armors are the lines that begin a signature at the end of a tag.
var armors = [][]byte{
	[]byte("-----BEGIN PGP SIGNATURE-----"),
	[]byte("-----BEGIN PGP MESSAGE-----"),
	[]byte("-----BEGIN SSH SIGNATURE-----"),
	[]byte("-----BEGIN SIGNED MESSAGE-----"),
}

// ParseTag parses the content of an annotated tag.
func ParseTag(data []byte) (*TagData, error) {
	t := &TagData{Payload: data}
	at := 0
	for line := range bytes.Lines(data) { // as in Git, the last line that begins a signature counts
		if slices.ContainsFunc(armors, func(armor []byte) bool { return bytes.HasPrefix(line, armor) }) {
			t.Payload, t.PGPSignature = data[:at:at], data[at:]
		}
		at += len(line)
	}
	n := 0
	_, err := eachField(t.Payload, func(f headerField) (err error) {
		if n++; n <= 3 && f.key != []string{"object", "type", "tag"}[n-1] {
			return fmt.Errorf("%w: field %.80q instead of object, type or tag", ErrCorrupt, f.key)
		}
		switch n {
		case 1:
			t.Object, err = headerID(f.value)
		case 2:
			t.Type = TypeNamed(string(f.value))
		case 3:
			t.Name = string(f.value)
		}
		return err
	})
	if err == nil && (n < 3 || t.Type == 0) {
		err = fmt.Errorf("%w: no object, type or name", ErrCorrupt)
	}
	if err != nil {
		return nil, fmt.Errorf("parse tag: %w", err)
	}
	return t, nil
}

// MaxTags is the maximum number of tags between a ref and its commit.
const MaxTags = 16

// maxHeaders bounds one commit or tag object, in bytes.
const maxHeaders = 1 << 20

// ReadCommit reads and parses a commit of at most 1 MiB.
func ReadCommit(db Database, id ID) (*CommitData, error) {
	data, err := Read(db, id, Commit, maxHeaders)
	if err != nil {
		return nil, err
	}
	return ParseCommit(data)
}

// ReadTag reads and parses a tag of at most 1 MiB.
func ReadTag(db Database, id ID) (*TagData, error) {
	data, err := Read(db, id, Tag, maxHeaders)
	if err != nil {
		return nil, err
	}
	return ParseTag(data)
}

// A headerField is one field of the header of a commit or tag: key, space, value.
// raw holds its lines with their ends, continuation lines included.
type headerField struct {
	key   string
	value []byte
	raw   []byte
}

// eachField calls take with each field of a header, up to the blank line that ends it
// or the end of the data, and returns the message that follows. Continuation lines
// start with a space, which is not part of the value.
func eachField(data []byte, take func(headerField) error) (message []byte, err error) {
	for len(data) > 0 && data[0] != '\n' {
		line, rest, err := cutLine(data)
		key, value, found := bytes.Cut(line, []byte{' '})
		if err == nil && (!found || len(key) == 0) {
			err = lineError(line)
		}
		value = value[:len(value):len(value)]
		for err == nil && len(rest) > 0 && rest[0] == ' ' {
			line, rest, err = cutLine(rest)
			value = append(append(value, '\n'), line[1:]...)
		}
		if err == nil {
			err = take(headerField{string(key), value, data[:len(data)-len(rest)]})
		}
		if err != nil {
			return nil, err
		}
		data = rest
	}
	return bytes.TrimPrefix(data, []byte{'\n'}), nil
}

// cutLine cuts the first line off a header. It must have an end and no NUL.
func cutLine(data []byte) (line, rest []byte, err error) {
	line, rest, ended := bytes.Cut(data, []byte{'\n'})
	if !ended || bytes.IndexByte(line, 0) >= 0 {
		err = lineError(line)
	}
	return line, rest, err
}

func lineError(line []byte) error { return fmt.Errorf("%w: header line %.80q", ErrCorrupt, line) }

// headerID parses the ID in a header.
func headerID(value []byte) (ID, error) {
	id, err := ParseID(string(value[:min(len(value), 65)]))
	if err != nil {
		return ID{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return id, nil
}
