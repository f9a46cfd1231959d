package traffic

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/headgate-io/headgate/rollout"
)

// An Operation is something that an [Adapter] asks a [Driver] for.
type Operation string

// The operations of traffic and of a target.
const (
	ReadRoutes   Operation = "routes"        // answers with the routes as they are
	SetRoutes    Operation = "set-routes"    // changes them
	Revision     Operation = "revision"      // answers with what is to be rolled out
	PrimaryReady Operation = "primary-ready" // succeeds when the primary is ready
	CanaryReady  Operation = "canary-ready"  // succeeds when the canary is ready
	ScaleUp      Operation = "scale-up"      // starts the canary
	ScaleDown    Operation = "scale-down"    // stops the canary
	Promote      Operation = "promote"       // makes the revision that of the primary
)

// Operations lists all operations.
func Operations() []Operation {
	return []Operation{ReadRoutes, SetRoutes, Revision, PrimaryReady, CanaryReady, ScaleUp, ScaleDown, Promote}
}

// ready reports whether the answer to op is that the workload is ready or not.
func (op Operation) ready() bool { return op == PrimaryReady || op == CanaryReady }

// asks reports whether op is about what is answered.
func (op Operation) asks() bool { return op == ReadRoutes || op == Revision }

// Values are what templates are about. Commands have them in their environment
// too, as HEADGATE_NAME and so on.
type Values struct {
	Operation Operation
	Name      string // of the canary
	Namespace string
	Target    string // the name in spec.targetRef
	Service   string // the name in spec.service, by default that of the target
	Phase     rollout.Phase
	Revision  string // the one that was read last, "" before
	Primary   int    // percent: the routes to set, or those that were set or read last
	Canary    int
	Mirrored  bool
}

// environment returns v as variables.
func (v Values) environment() []string {
	return []string{
		"HEADGATE_OPERATION=" + string(v.Operation),
		"HEADGATE_NAME=" + v.Name,
		"HEADGATE_NAMESPACE=" + v.Namespace,
		"HEADGATE_TARGET=" + v.Target,
		"HEADGATE_SERVICE=" + v.Service,
		"HEADGATE_PHASE=" + string(v.Phase),
		"HEADGATE_REVISION=" + v.Revision,
		"HEADGATE_PRIMARY=" + strconv.Itoa(v.Primary),
		"HEADGATE_CANARY=" + strconv.Itoa(v.Canary),
		"HEADGATE_MIRRORED=" + strconv.FormatBool(v.Mirrored),
	}
}

// check returns an error when there is no such operation.
func (op Operation) check() error {
	if !slices.Contains(Operations(), op) {
		return fmt.Errorf("%q is not an operation: they are %q", string(op), Operations())
	}
	return nil
}
