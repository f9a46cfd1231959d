// Package httpserve is what the HTTP servers of this module are made of: where they
// listen and how they end, who their callers are, how they read requests and answer
// them, and the web pages that they serve.
//
// # Callers
//
// A [Guard] knows the callers from a file of tokens and client certificates, which is
// read again when it changes. Without a file, and when client certificates are not
// verified either, all callers may do everything.
//
// A caller says who it is in one of these ways. The first that is present counts:
// when it is not valid the request is refused, whatever else it has.
//
//  1. header Authorization: Bearer TOKEN
//  2. header Authorization: Basic, with TOKEN as password; the user name is not looked at
//  3. path prefix /token/TOKEN
//  4. query parameter token
//  5. a token that the server found elsewhere in the request
//  6. session cookie of the web page; one that is not valid (any more) is ignored
//  7. verified client certificate
//
// Credentials are taken out of a request before anything else looks at it. Tokens are
// compared by their SHA-256, each time with all that are known, so that the time it
// takes says nothing about them. Attempts are not counted: behind a proxy one caller
// could lock out all others, and a token of 16 bytes and more is not guessed.
//
// # Connections
//
// The head and the body of a request have 30 seconds each to come, and what is written of
// an answer has 30 seconds to be taken. An address that others can reach is refused with
// [ErrExposed], unless callers have to say who they are, or the configuration insists.
// Where they need not, an address of this machine answers only requests for this
// machine: pages of other sites can make a browser come here under a name of their own.
package httpserve

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/redact"
)

// ErrUnknown is a caller who did not say who it is, or whose credential is not known: 401.
// ErrForbidden is one that may not do what it asks for: 403.
var (
	ErrUnknown   = errors.New("no valid credential")
	ErrForbidden = errors.New("not allowed")
)

// A Denial is why a caller was refused. It is for the log: the answer has no more of it than
// Told or, if that is empty, the error that it wraps.
type Denial struct {
	Kind  string // missing, invalid, expired, host, origin, or the part of the scope that does not allow it: namespace, read-only
	Actor string // of the caller, "" when that is not known
	Told  string
	err   error
}

func (d *Denial) Error() string { return d.err.Error() }

// Unwrap returns an error that wraps ErrUnknown or ErrForbidden.
func (d *Denial) Unwrap() error { return d.err }

// Forbid returns a [Denial] that wraps [ErrForbidden].
func Forbid(kind, actor, reason string) error {
	return &Denial{Kind: kind, Actor: actor, err: fmt.Errorf("%w: %s", ErrForbidden, reason)}
}

// Outside returns the [Denial] of a caller who wants to do something, verb, with
// something whose kind, a namespace perhaps, has a value that its scope does not have.
func Outside(kind, actor, verb, value string) error {
	return Forbid(kind, actor, verb+": "+kind+" "+document.Quote(value)+" is not in its scope")
}

func unknown(kind, actor, reason string) error {
	return &Denial{Kind: kind, Actor: actor, err: fmt.Errorf("%w: %s", ErrUnknown, reason)}
}

// A Pattern matches whole texts; each * stands for any text, also for none.
type Pattern string

// Match reports whether text is one that p stands for. It takes time linear in
// both for each *.
func (p Pattern) Match(text string) bool {
	part, rest, wild := strings.Cut(string(p), "*")
	text, found := strings.CutPrefix(text, part)
	for found && wild {
		if part, rest, wild = strings.Cut(rest, "*"); !wild {
			return strings.HasSuffix(text, part)
		}
		_, text, found = strings.Cut(text, part)
	}
	return found && text == ""
}

// A Scope is what the file says that a caller may do. A list that is nil allows
// everything, an empty one nothing. Which lists there are is for the server to say.
type Scope struct {
	May        *[]Pattern `json:"may,omitempty"`
	Namespaces *[]Pattern `json:"namespaces,omitempty"`
	Kinds      *[]Pattern `json:"kinds,omitempty"`
	Types      *[]Pattern `json:"types,omitempty"`
	Gates      *[]Pattern `json:"gates,omitempty"`
	ReadOnly   bool       `json:"readOnly,omitempty"`
}

// Allows reports whether a list has text; nil allows everything.
func Allows(list *[]Pattern, text string) bool {
	return list == nil || slices.ContainsFunc(*list, func(p Pattern) bool { return p.Match(text) })
}

// A Config says which callers a Guard knows.
type Config struct {
	File         string           // "" for none; looked at again once a second at most, when a caller comes
	Certificates bool             // client certificates are verified; without File each of them may do everything
	Cookie       string           // name of the cookie of sessions: servers of one host share their cookies
	Lists        map[string]List  // of scopes, by field
	Warn         func(error)      // is told what is wrong with a file that was changed, and what of it looks like a mistake; nil for no reports
	Now          func() time.Time // nil for time.Now
}

// A Guard knows the callers. The nil Guard lets all callers do everything.
type Guard struct {
	certificates bool
	file         *reloaded[[]caller] // nil for none
	sessions     sessions
	now          func() time.Time
}

// OpenGuard reads the file of a configuration. The error names each place in it
// that is wrong.
func OpenGuard(c Config) (*Guard, error) {
	g := &Guard{certificates: c.Certificates, sessions: sessions{cookie: c.Cookie, byID: make(map[digest]session)}, now: c.Now}
	if g.now == nil {
		g.now = time.Now
	}
	if c.File == "" {
		return g, nil
	}
	var err error
	g.file, err = reload(g.now, c.Warn, func(contents [][]byte) ([]caller, []error, error) { return readCallers(c.File, contents[0], c.Lists) }, c.File)
	if err != nil {
		return nil, err
	}
	return g, nil
}

// A Grant is what one caller may do. The zero Grant allows nothing.
type Grant struct {
	Actor string // its name in the file; "" when all callers may do everything
	All   bool   // it may do everything

	caller *caller
	token  digest            // by which it was given, or
	leaf   *x509.Certificate // the certificate
}

// Scope returns what the file says that the caller may do, which is not to be
// changed; nil when that is nothing, or everything.
func (g Grant) Scope() *Scope {
	if g.caller == nil {
		return nil
	}
	return &g.caller.Scope
}

// Required reports whether callers have to say who they are.
func (g *Guard) Required() bool { return g != nil && (g.file != nil || g.certificates) }

// Identify returns the grant of a request, all for callers of the socket; elsewhere is the token that is elsewhere in
// it, "" for none. It removes credentials from the request. The error is a [Denial]
// that wraps [ErrUnknown].
func (g *Guard) Identify(r *http.Request, elsewhere string) (Grant, error) {
	c := take(r)
	if !g.Required() || trusted(r) {
		return Grant{All: true}, nil
	}
	if token := cmp.Or(c.bearer, c.basic, c.path, c.query, elsewhere); token != "" {
		return g.byToken(digestOf(token))
	}
	if c.unreadable {
		return Grant{}, unknown("invalid", "", "the header Authorization is neither Bearer nor Basic with a password")
	}
	if token, ok := g.sessions.find(r, c.cookies, g.now()); ok {
		if grant, err := g.byToken(token); err == nil {
			return grant, nil
		}
	}
	if !g.certificates || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return Grant{}, unknown("missing", "", "there is no credential in the request")
	}
	return g.byLeaf(r.TLS.VerifiedChains[0][0])
}

// Renew returns what the credential of a grant allows now: it is for what lasts
// longer than a request. The error is that of Identify.
func (g *Guard) Renew(old Grant) (Grant, error) {
	switch {
	case old.leaf != nil:
		return g.byLeaf(old.leaf)
	case !g.Required() || old.All:
		return old, nil
	}
	return g.byToken(old.token)
}

// Named returns what the caller of a name may do now: it is for what outlives
// the request of a caller. Only certificates without a file have names that the file
// does not have. The error is that of Identify.
func (g *Guard) Named(actor string) (Grant, error) {
	switch {
	case !g.Required():
		return Grant{All: true}, nil
	case g.file == nil && actor != "":
		return Grant{Actor: actor, All: true}, nil
	}
	found := g.find(func(c *caller) bool { return c.Name == actor })
	return g.grant(Grant{caller: found}, "the caller is not known any more")
}

// find returns the last caller of the file that is meant, nil for none. It looks at all of them.
func (g *Guard) find(meant func(*caller) bool) (found *caller) {
	if g.file == nil {
		return nil
	}
	known := g.file.Value()
	for i := range known {
		if meant(&known[i]) {
			found = &known[i]
		}
	}
	return found
}

func (g *Guard) byToken(token digest) (Grant, error) {
	found := g.find(func(c *caller) bool { return subtle.ConstantTimeCompare(token[:], c.digest[:]) == 1 })
	return g.grant(Grant{caller: found, token: token}, "the token is not known")
}

// byLeaf returns the grant of a certificate that was verified when its connection
// began, which may have been long ago.
func (g *Guard) byLeaf(leaf *x509.Certificate) (Grant, error) {
	name := subject(leaf)
	switch {
	case g.now().After(leaf.NotAfter):
		return Grant{}, unknown("expired", name, "the certificate has expired")
	case g.file == nil:
		return Grant{Actor: name, All: true, leaf: leaf}, nil
	}
	found := g.find(func(c *caller) bool { return c.isSubject(leaf) })
	return g.grant(Grant{caller: found, leaf: leaf}, "the certificate of "+document.Quote(name)+" is not known")
}

// grant returns a grant of a caller that was found and whose credential has not expired.
func (g *Guard) grant(of Grant, absent string) (Grant, error) {
	if of.caller == nil {
		return Grant{}, unknown("invalid", "", absent)
	}
	of.Actor = of.caller.Name
	if ends := of.caller.Expires; !ends.IsZero() && !g.now().Before(ends) {
		return Grant{}, unknown("expired", of.Actor, "the credential has expired")
	}
	return of, nil
}

// isSubject reports whether leaf has the subject of a caller.
func (c *caller) isSubject(leaf *x509.Certificate) bool {
	return c.CommonName != "" && leaf.Subject.CommonName == c.CommonName ||
		c.DNS != "" && slices.Contains(leaf.DNSNames, c.DNS) ||
		c.URI != "" && slices.ContainsFunc(leaf.URIs, func(u *url.URL) bool { return u.String() == c.URI })
}

// subject returns what names a certificate best.
func subject(leaf *x509.Certificate) string {
	names := append([]string{leaf.Subject.CommonName}, leaf.DNSNames...)
	for _, u := range leaf.URIs {
		names = append(names, u.String())
	}
	name := redact.String(cmp.Or(cmp.Or(names...), leaf.Subject.String(), "certificate "+leaf.SerialNumber.String()))
	return strings.ToValidUTF8(name[:min(len(name), maxName)], "")
}

// A digest is the SHA-256 of a token.
type digest [sha256.Size]byte

func digestOf(token string) digest { return sha256.Sum256([]byte(token)) }
