// Package access says who may do what with the server of sources.
//
// A [Guard] knows the callers from a file of tokens and client certificates
// (see [Config]), which is read again when it changes. Without a file, and when
// client certificates are not verified either, everybody may do everything; and
// so may callers of the socket of the server, whatever it asks of others.
//
// A caller says who it is in one of these ways. The first that is present
// counts: when it is not valid the request is refused, whatever else it has.
//
//  1. header Authorization: Bearer TOKEN
//  2. header Authorization: Basic, with TOKEN as password; the user name is not looked at
//  3. path prefix /token/TOKEN
//  4. query parameter token
//  5. session cookie of the web page; one that is not valid (any more) is ignored
//  6. verified client certificate
//
// Credentials are taken out of a request before anything else looks at it.
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
	//	- name: deploy             # who it is, in logs
	//	  token: 7d0f…             # at least 16 bytes; or
	//	  sha256: 9f86d0…          # the SHA-256 of it, 64 hexadecimal digits
	//	  may: [fetch, read]       # fetch artifacts; read statuses and events; change (reconcile, suspend, resume); debug (profiles); default all but debug
	//	  namespaces: [shop, team-*]
	//	  kinds: [GitRepository]   # in the spelling of either API group
	//	  expires: 2027-01-01T00:00:00Z
	//	certificates:
	//	- name: alice              # and scopes as above
	//	  commonName: alice        # or dns or uri
	//
	// Namespaces and kinds that are left out allow everything, an empty list
	// nothing. Their patterns match whole names; * stands for any text. A file
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
//	Kind  string // missing, invalid, expired; may, namespace, kind
//	Actor string // who was refused, "" when that is not known
type Denial = callers.Denial

const cookieName = "headgate_serve"

// A Guard knows the callers. The nil Guard lets everybody do everything.
type Guard struct{ guard *callers.Guard[scope] }

// Open reads the file of a configuration. The error names each place in it
// that is wrong.
func Open(c Config) (*Guard, error) {
	guard, err := callers.Open(callers.Config[scope]{
		File: c.File, Certificates: c.Certificates, Cookie: cookieName, Scopes: (*scope).lists, Warn: c.Warn, Now: c.Now,
	})
	if err != nil {
		return nil, err
	}
	return &Guard{guard}, nil
}

// inner returns the guard that lets everybody do everything for nil.
func (g *Guard) inner() *callers.Guard[scope] {
	if g == nil {
		return nil
	}
	return g.guard
}

// Required reports whether callers have to say who they are.
func (g *Guard) Required() bool { return g.inner().Required() }

// Identify returns the grant of a request, by the first of the ways that the
// package lists; [All] for those of a socket. It removes credentials from the
// request. The error is a [Denial] that wraps [ErrUnknown].
func (g *Guard) Identify(r *http.Request) (Grant, error) {
	if listen.Trusted(r) {
		callers.Take(r)
		return All(), nil
	}
	return grantOf(g.inner().Identify(r, ""))
}

// Login begins a session of the web page for a token and sets its cookie. The
// session ends after 12 hours, with [Guard.Logout], or when the token is not
// valid any more. The error is a [Denial] that wraps [ErrUnknown].
func (g *Guard) Login(w http.ResponseWriter, r *http.Request, token string) (Grant, error) {
	return grantOf(g.inner().Login(w, r, token))
}

// Logout ends the session of a request, if there is one.
func (g *Guard) Logout(w http.ResponseWriter, r *http.Request) { g.inner().Logout(w, r) }

// Renew returns what the credential of a grant allows now: it is for what lasts
// longer than a request. The error is that of Identify.
func (g *Guard) Renew(old Grant) (Grant, error) { return grantOf(g.inner().Renew(old.of)) }
