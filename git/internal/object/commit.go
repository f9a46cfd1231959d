package object

import (
	"bytes"
	"fmt"
	"slices"
)

// A CommitData is a parsed commit.
type CommitData struct {
	Tree      ID
	Parents   []ID
	Author    Signature
	Committer Signature
	Message   string

	// PGPSignature is the value of the header gpgsig: an armored signature of
	// any kind (PGP, SSH, X.509). It is nil for an unsigned commit.
	PGPSignature []byte

	// Payload is what PGPSignature signs: the commit without its signatures.
	Payload []byte
}

// Subject returns the first paragraph of the message on one line.
func (c *CommitData) Subject() string { return subject(c.Message) }

// signatureKeys are the fields that hold signatures: of the repository's own
// hash function and of the other one. Neither is part of what is signed.
var signatureKeys = map[Format]string{SHA1: "gpgsig", SHA256: "gpgsig-sha256"}

// ParseCommit parses the content of a commit. It wants one tree, then the
// parents, then an author and a committer; of repeated fields the first counts,
// but a second signature is refused.
func ParseCommit(data []byte) (*CommitData, error) {
	c := new(CommitData)
	if err := c.parse(data); err != nil {
		return nil, fmt.Errorf("parse commit: %w", err)
	}
	return c, nil
}

func (c *CommitData) parse(data []byte) error {
	tree, rest, ok, err := nextField(data)
	if err == nil && (!ok || tree.key != "tree") {
		err = fmt.Errorf("%w: it does not start with a tree", ErrCorrupt)
	}
	if err == nil {
		c.Tree, err = headerID(tree.value, 0)
	}
	if err != nil {
		return err
	}
	signed, message, err := c.fields(rest)
	if err != nil {
		return err
	}
	c.Message, c.Payload = string(message), data
	if c.PGPSignature != nil {
		c.Payload = slices.Concat(tree.raw, signed, []byte{'\n'}, message)
	}
	return nil
}

// fields takes the header behind the tree. It returns those of its lines that a
// signature covers, and the message.
func (c *CommitData) fields(data []byte) (signed, message []byte, err error) {
	signature := signatureKeys[c.Tree.Format()]
	signed = make([]byte, 0, len(data))
	seen := map[string]bool{}
	for {
		f, rest, ok, err := nextField(data)
		if err == nil && ok {
			err = c.field(f, seen, signature)
		}
		if err == nil && !ok && !(seen["author"] && seen["committer"]) {
			err = fmt.Errorf("%w: no author or no committer", ErrCorrupt)
		}
		if err != nil || !ok {
			return signed, rest, err
		}
		data = rest
		seen[f.key] = true
		if f.key != signatureKeys[SHA1] && f.key != signatureKeys[SHA256] {
			signed = append(signed, f.raw...)
		}
	}
}

// field takes one header field; seen tells which keys came before.
func (c *CommitData) field(f headerField, seen map[string]bool, signature string) error {
	switch f.key {
	case "parent":
		if seen["author"] || seen["committer"] {
			return fmt.Errorf("%w: a parent after the author", ErrCorrupt)
		}
		id, err := headerID(f.value, c.Tree.len)
		if err != nil {
			return err
		}
		c.Parents = append(c.Parents, id)
	case "author":
		if !seen["author"] {
			c.Author = parseSignature(f.value)
		}
	case "committer":
		if !seen["committer"] {
			c.Committer = parseSignature(f.value)
		}
	case signature:
		if seen[signature] {
			return fmt.Errorf("%w: two signatures", ErrCorrupt)
		}
		c.PGPSignature = bytes.Clone(f.value)
	}
	return nil
}

// headerID parses the ID in a header; n is the number of bytes it must have, 0 for any.
func headerID(value []byte, n uint8) (ID, error) {
	if len(value) > 64 {
		return ID{}, fmt.Errorf("%w: object id %.80q", ErrCorrupt, value)
	}
	id, err := ParseID(string(value))
	if err != nil {
		return ID{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if n != 0 && id.len != n {
		return ID{}, fmt.Errorf("%w: object id %v has not the length of the others", ErrCorrupt, id)
	}
	return id, nil
}

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
