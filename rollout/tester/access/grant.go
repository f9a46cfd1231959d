package access

import (
	"crypto/x509"
	"strconv"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// A Grant is what one caller may do. The zero Grant allows nothing.
type Grant struct {
	Actor string // its name in the file; "" when everybody may do everything

	all    bool    // everything
	caller *caller // what else

	token digest            // by which it was given, or
	leaf  *x509.Certificate // the certificate
}

// Run returns nil when the caller may start and cancel tasks of a type in a
// namespace. Its error, like those of the other methods, is a [Denial] that
// wraps [ErrForbidden].
func (g Grant) Run(namespace, taskType string) error {
	return g.may(access{verb: "run tasks", changes: true, namespace: namespace, taskType: taskType})
}

// Check returns nil when the caller may ask whether a gate is open, and look at
// it and at what was done with it.
func (g Grant) Check(k api.Key) error {
	return g.may(access{verb: "check", namespace: k.Namespace, key: k})
}

// Change returns nil when the caller may open and close a gate.
func (g Grant) Change(k api.Key) error {
	return g.may(access{verb: "change", changes: true, namespace: k.Namespace, key: k})
}

// Reject returns nil when the caller may close a gate and have its canary rolled
// back, which opens the rollback switch whatever gates the scope names.
func (g Grant) Reject(k api.Key) error {
	if err := g.Change(k); err != nil {
		return err
	}
	if !g.all && !allows(g.caller.Kinds, string(api.KindRollback)) {
		return g.deny("kind", access{verb: "reject"}, "kind "+quote(string(api.KindRollback))+" is not in its scope")
	}
	return nil
}

// See returns nil when the caller may look at the runs of a type in a namespace.
func (g Grant) See(namespace, taskType string) error {
	return g.may(access{verb: "look", namespace: namespace, taskType: taskType})
}

// ReadOnly reports whether the caller may start and change nothing.
func (g Grant) ReadOnly() bool { return !g.all && (g.caller == nil || g.caller.ReadOnly) }

// Session returns what the API says of the caller.
func (g Grant) Session(required bool) api.Session {
	return api.Session{Actor: g.Actor, Required: required, ReadOnly: g.ReadOnly()}
}

// An access is what a caller wants to do.
type access struct {
	verb      string
	changes   bool
	namespace string
	taskType  string  // "" for none
	key       api.Key // without Gate for none
}

func (g Grant) may(a access) error {
	if g.all {
		return nil
	}
	if g.caller == nil {
		return g.deny("missing", a, "nothing is allowed")
	}
	c := g.caller
	switch {
	case a.changes && c.ReadOnly:
		return g.deny("read-only", a, "the credential is read-only")
	case !allows(c.Namespaces, a.namespace):
		return g.deny("namespace", a, "namespace "+quote(a.namespace)+" is not in its scope")
	case a.taskType != "" && !allows(c.Types, a.taskType):
		return g.deny("type", a, "type "+quote(a.taskType)+" is not in its scope")
	case a.key.Kind != "" && !allows(c.Kinds, string(a.key.Kind)):
		return g.deny("kind", a, "kind "+quote(string(a.key.Kind))+" is not in its scope")
	case a.key.Kind != "" && !allows(c.Gates, a.key.Gate):
		return g.deny("gate", a, "gate "+quote(a.key.Gate)+" is not in its scope")
	}
	return nil
}

func (g Grant) deny(kind string, a access, reason string) error {
	return &Denial{Kind: kind, Actor: g.Actor, reason: a.verb + ": " + reason, err: ErrForbidden}
}

// quote quotes a text of a request, shortened to 80 bytes.
func quote(text string) string {
	if len(text) > 80 {
		text = text[:77] + "..."
	}
	return strconv.Quote(text)
}
