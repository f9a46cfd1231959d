package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"time"
)

// A caller is one that the file names, and its scopes.
type caller struct {
	Name       string     `json:"name"`
	Namespaces *[]pattern `json:"namespaces,omitempty"`
	Types      *[]pattern `json:"types,omitempty"`
	Gates      *[]pattern `json:"gates,omitempty"`
	Kinds      *[]pattern `json:"kinds,omitempty"`
	ReadOnly   bool       `json:"readOnly,omitempty"`
	Expires    time.Time  `json:"expires,omitzero"`
}

// A tokenEntry is a caller that is known by a token.
type tokenEntry struct {
	caller
	Token  string `json:"token,omitempty"`
	SHA256 string `json:"sha256,omitempty"`

	digest digest
}

// A certificateEntry is a caller that is known by a certificate.
type certificateEntry struct {
	caller
	CommonName string `json:"commonName,omitempty"`
	DNS        string `json:"dns,omitempty"`
	URI        string `json:"uri,omitempty"`
}

// A roster is the callers of one version of the file.
type roster struct {
	Tokens       []tokenEntry       `json:"tokens,omitempty"`
	Certificates []certificateEntry `json:"certificates,omitempty"`
}

// A digest is the SHA-256 of a token.
type digest [sha256.Size]byte

func digestOf(token string) digest { return sha256.Sum256([]byte(token)) }

// token returns the caller with a token, nil when there is none. It looks at
// all of them.
func (r *roster) token(d digest) *caller {
	var found *caller
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
func (r *roster) named(name string) *caller {
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
