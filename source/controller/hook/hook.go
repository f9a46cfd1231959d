// Package hook answers the webhooks of Git hosts and registries: a push makes a
// source be checked at once.
package hook

import (
	"net/http"

	"github.com/headgate-io/headgate/source"
)

// A Receiver answers POST /hook/KIND/NAME and /hook/KIND/NAMESPACE/NAME.
type Receiver struct {
	// Object returns the object that a hook is for; the error wraps fs.ErrNotExist.
	Object func(source.Reference) (source.Object, error)
	// Secrets has the Secrets of hooks.
	Secrets source.Secrets
	// Secret is the name of the Secret of objects that name none, in their
	// namespace; "" for none.
	Secret string
	// Request asks for a run of the object.
	Request func(source.Reference) error
	// Allowed reports whether a request without a signature may trigger a run of
	// the object: its caller has shown a token of the server.
	Allowed func(*http.Request, source.Reference) bool
	// Observe is told what became of each request; nil for nobody.
	Observe func(Outcome)
}

// An Outcome is what became of a request.
type Outcome struct {
	Object   source.Reference
	Provider string // github, gitlab, gitea, generic, registry …
	Status   int    // of the answer
	Reason   string // fit for a log
}

// ServeHTTP implements [http.Handler].
func (h *Receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	http.Error(w, "not written yet", http.StatusNotImplemented)
}
