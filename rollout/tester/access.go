package tester

import (
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

// A Guard authenticates callers by tokens and client certificates, and knows what each
// may do: see [OpenGuard]. The nil Guard lets all callers do everything.
//
// A caller authenticates in one of these ways. The first credential that is present
// counts: if it is not valid, the request is refused, whatever else it has.
//
//  1. header Authorization: Bearer TOKEN
//  2. header Authorization: Basic, with TOKEN as password; the user name is ignored
//  3. path prefix /token/TOKEN
//  4. query parameter token
//  5. key token of the payload's metadata
//  6. session cookie of the web page; an invalid or expired one is ignored
//  7. verified client certificate
//
// Credentials are removed from a request before anything else reads it. The namespace
// in the body of a request is only a claim, and is checked against the scope of the
// credential.
type Guard = httpserve.Guard

// OpenGuard reads a file of callers, a YAML or JSON document; "" for none. The error
// names each place in the file that is wrong. With certificates, verified client
// certificates are credentials too; without a file, each of them allows everything.
//
//	tokens:
//	- name: flagger            # the actor in logs and in the audit trail
//	  token: 7d0f…             # at least 16 bytes; or
//	  sha256: 9f86d0…          # the SHA-256 of it, 64 hexadecimal digits
//	  namespaces: [shop, team-*]
//	  types: [cmd, helm]       # of tasks, by either name
//	  gates: [default, prod-*]
//	  kinds: [gate, rollback]
//	  readOnly: true           # may look and check gates, but not start, cancel, open or close anything
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
// The file is read again when it has changed: requests trigger that check, at most once
// a second. An invalid file leaves the callers as they are. Warn is called with its
// errors, and with what looks like a mistake; nil for no reports.
func OpenGuard(file string, certificates bool, warn func(error)) (*Guard, error) {
	return httpserve.OpenGuard(httpserve.Config{File: file, Certificates: certificates, Cookie: "headgate_session", Lists: lists, Warn: warn})
}

// lists are the lists of a scope.
var lists = map[string]httpserve.ListRule{
	"namespaces": {Check: httpserve.CheckNamespace},
	"gates":      {Check: httpserve.CheckText},
	"types": {
		Check: func(p httpserve.Pattern) string {
			if api.TypeName(string(p)) == "" && !strings.Contains(string(p), "*") {
				return document.Quote(string(p)) + " is no type of tasks: want one of " + strings.Join(api.Types(), ", ")
			}
			return ""
		},
		Adjust: func(p httpserve.Pattern) httpserve.Pattern { // requests are checked by this name of the type
			if name := api.TypeName(string(p)); name != "" {
				return httpserve.Pattern(name)
			}
			return p
		},
	},
	"kinds": {Check: func(p httpserve.Pattern) string {
		if !slices.Contains(kinds, api.Kind(p)) {
			return document.Quote(string(p)) + " is no kind: want gate or rollback"
		}
		return ""
	}},
}

type grant = httpserve.Grant

// The verbs of authorization.
const (
	verbLook   = "look" // at runs
	verbRun    = "run tasks"
	verbCheck  = "check" // gates, and look at them
	verbChange = "change"
	verbReject = "reject" // opens the rollback switch too: needs kind rollback, whatever gates the scope names
)

// An attribute is a property of what a request is about: a list of the scope must allow it.
type attribute struct{ kind, value string }

// authorizeTask returns nil if the grant allows verb for tasks of a type in a namespace, and
// otherwise an [httpserve.Denial].
func authorizeTask(g grant, verb, namespace, taskType string) error {
	if g.All {
		return nil
	}
	return authorize(g, verb, attribute{"namespace", namespace}, attribute{"type", taskType})
}

// authorizeGate returns nil if the grant allows verb for a gate, and otherwise an
// [httpserve.Denial].
func authorizeGate(g grant, verb string, k api.Key) error {
	if g.All {
		return nil
	}
	also := k.Kind
	if verb == verbReject {
		also = api.KindRollback
	}
	return authorize(g, verb, attribute{"namespace", k.Namespace}, attribute{"kind", string(k.Kind)}, attribute{"gate", k.Gate}, attribute{"kind", string(also)})
}

// authorize returns nil if the scope of g, which is not All, allows verb and all parts.
func authorize(g grant, verb string, parts ...attribute) error {
	s := g.Scope()
	switch {
	case s == nil:
		return httpserve.Forbid("missing", g.Actor, verb+": nothing is allowed")
	case s.ReadOnly && verb != verbLook && verb != verbCheck:
		return httpserve.Forbid("read-only", g.Actor, verb+": the credential is read-only")
	}
	lists := map[string]*[]httpserve.Pattern{"namespace": s.Namespaces, "type": s.Types, "kind": s.Kinds, "gate": s.Gates}
	for _, p := range parts {
		if !httpserve.Allows(lists[p.kind], p.value) {
			return httpserve.OutOfScope(p.kind, g.Actor, verb, p.value)
		}
	}
	return nil
}
