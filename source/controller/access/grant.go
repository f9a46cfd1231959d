package access

import (
	callers "github.com/headgate-io/headgate/internal/access"
	"github.com/headgate-io/headgate/source"
)

// A Grant is what one caller may do. The zero Grant allows nothing.
type Grant struct {
	Actor string // its name in the file; "" when everybody may do everything

	of callers.Grant[scope]
}

// grantOf returns a grant of package callers as one of this package.
func grantOf(of callers.Grant[scope], err error) (Grant, error) {
	return Grant{Actor: of.Actor, of: of}, err
}

// All returns the grant of one who may do everything.
func All() Grant { return Grant{of: callers.All[scope]()} }

// Fetch returns nil when the caller may fetch the artifacts of an object; its
// error, like those of the others, is a [Denial] that wraps [ErrForbidden].
func (g Grant) Fetch(ref source.Reference) error { return g.may(fetch, ref) }

// Read returns nil when the caller may see the status and the events of an
// object. It is cheap enough to be asked of each object of a list.
func (g Grant) Read(ref source.Reference) error { return g.may(read, ref) }

// Change returns nil when the caller may reconcile, suspend and resume an object.
func (g Grant) Change(ref source.Reference) error { return g.may(change, ref) }

// Debug returns nil when the caller may see profiles of the process. They are of
// all objects, so those of whom it may see some alone may not.
func (g Grant) Debug() error {
	switch s := g.of.Scope(); {
	case g.of.All():
		return nil
	case s == nil:
		return g.nothing(debug)
	case !s.allows(debug):
		return callers.Outside("may", g.Actor, debug, debug)
	case s.Namespaces != nil:
		return callers.Forbid("namespace", g.Actor, "debug: its scope is not all namespaces")
	case s.Kinds != nil:
		return callers.Forbid("kind", g.Actor, "debug: its scope is not all kinds")
	}
	return nil
}

// May returns what the caller may do, with some objects at least: of fetch, read,
// change and debug.
func (g Grant) May() []string {
	may := []string{} // [] and not null
	for _, what := range []string{fetch, read, change} {
		if s := g.of.Scope(); g.of.All() || s != nil && s.allows(what) {
			may = append(may, what)
		}
	}
	if g.Debug() == nil {
		may = append(may, debug)
	}
	return may
}

func (g Grant) may(what string, ref source.Reference) error {
	s := g.of.Scope()
	switch {
	case g.of.All():
		return nil
	case s == nil:
		return g.nothing(what)
	case !s.allows(what):
		return callers.Outside("may", g.Actor, what, what)
	case !callers.Allows(s.Namespaces, ref.Namespace):
		return callers.Outside("namespace", g.Actor, what, ref.Namespace)
	case !s.hasKind(ref.Kind):
		return callers.Outside("kind", g.Actor, what, ref.Kind)
	}
	return nil
}

func (g Grant) nothing(what string) error {
	return callers.Forbid("missing", g.Actor, what+": nothing is allowed")
}
