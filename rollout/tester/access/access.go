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

	callers "github.com/headgate-io/headgate/internal/access"
	"github.com/headgate-io/headgate/internal/listen"
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

// ErrUnknown is a caller who did not say who it is, or whose credential is not known: 401.
// ErrForbidden is one who may not do what it asks for: 403.
var (
	ErrUnknown   = callers.ErrUnknown
	ErrForbidden = callers.ErrForbidden
)

// A Denial is why a caller was refused. It is for the log: callers are told
// no more than the error that it wraps, [ErrUnknown] or [ErrForbidden]. It is
// used as *Denial, with the fields
//
//	Kind  string // missing, invalid, expired; namespace, type, gate, kind, read-only
//	Actor string // who was refused, "" when that is not known
type Denial = callers.Denial

// Credentials are what a request said of its caller; [Take] makes them. Their
// one method, Base() string, returns what relative URLs in the answer to / begin
// with: "" or, when the request was for /token/TOKEN without a slash at the end,
// ./TOKEN/.
type Credentials = callers.Credentials

// Take takes the credentials out of a request: the headers Authorization and
// Cookie, the query, the beginning of the path, and Referer, which may repeat
// the latter two. Identify finds them in the context of the request from then on.
func Take(r *http.Request) *Credentials { return callers.Take(r) }

// TLS says how connections are encrypted, and whether clients have to show who
// they are. It has the fields
//
//	Cert, Key string           // PEM files of the server
//	ClientCA  string           // PEM file of who issues the certificates of clients; "" for none
//	Optional  bool             // clients may have no certificate
//	Warn      func(error)      // is told what is wrong with a file that was changed; nil for nobody
//	Now       func() time.Time // nil for time.Now
//
// and the method Config() (*tls.Config, error), which reads the files.
type TLS = listen.TLS

const cookieName = "headgate_session"

// A Guard knows the callers. The nil Guard lets everybody do everything.
type Guard struct{ guard *callers.Guard[scopes] }

// Open reads the file of a configuration. The error names each place in it
// that is wrong.
func Open(c Config) (*Guard, error) {
	guard, err := callers.Open(callers.Config[scopes]{
		File: c.File, Certificates: c.Certificates, Cookie: cookieName, Scopes: (*scopes).lists, Warn: c.Warn, Now: c.Now,
	})
	if err != nil {
		return nil, err
	}
	return &Guard{guard}, nil
}

// inner returns the guard that lets everybody do everything for nil.
func (g *Guard) inner() *callers.Guard[scopes] {
	if g == nil {
		return nil
	}
	return g.guard
}

// Required reports whether callers have to say who they are.
func (g *Guard) Required() bool { return g.inner().Required() }

// Identify returns the grant of a request, by the first of the ways that the
// package lists; payloadToken is the one of metadata. It removes credentials
// from the request. The error is a [Denial] that wraps [ErrUnknown].
func (g *Guard) Identify(r *http.Request, payloadToken string) (Grant, error) {
	return grantOf(g.inner().Identify(r, payloadToken))
}

// Renew returns what the credential of a grant allows now: it is for what lasts
// longer than a request. The error is that of Identify.
func (g *Guard) Renew(old Grant) (Grant, error) { return grantOf(g.inner().Renew(old.of)) }

// Named returns what the caller of a name may do now: it is for what outlives
// the request of a caller. Nobody but certificates without a file has a name that the
// file does not have. The error is that of Identify.
func (g *Guard) Named(actor string) (Grant, error) { return grantOf(g.inner().Named(actor)) }

// Login begins a session for a token and sets its cookie. The session ends
// after 12 hours, with [Guard.Logout], or when the token is not valid any more.
// The error is a [Denial] that wraps [ErrUnknown].
func (g *Guard) Login(w http.ResponseWriter, r *http.Request, token string) (Grant, error) {
	return grantOf(g.inner().Login(w, r, token))
}

// Logout ends the session of a request, if there is one.
func (g *Guard) Logout(w http.ResponseWriter, r *http.Request) { g.inner().Logout(w, r) }
