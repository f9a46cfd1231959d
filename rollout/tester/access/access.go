// Package access says who may do what with a test runner.
//
// A [Guard] knows the callers from a file of tokens and client certificates
// (see [Config]), which is read again when it changes. Without a file, and when
// client certificates are not verified either, everybody may do everything.
//
// A caller says who it is in one of these ways. The first that is present
// counts: when it is not valid the request is refused, whatever else it has.
//
//  1. header Authorization: Bearer TOKEN
//  2. header Authorization: Basic, with TOKEN as password; the user name is not looked at
//  3. path prefix /token/TOKEN
//  4. query parameter token
//  5. key token of the payload's metadata
//  6. session cookie of the web page; one that is not valid (any more) is ignored
//  7. verified client certificate
//
// Credentials are taken out of a request before anything else looks at it.
// Tokens are compared by their SHA-256, each time with all that are known, so
// that the time it takes says nothing about them. Attempts are not counted
// against an address: behind a proxy one caller could lock out all others, and
// a token of 16 bytes and more is not guessed.
//
// A [Grant] is what a caller may do. The namespace of a request is a claim of
// its body, and is held against the scope of the credential.
package access

import (
	"net/http"
	"time"
)

// A Config says whom a Guard knows.
type Config struct {
	// File is a YAML or JSON document with tokens and client certificates; ""
	// for none.
	//
	//	tokens:
	//	- name: flagger            # who it is, in logs and in the audit trail
	//	  token: 7d0f…             # at least 16 bytes; or
	//	  sha256: 9f86d0…          # the SHA-256 of it, 64 hexadecimal digits
	//	  namespaces: [shop, team-*]
	//	  types: [cmd, helm]       # of tasks, by either name
	//	  gates: [default, prod-*]
	//	  kinds: [gate, rollback]
	//	  readOnly: true           # look, and check gates; start, cancel, open and close nothing
	//	  expires: 2027-01-01T00:00:00Z
	//	certificates:
	//	- name: alice              # and scopes as above
	//	  commonName: alice        # of the subject; or
	//	  dns: ci.example.com      # a DNS name of the certificate; or
	//	  uri: spiffe://example.com/ns/ci/sa/runner
	//
	// A scope that is left out allows everything, an empty list nothing. The
	// patterns of a scope match whole names; * stands for any text. A file
	// without tokens and certificates is refused.
	//
	// It is looked at again once a second at most, when a caller comes. What is
	// wrong then leaves the callers as they are.
	File string

	Certificates bool             // client certificates are verified; without File each of them may do everything
	Warn         func(error)      // is told what is wrong with a file that was changed, and what of it looks like a mistake; nil for nobody
	Now          func() time.Time // nil for time.Now
}

// A Guard knows the callers. The nil Guard lets everybody do everything.
type Guard struct {
	certificates bool
	file         *watched[*roster] // nil for none
	sessions     sessions
	now          func() time.Time
}

// Open reads the file of a configuration. The error names each place in it
// that is wrong.
func Open(c Config) (*Guard, error) {
	g := &Guard{certificates: c.Certificates, now: c.Now}
	if g.now == nil {
		g.now = time.Now
	}
	if c.File == "" {
		return g, nil
	}
	file, err := watch(g.now, c.Warn, readRoster, c.File)
	if err != nil {
		return nil, err
	}
	g.file = file
	return g, nil
}

// Required reports whether callers have to say who they are.
func (g *Guard) Required() bool { return g != nil && (g.file != nil || g.certificates) }

// Identify returns the grant of a request, by the first of the ways that the
// package lists; payloadToken is the one of metadata. It removes credentials
// from the request. The error is a [Denial] that wraps [ErrUnknown].
func (g *Guard) Identify(r *http.Request, payloadToken string) (Grant, error) {
	c := Take(r)
	if !g.Required() {
		return Grant{all: true}, nil
	}
	for _, token := range []string{c.bearer, c.basic, c.path, c.query, payloadToken} {
		if token != "" {
			return g.byToken(digestOf(token))
		}
	}
	if c.unreadable {
		return Grant{}, &Denial{Kind: "invalid", reason: "the header Authorization is neither Bearer nor Basic with a password", err: ErrUnknown}
	}
	if grant, ok := g.bySession(c.session); ok {
		return grant, nil
	}
	return g.byCertificate(r.TLS)
}

// known returns the callers that the file has now, nil without a file.
func (g *Guard) known() *roster {
	if g.file == nil {
		return nil
	}
	return g.file.value()
}

// Renew returns what the credential of a grant allows now: it is for what lasts
// longer than a request. The error is that of Identify.
func (g *Guard) Renew(old Grant) (Grant, error) {
	switch {
	case old.leaf != nil:
		return g.byLeaf(old.leaf)
	case !g.Required() || old.all:
		return old, nil
	}
	return g.byToken(old.token)
}

// Named returns what the caller of a name may do now: it is for what outlives
// the request of a caller. Nobody but certificates without a file has a name that the
// file does not have. The error is that of Identify.
func (g *Guard) Named(actor string) (Grant, error) {
	switch {
	case !g.Required():
		return Grant{all: true}, nil
	case g.file == nil && actor != "":
		return Grant{Actor: actor, all: true}, nil
	}
	if caller := g.known().named(actor); caller != nil {
		return g.grant(Grant{Actor: actor, caller: caller})
	}
	return Grant{}, &Denial{Kind: "invalid", reason: "the caller is not known any more", err: ErrUnknown}
}

func (g *Guard) byToken(token digest) (Grant, error) {
	caller := g.known().token(token)
	if caller == nil {
		return Grant{}, &Denial{Kind: "invalid", reason: "the token is not known", err: ErrUnknown}
	}
	return g.grant(Grant{Actor: caller.Name, caller: caller, token: token})
}

// grant returns a grant unless its credential has expired.
func (g *Guard) grant(of Grant) (Grant, error) {
	if ends := of.caller.Expires; !ends.IsZero() && !g.now().Before(ends) {
		return Grant{}, &Denial{Kind: "expired", Actor: of.Actor, reason: "the credential has expired", err: ErrUnknown}
	}
	return of, nil
}
