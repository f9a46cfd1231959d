// Package access says what callers may do with the server of sources.
//
// A [Guard] knows the callers from a file of tokens and client certificates
// (see [Config]), which is read again when it changes. Without a file, and when
// client certificates are not verified either, all callers may do everything; and
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
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/source"
)

// A Config says which callers a Guard knows.
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
	Warn         func(error)      // is told what is wrong with a file that was changed, and what of it looks like a mistake; nil for no reports
	Now          func() time.Time // nil for time.Now
}

// ErrUnknown is a caller that did not say who it is, or whose credential is not known: 401.
// ErrForbidden is one that may not do what it asks for: 403.
var (
	ErrUnknown   = httpserve.ErrUnknown
	ErrForbidden = httpserve.ErrForbidden
)

// A Denial is why a caller was refused. It is for the log: callers are told
// no more than the error that it wraps, [ErrUnknown] or [ErrForbidden]. It is
// used as *Denial, with the fields
//
//	Kind  string // missing, invalid, expired; may, namespace, kind
//	Actor string // of the caller, "" when that is not known
type Denial = httpserve.Denial

// A Guard knows the callers. The nil Guard lets all callers do everything.
type Guard struct{ guard *httpserve.Guard }

// What callers may do, as the file has it.
const (
	fetch  = "fetch"
	read   = "read"
	change = "change"
	debug  = "debug"
)

// lists are those of scopes.
var lists = map[string]httpserve.List{
	"may":        {Check: checkMay, Absent: "all but debug"},
	"namespaces": {Check: httpserve.CheckNamespace},
	"kinds":      {Check: checkKind, Adjust: kindPattern},
}

func checkMay(p httpserve.Pattern) string {
	switch p {
	case fetch, read, change, debug:
		return ""
	}
	return document.Quote(string(p)) + " is nothing that callers may do: want one of fetch, read, change, debug"
}

func checkKind(p httpserve.Pattern) string {
	if strings.Contains(string(p), "*") {
		return httpserve.CheckText(p)
	}
	if _, known := source.ParseKind(string(p)); !known {
		return document.Quote(string(p)) + " is no kind: want one as GitRepository, or a pattern with *"
	}
	return ""
}

// kindPattern returns a kind as references have it.
func kindPattern(p httpserve.Pattern) httpserve.Pattern {
	if kind, known := source.ParseKind(string(p)); known {
		return httpserve.Pattern(kind)
	}
	return p
}

// Open reads the file of a configuration. The error names each place in it
// that is wrong.
func Open(c Config) (*Guard, error) {
	guard, err := httpserve.OpenGuard(httpserve.Config{
		File: c.File, Certificates: c.Certificates, Cookie: "headgate_serve", Lists: lists, Warn: c.Warn, Now: c.Now,
	})
	if err != nil {
		return nil, err
	}
	return &Guard{guard}, nil
}

// inner returns the guard that lets all callers do everything for nil.
func (g *Guard) inner() *httpserve.Guard {
	if g == nil {
		return nil
	}
	return g.guard
}

// Required reports whether callers have to say who they are.
func (g *Guard) Required() bool { return g.inner().Required() }

// Identify returns the grant of a request, by the first of the ways that the
// package lists; one that allows everything for those of a socket. It removes
// credentials from the request. The error is a [Denial] that wraps [ErrUnknown].
func (g *Guard) Identify(r *http.Request) (Grant, error) {
	if httpserve.Trusted(r) {
		httpserve.Take(r)
		return Grant{httpserve.Grant{All: true}}, nil
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
func (g *Guard) Renew(old Grant) (Grant, error) { return grantOf(g.inner().Renew(old.Grant)) }

// A Grant is what one caller may do. The zero Grant allows nothing. It has the fields
// Actor, the name of the caller in the file, "" when all callers may do everything, and
// All, that it may do everything.
type Grant struct{ httpserve.Grant }

func grantOf(of httpserve.Grant, err error) (Grant, error) { return Grant{of}, err }

// Fetch returns nil when the caller may fetch the artifacts of an object; its
// error, like those of the others, is a [Denial] that wraps [ErrForbidden].
func (g Grant) Fetch(ref source.Reference) error { return g.may(fetch, ref) }

// Read returns nil when the caller may see the status and the events of an
// object. It is cheap enough to be asked of each object of a list.
func (g Grant) Read(ref source.Reference) error { return g.may(read, ref) }

// Change returns nil when the caller may reconcile, suspend and resume an object.
func (g Grant) Change(ref source.Reference) error { return g.may(change, ref) }

// Debug returns nil when the caller may see profiles of the process. They are of
// all objects, so callers with a scope of some may not.
func (g Grant) Debug() error {
	switch s := g.Scope(); {
	case g.All:
		return nil
	case s == nil:
		return httpserve.Forbid("missing", g.Actor, debug+": nothing is allowed")
	case !allows(s, debug):
		return httpserve.Outside("may", g.Actor, debug, debug)
	case s.Namespaces != nil:
		return httpserve.Forbid("namespace", g.Actor, "debug: its scope is not all namespaces")
	case s.Kinds != nil:
		return httpserve.Forbid("kind", g.Actor, "debug: its scope is not all kinds")
	}
	return nil
}

// May returns what the caller may do, with some objects at least: of fetch, read,
// change and debug.
func (g Grant) May() []string {
	may := []string{} // [] and not null
	for _, what := range []string{fetch, read, change} {
		if s := g.Scope(); g.All || s != nil && allows(s, what) {
			may = append(may, what)
		}
	}
	if g.Debug() == nil {
		may = append(may, debug)
	}
	return may
}

func (g Grant) may(what string, ref source.Reference) error {
	s := g.Scope()
	switch {
	case g.All:
		return nil
	case s == nil:
		return httpserve.Forbid("missing", g.Actor, what+": nothing is allowed")
	case !allows(s, what):
		return httpserve.Outside("may", g.Actor, what, what)
	case !httpserve.Allows(s.Namespaces, ref.Namespace):
		return httpserve.Outside("namespace", g.Actor, what, ref.Namespace)
	case !hasKind(s, ref.Kind):
		return httpserve.Outside("kind", g.Actor, what, ref.Kind)
	}
	return nil
}

// allows reports whether a caller may do what, with the objects of its scope.
func allows(s *httpserve.Scope, what string) bool {
	if s.May == nil {
		return what != debug
	}
	return slices.Contains(*s.May, httpserve.Pattern(what))
}

// hasKind reports whether a kind is in a scope, in any of its spellings.
func hasKind(s *httpserve.Scope, kind string) bool {
	if s.Kinds == nil || httpserve.Allows(s.Kinds, kind) {
		return true
	}
	for _, other := range source.Spellings(kind) {
		if other != kind && httpserve.Allows(s.Kinds, other) {
			return true
		}
	}
	return false
}
