// Package access says what callers may do with a test runner.
//
// A [Guard] knows the callers from a file of tokens and client certificates
// (see [Config]), which is read again when it changes. Without a file, and when
// client certificates are not verified either, all callers may do everything.
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
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

// A Config says which callers a Guard knows.
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
	Warn         func(error)      // is told what is wrong with a file that was changed, and what of it looks like a mistake; nil for no reports
	Now          func() time.Time // nil for time.Now
}

// ErrUnknown is a caller who did not say who it is, or whose credential is not known: 401.
// ErrForbidden is one that may not do what it asks for: 403.
var (
	ErrUnknown   = httpserve.ErrUnknown
	ErrForbidden = httpserve.ErrForbidden
)

// A Denial is why a caller was refused. It is for the log: callers are told
// no more than the error that it wraps, [ErrUnknown] or [ErrForbidden]. It is
// used as *Denial, with the fields
//
//	Kind  string // missing, invalid, expired; namespace, type, gate, kind, read-only
//	Actor string // of the caller, "" when that is not known
type Denial = httpserve.Denial

// A Guard knows the callers. The nil Guard lets all callers do everything.
type Guard struct{ guard *httpserve.Guard }

// lists are those of scopes.
var lists = map[string]httpserve.List{
	"namespaces": {Check: httpserve.CheckNamespace},
	"types":      {Check: checkType, Adjust: typePattern},
	"gates":      {Check: httpserve.CheckText},
	"kinds":      {Check: checkKind},
}

func checkType(p httpserve.Pattern) string {
	if api.TypeName(string(p)) == "" && !strings.Contains(string(p), "*") {
		return document.Quote(string(p)) + " is no type of tasks: want one of " + strings.Join(api.Types(), ", ")
	}
	return ""
}

// typePattern returns a type as requests have it.
func typePattern(p httpserve.Pattern) httpserve.Pattern {
	if name := api.TypeName(string(p)); name != "" {
		return httpserve.Pattern(name)
	}
	return p
}

func checkKind(p httpserve.Pattern) string {
	if k := api.Kind(p); k != api.KindGate && k != api.KindRollback {
		return document.Quote(string(p)) + " is no kind: want gate or rollback"
	}
	return ""
}

// Open reads the file of a configuration. The error names each place in it
// that is wrong.
func Open(c Config) (*Guard, error) {
	guard, err := httpserve.OpenGuard(httpserve.Config{
		File: c.File, Certificates: c.Certificates, Cookie: "headgate_session", Lists: lists, Warn: c.Warn, Now: c.Now,
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

func grantOf(of httpserve.Grant, err error) (Grant, error) { return Grant{of}, err }

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
func (g *Guard) Renew(old Grant) (Grant, error) { return grantOf(g.inner().Renew(old.Grant)) }

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

// A Grant is what one caller may do. The zero Grant allows nothing. It has the fields
// Actor, the name of the caller in the file, "" when all callers may do everything, and All,
// that it may do everything.
type Grant struct{ httpserve.Grant }

// Run returns nil when the caller may start and cancel tasks of a type in a
// namespace. Its error, like those of the other methods, is a [Denial] that
// wraps [ErrForbidden].
func (g Grant) Run(namespace, taskType string) error {
	return g.may("run tasks", true, namespace, taskType, api.Key{})
}

// Check returns nil when the caller may ask whether a gate is open, and look at
// it and at what was done with it.
func (g Grant) Check(k api.Key) error { return g.may("check", false, k.Namespace, "", k) }

// Change returns nil when the caller may open and close a gate.
func (g Grant) Change(k api.Key) error { return g.may("change", true, k.Namespace, "", k) }

// Reject returns nil when the caller may close a gate and have its canary rolled
// back, which opens the rollback switch whatever gates the scope names.
func (g Grant) Reject(k api.Key) error {
	if err := g.Change(k); err != nil {
		return err
	}
	if scope := g.Scope(); scope != nil && !httpserve.Allows(scope.Kinds, string(api.KindRollback)) {
		return httpserve.Outside("kind", g.Actor, "reject", string(api.KindRollback))
	}
	return nil
}

// See returns nil when the caller may look at the runs of a type in a namespace.
func (g Grant) See(namespace, taskType string) error {
	return g.may("look", false, namespace, taskType, api.Key{})
}

// ReadOnly reports whether the caller may start and change nothing.
func (g Grant) ReadOnly() bool {
	scope := g.Scope()
	return !g.All && (scope == nil || scope.ReadOnly)
}

// Session returns what the API says of the caller.
func (g Grant) Session(required bool) api.Session {
	return api.Session{Actor: g.Actor, Required: required, ReadOnly: g.ReadOnly()}
}

// may returns nil when the caller may do something with a type of tasks, "" for none,
// or with a gate, one without a kind for none.
func (g Grant) may(verb string, changes bool, namespace, taskType string, k api.Key) error {
	if g.All {
		return nil
	}
	s := g.Scope()
	switch {
	case s == nil:
		return httpserve.Forbid("missing", g.Actor, verb+": nothing is allowed")
	case changes && s.ReadOnly:
		return httpserve.Forbid("read-only", g.Actor, verb+": the credential is read-only")
	case !httpserve.Allows(s.Namespaces, namespace):
		return httpserve.Outside("namespace", g.Actor, verb, namespace)
	case taskType != "" && !httpserve.Allows(s.Types, taskType):
		return httpserve.Outside("type", g.Actor, verb, taskType)
	case k.Kind != "" && !httpserve.Allows(s.Kinds, string(k.Kind)):
		return httpserve.Outside("kind", g.Actor, verb, string(k.Kind))
	case k.Kind != "" && !httpserve.Allows(s.Gates, k.Gate):
		return httpserve.Outside("gate", g.Actor, verb, k.Gate)
	}
	return nil
}
