package access

import (
	callers "github.com/headgate-io/headgate/internal/access"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

// A Grant is what one caller may do. The zero Grant allows nothing.
type Grant struct {
	Actor string // its name in the file; "" when everybody may do everything

	of callers.Grant[scopes]
}

// grantOf returns a grant of package callers as one of this package.
func grantOf(of callers.Grant[scopes], err error) (Grant, error) {
	return Grant{Actor: of.Actor, of: of}, err
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
	if scope := g.of.Scope(); scope != nil && !callers.Allows(scope.Kinds, string(api.KindRollback)) {
		return callers.Outside("kind", g.Actor, "reject", string(api.KindRollback))
	}
	return nil
}

// See returns nil when the caller may look at the runs of a type in a namespace.
func (g Grant) See(namespace, taskType string) error {
	return g.may(access{verb: "look", namespace: namespace, taskType: taskType})
}

// ReadOnly reports whether the caller may start and change nothing.
func (g Grant) ReadOnly() bool {
	scope := g.of.Scope()
	return !g.of.All() && (scope == nil || scope.ReadOnly)
}

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
	if g.of.All() {
		return nil
	}
	s := g.of.Scope()
	switch {
	case s == nil:
		return callers.Forbid("missing", g.Actor, a.verb+": nothing is allowed")
	case a.changes && s.ReadOnly:
		return callers.Forbid("read-only", g.Actor, a.verb+": the credential is read-only")
	case !callers.Allows(s.Namespaces, a.namespace):
		return callers.Outside("namespace", g.Actor, a.verb, a.namespace)
	case a.taskType != "" && !callers.Allows(s.Types, a.taskType):
		return callers.Outside("type", g.Actor, a.verb, a.taskType)
	case a.key.Kind != "" && !callers.Allows(s.Kinds, string(a.key.Kind)):
		return callers.Outside("kind", g.Actor, a.verb, string(a.key.Kind))
	case a.key.Kind != "" && !callers.Allows(s.Gates, a.key.Gate):
		return callers.Outside("gate", g.Actor, a.verb, a.key.Gate)
	}
	return nil
}
