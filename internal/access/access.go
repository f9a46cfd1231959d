// Package access knows the callers of a server: who they are, and what the file of
// callers says that each may do. What that is, its scope S, belongs to the server.
//
// A [Guard] knows the callers from a file of tokens and client certificates,
// which is read again when it changes. Without a file, and when client
// certificates are not verified either, everybody may do everything.
//
// A caller says who it is in one of these ways. The first that is present
// counts: when it is not valid the request is refused, whatever else it has.
//
//  1. header Authorization: Bearer TOKEN
//  2. header Authorization: Basic, with TOKEN as password; the user name is not looked at
//  3. path prefix /token/TOKEN
//  4. query parameter token
//  5. a token that the server found elsewhere in the request
//  6. session cookie of the web page; one that is not valid (any more) is ignored
//  7. verified client certificate
//
// Credentials are taken out of a request before anything else looks at it.
// Tokens are compared by their SHA-256, each time with all that are known, so
// that the time it takes says nothing about them. Attempts are not counted
// against an address: behind a proxy one caller could lock out all others, and
// a token of 16 bytes and more is not guessed.
//
// The file is a YAML or JSON document; each entry has the fields of S beside
// those shown here. One without tokens and certificates is refused.
//
//	tokens:
//	- name: ci                   # who it is, in logs
//	  token: 7d0f…               # at least 16 bytes; or
//	  sha256: 9f86d0…            # the SHA-256 of it, 64 hexadecimal digits
//	  expires: 2027-01-01T00:00:00Z
//	certificates:
//	- name: alice
//	  commonName: alice          # of the subject; or
//	  dns: ci.example.com        # a DNS name of the certificate; or
//	  uri: spiffe://example.com/ns/ci/sa/runner
package access

import (
	"net/http"
	"time"

	"github.com/headgate-io/headgate/internal/reload"
)

// A Config says whom a Guard knows.
type Config[S any] struct {
	File         string           // "" for none; looked at again once a second at most, when a caller comes
	Certificates bool             // client certificates are verified; without File each of them may do everything
	Cookie       string           // name of the cookie of sessions: servers of one host share their cookies
	Scopes       func(*S) []Scope // the lists of a scope
	Warn         func(error)      // is told what is wrong with a file that was changed, and what of it looks like a mistake; nil for nobody
	Now          func() time.Time // nil for time.Now
}

// A Guard knows the callers. The nil Guard lets everybody do everything.
type Guard[S any] struct {
	certificates bool
	file         *reload.Value[*roster[S]] // nil for none
	cookieName   string
	sessions     sessions
	now          func() time.Time
}

// Open reads the file of a configuration. The error names each place in it
// that is wrong.
func Open[S any](c Config[S]) (*Guard[S], error) {
	g := &Guard[S]{certificates: c.Certificates, cookieName: c.Cookie, now: c.Now}
	if g.now == nil {
		g.now = time.Now
	}
	if c.File == "" {
		return g, nil
	}
	read := func(names []string, contents [][]byte) (*roster[S], []error, error) {
		return readRoster(c.Scopes, names, contents)
	}
	file, err := reload.Open(g.now, c.Warn, read, c.File)
	if err != nil {
		return nil, err
	}
	g.file = file
	return g, nil
}

// Required reports whether callers have to say who they are.
func (g *Guard[S]) Required() bool { return g != nil && (g.file != nil || g.certificates) }

// Identify returns the grant of a request, by the first of the ways that the
// package lists; elsewhere is the token that is elsewhere in it, "" for none. It
// removes credentials from the request. The error is a [Denial] that wraps [ErrUnknown].
func (g *Guard[S]) Identify(r *http.Request, elsewhere string) (Grant[S], error) {
	c := Take(r)
	if !g.Required() {
		return All[S](), nil
	}
	for _, token := range []string{c.bearer, c.basic, c.path, c.query, elsewhere} {
		if token != "" {
			return g.byToken(digestOf(token))
		}
	}
	if c.unreadable {
		return Grant[S]{}, &Denial{Kind: "invalid", reason: "the header Authorization is neither Bearer nor Basic with a password", err: ErrUnknown}
	}
	if grant, ok := g.bySession(c.session(g.cookieFor(r))); ok {
		return grant, nil
	}
	return g.byCertificate(r.TLS)
}

// known returns the callers that the file has now, nil without a file.
func (g *Guard[S]) known() *roster[S] {
	if g.file == nil {
		return nil
	}
	return g.file.Value()
}

// Renew returns what the credential of a grant allows now: it is for what lasts
// longer than a request. The error is that of Identify.
func (g *Guard[S]) Renew(old Grant[S]) (Grant[S], error) {
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
func (g *Guard[S]) Named(actor string) (Grant[S], error) {
	switch {
	case !g.Required():
		return All[S](), nil
	case g.file == nil && actor != "":
		return Grant[S]{Actor: actor, all: true}, nil
	}
	if caller := g.known().named(actor); caller != nil {
		return g.grant(Grant[S]{Actor: actor, caller: caller})
	}
	return Grant[S]{}, &Denial{Kind: "invalid", reason: "the caller is not known any more", err: ErrUnknown}
}

func (g *Guard[S]) byToken(token digest) (Grant[S], error) {
	caller := g.known().token(token)
	if caller == nil {
		return Grant[S]{}, &Denial{Kind: "invalid", reason: "the token is not known", err: ErrUnknown}
	}
	return g.grant(Grant[S]{Actor: caller.Name, caller: caller, token: token})
}

// grant returns a grant unless its credential has expired.
func (g *Guard[S]) grant(of Grant[S]) (Grant[S], error) {
	if ends := of.caller.Expires; !ends.IsZero() && !g.now().Before(ends) {
		return Grant[S]{}, &Denial{Kind: "expired", Actor: of.Actor, reason: "the credential has expired", err: ErrUnknown}
	}
	return of, nil
}
