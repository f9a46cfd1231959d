// Package httpserve is the common part of the HTTP servers of this module: listeners and graceful
// shutdown, authentication of callers, reading requests and writing answers, and the web pages.
//
// # Callers
//
// A [Guard] authenticates callers by a file of tokens and client certificates, which it reads again
// when the file changes. Without a file, and if client certificates are not verified either, all
// callers may do everything.
//
// A caller authenticates in one of these ways. The first one that is present decides: if it is
// invalid, the request is refused, even if another one is valid.
//
//  1. header Authorization: Bearer TOKEN
//  2. header Authorization: Basic, with TOKEN as password; the user name is ignored
//  3. path prefix /token/TOKEN
//  4. query parameter token
//  5. a token that the server found elsewhere in the request
//  6. session cookie of the web page; an invalid or expired one is ignored
//  7. verified client certificate
//
// Credentials are removed from a request before any other code sees it. The SHA-256 of a token is
// compared with those of all known tokens, so that the time reveals nothing about them. Failed
// attempts are not limited: behind a proxy one caller could lock out all others, and a token of at
// least 16 bytes cannot be guessed.
//
// # Connections
//
// The header and the body of a request must arrive within 30 seconds each, and the client must read
// each written piece of an answer within 30 seconds. [Listen] refuses an address that other
// machines can reach with [ErrExposed], unless callers must authenticate or the configuration
// allows it. If callers need not authenticate, a loopback address answers only requests whose host
// is this machine: otherwise a page of another site could make a browser call it by a host name of
// that site.
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

// ErrUnknown means that the credential of a caller is missing or invalid: 401.
// ErrForbidden means that the caller is not allowed to do what it requests: 403.
var (
	ErrUnknown   = errors.New("no valid credential")
	ErrForbidden = errors.New("not allowed")
)

// A Denial is the reason why a caller was refused. It is logged; the answer contains only Message or, if
// that is empty, a general text for the error that the Denial wraps.
type Denial struct {
	Kind    string // missing, invalid, expired, host, origin, or the part of the scope that does not allow it, such as namespace
	Actor   string // of the caller, "" if it is unknown
	Message string
	err     error
}

func (d *Denial) Error() string { return d.err.Error() }

// Unwrap returns an error that wraps ErrUnknown or ErrForbidden.
func (d *Denial) Unwrap() error { return d.err }

// Forbid returns a [Denial] that wraps [ErrForbidden].
func Forbid(kind, actor, reason string) error {
	return &Denial{Kind: kind, Actor: actor, err: fmt.Errorf("%w: %s", ErrForbidden, reason)}
}

// OutOfScope returns the [Denial] of an action verb because of a value that is not in the scope of the caller. Kind says
// what the value is, such as namespace.
func OutOfScope(kind, actor, verb, value string) error {
	return Forbid(kind, actor, verb+": "+kind+" "+document.Quote(value)+" is not in its scope")
}

func denyUnknown(kind, actor, reason string) error {
	return &Denial{Kind: kind, Actor: actor, err: fmt.Errorf("%w: %s", ErrUnknown, reason)}
}

// A Pattern matches whole texts; each * matches any text, including the empty one.
type Pattern string

// Match reports whether p matches text. Its time is linear in the length of both for each *.
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

// A Scope is the permissions of a caller in the file. A nil list allows everything, an empty list
// nothing. The server determines which lists the file may contain; see [Config].
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

// A Config configures a [Guard].
type Config struct {
	File         string              // "" for none; a request makes the guard check it for changes, at most once a second
	Certificates bool                // client certificates are verified; without File, each may do everything
	Cookie       string              // name of the session cookie, different for each server: servers of one host share cookies
	Lists        map[string]ListRule // the lists that a scope may contain, by field
	Warn         func(error)         // called with errors of a changed file, and with probable mistakes in it; nil for no reports
	Now          func() time.Time    // nil for time.Now
}

// A Guard authenticates callers. The nil Guard lets all callers do everything. A Guard is safe for concurrent use.
type Guard struct {
	certificates bool
	file         *reloaded[[]caller] // nil for no file
	sessions     sessions
	now          func() time.Time
}

// OpenGuard reads the file of a configuration. The error names each invalid field of it.
func OpenGuard(c Config) (*Guard, error) {
	g := &Guard{certificates: c.Certificates, sessions: sessions{cookieName: c.Cookie, byID: make(map[digest]session)}, now: c.Now}
	if g.now == nil {
		g.now = time.Now
	}
	if c.File == "" {
		return g, nil
	}
	var err error
	g.file, err = newReloaded(g.now, c.Warn, func(contents [][]byte) ([]caller, []error, error) { return readCallers(c.File, contents[0], c.Lists) }, c.File)
	if err != nil {
		return nil, err
	}
	return g, nil
}

// A Grant is the identity and the permissions of one caller. The zero Grant allows nothing.
type Grant struct {
	Actor string // name of the caller in the file; "" if all callers may do everything
	All   bool   // the caller may do everything

	caller *caller
	token  digest            // the token of the caller, or
	leaf   *x509.Certificate // its certificate
}

// Scope returns the permissions of the caller in the file, which must not be modified. It is nil if the caller may do
// nothing, or everything; see All.
func (g Grant) Scope() *Scope {
	if g.caller == nil {
		return nil
	}
	return &g.caller.Scope
}

// Required reports whether callers must authenticate.
func (g *Guard) Required() bool { return g != nil && (g.file != nil || g.certificates) }

// Identify authenticates the caller of a request, and removes the credentials from the request. A caller that uses the
// socket may do everything. Elsewhere is a token that the server found elsewhere in the request, "" for none. The
// error is a [Denial] that wraps [ErrUnknown].
func (g *Guard) Identify(r *http.Request, elsewhere string) (Grant, error) {
	c := takeCredentials(r)
	if !g.Required() || viaSocket(r) {
		return Grant{All: true}, nil
	}
	if token := cmp.Or(c.bearer, c.basic, c.path, c.query, elsewhere); token != "" {
		return g.byToken(digestOf(token))
	}
	if c.unreadable {
		return Grant{}, denyUnknown("invalid", "", "the header Authorization is neither Bearer nor Basic with a password")
	}
	if token, ok := g.sessions.find(r, c.cookies, g.now()); ok {
		if grant, err := g.byToken(token); err == nil {
			return grant, nil
		}
	}
	if !g.certificates || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return Grant{}, denyUnknown("missing", "", "there is no credential in the request")
	}
	return g.byCertificate(r.TLS.VerifiedChains[0][0])
}

// Renew returns the current grant for the credential of an earlier one. Long requests such as streams use it to
// apply changed permissions. The errors are those of [Guard.Identify].
func (g *Guard) Renew(old Grant) (Grant, error) {
	switch {
	case old.leaf != nil:
		return g.byCertificate(old.leaf)
	case !g.Required() || old.All:
		return old, nil
	}
	return g.byToken(old.token)
}

// ByName returns the current grant of the caller with a name, for work that outlives the request. If there is no file,
// any name is that of a client certificate, which may do everything. The errors are those of [Guard.Identify].
func (g *Guard) ByName(actor string) (Grant, error) {
	switch {
	case !g.Required():
		return Grant{All: true}, nil
	case g.file == nil && actor != "":
		return Grant{Actor: actor, All: true}, nil
	}
	found := g.find(func(c *caller) bool { return c.Name == actor })
	return g.completeGrant(Grant{caller: found}, "the caller is not known any more")
}

// find returns the last caller of the file for which match returns true, nil for none. It always checks all callers.
func (g *Guard) find(match func(*caller) bool) (found *caller) {
	if g.file == nil {
		return nil
	}
	known := g.file.Value()
	for i := range known {
		if match(&known[i]) {
			found = &known[i]
		}
	}
	return found
}

func (g *Guard) byToken(token digest) (Grant, error) {
	found := g.find(func(c *caller) bool { return subtle.ConstantTimeCompare(token[:], c.digest[:]) == 1 })
	return g.completeGrant(Grant{caller: found, token: token}, "the token is not known")
}

// byCertificate returns the grant of a client certificate. It checks the expiry: the connection on which the certificate
// was verified may be old.
func (g *Guard) byCertificate(leaf *x509.Certificate) (Grant, error) {
	name := subject(leaf)
	switch {
	case g.now().After(leaf.NotAfter):
		return Grant{}, denyUnknown("expired", name, "the certificate has expired")
	case g.file == nil:
		return Grant{Actor: name, All: true, leaf: leaf}, nil
	}
	found := g.find(func(c *caller) bool { return c.isSubject(leaf) })
	return g.completeGrant(Grant{caller: found, leaf: leaf}, "the certificate of "+document.Quote(name)+" is not known")
}

// completeGrant completes a grant. It fails if the grant has no caller, with the reason absent, or if its credential has expired.
func (g *Guard) completeGrant(of Grant, absent string) (Grant, error) {
	if of.caller == nil {
		return Grant{}, denyUnknown("invalid", "", absent)
	}
	of.Actor = of.caller.Name
	if ends := of.caller.Expires; !ends.IsZero() && !g.now().Before(ends) {
		return Grant{}, denyUnknown("expired", of.Actor, "the credential has expired")
	}
	return of, nil
}

// isSubject reports whether leaf has the common name, DNS name or URI of c.
func (c *caller) isSubject(leaf *x509.Certificate) bool {
	return c.CommonName != "" && leaf.Subject.CommonName == c.CommonName ||
		c.DNS != "" && slices.Contains(leaf.DNSNames, c.DNS) ||
		c.URI != "" && slices.ContainsFunc(leaf.URIs, func(u *url.URL) bool { return u.String() == c.URI })
}

// subject returns a name for a certificate: the first of its names, its subject or its serial number.
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
