package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"time"
)

// A caller is one that the file names, and its scope.
type caller[S any] struct {
	Name    string    `json:"name"`
	Scope   S         `json:",inline"`
	Expires time.Time `json:"expires,omitzero"`
}

// A tokenEntry is a caller that is known by a token.
type tokenEntry[S any] struct {
	caller[S]
	Token  string `json:"token,omitempty"`
	SHA256 string `json:"sha256,omitempty"`

	digest digest
}

// A certificateEntry is a caller that is known by a certificate.
type certificateEntry[S any] struct {
	caller[S]
	subjectEntry
}

// A subjectEntry is what a certificate is known by.
type subjectEntry struct {
	CommonName string `json:"commonName,omitempty"`
	DNS        string `json:"dns,omitempty"`
	URI        string `json:"uri,omitempty"`
}

// A roster is the callers of one version of the file.
type roster[S any] struct {
	Tokens       []tokenEntry[S]       `json:"tokens,omitempty"`
	Certificates []certificateEntry[S] `json:"certificates,omitempty"`
}

// A digest is the SHA-256 of a token.
type digest [sha256.Size]byte

func digestOf(token string) digest { return sha256.Sum256([]byte(token)) }

// token returns the caller with a token, nil when there is none. It looks at
// all of them.
func (r *roster[S]) token(d digest) *caller[S] {
	var found *caller[S]
	if r == nil {
		return nil
	}
	for i := range r.Tokens {
		t := &r.Tokens[i]
		if subtle.ConstantTimeCompare(d[:], t.digest[:]) == 1 {
			found = &t.caller
		}
	}
	return found
}

// named returns the caller of a name, nil when there is none.
func (r *roster[S]) named(name string) *caller[S] {
	if r == nil {
		return nil
	}
	for i := range r.Tokens {
		if c := &r.Tokens[i].caller; c.Name == name {
			return c
		}
	}
	for i := range r.Certificates {
		if c := &r.Certificates[i].caller; c.Name == name {
			return c
		}
	}
	return nil
}
