package traffic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
)

// An Operation is an operation of an [Adapter], which an [Action] does.
type Operation string

// The operations of traffic and of a target.
const (
	ReadRoutes   Operation = "routes"        // answers with the current routes
	SetRoutes    Operation = "set-routes"    // changes the routes
	Revision     Operation = "revision"      // answers with the revision to roll out
	PrimaryReady Operation = "primary-ready" // succeeds when the primary is ready
	CanaryReady  Operation = "canary-ready"  // succeeds when the canary is ready
	ScaleUp      Operation = "scale-up"      // starts the canary
	ScaleDown    Operation = "scale-down"    // stops the canary
	Promote      Operation = "promote"       // copies the revision to the primary
)

// Operations lists all operations.
func Operations() []Operation {
	return []Operation{ReadRoutes, SetRoutes, Revision, PrimaryReady, CanaryReady, ScaleUp, ScaleDown, Promote}
}

// checksReadiness reports whether op is a readiness check.
func (op Operation) checksReadiness() bool { return op == PrimaryReady || op == CanaryReady }

// usesAnswer reports whether the answer of op is used.
func (op Operation) usesAnswer() bool { return op == ReadRoutes || op == Revision }

// Values are the data of templates. Commands also get them in their environment, as
// HEADGATE_NAME and so on.
type Values struct {
	Operation Operation
	Name      string // of the canary
	Namespace string
	Target    string // the name in spec.targetRef
	Service   string // the name in spec.service, by default that of the target
	Phase     rollout.Phase
	Revision  string // as last read, "" before that

	rollout.Routes // to set, or as last set or read: Primary and Canary in percent, and Mirrored
}

// An Action does an operation: a [Command] or a [Request].
type Action interface {
	// Do does v.Operation and returns its answer. For an operation that asks
	// whether the workload is ready, the error wraps [rollout.ErrStuck] if it
	// never becomes ready.
	Do(ctx context.Context, v Values) (answer string, err error)
	// Check returns the defects of the configuration for op.
	Check(op Operation) error
}

// An Adapter implements the traffic and the target of a rollout with actions. An
// operation without an action does nothing and succeeds. It is not safe for
// concurrent use.
type Adapter struct {
	Actions map[Operation]Action
	Timeout time.Duration // of one operation, default 1m

	// Values are passed to actions. The owner sets the names and the phase, and,
	// unless an operation returns them, the revision and the initial routes. Zero
	// routes mean that all traffic goes to the primary.
	Values Values
}

var (
	_ rollout.Traffic = (*Adapter)(nil)
	_ rollout.Target  = (*Adapter)(nil)
)

// ValuesOf returns the Values for a canary whose rollout has status s.
func ValuesOf(c *rollout.Canary, s rollout.Status) Values {
	target := c.Spec.TargetRef.Name
	return Values{
		Name: c.Metadata.Name, Namespace: c.Metadata.Namespace, Target: target, Service: cmp.Or(c.Spec.Service.Name, target),
		Phase: s.Phase, Routes: s.Routes(),
	}
}

// Check returns the defects of the actions, joined.
func (a *Adapter) Check() error {
	var errs []error
	for op, action := range a.Actions {
		if !slices.Contains(Operations(), op) {
			errs = append(errs, fmt.Errorf("%q is not an operation: they are %q", string(op), Operations()))
		} else if err := action.Check(op); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", op, err))
		}
	}
	return errors.Join(errs...)
}

// Routes returns the routes that the action answers, or those set last if there is no
// action.
func (a *Adapter) Routes(ctx context.Context) (rollout.Routes, error) {
	v := &a.Values
	if v.Primary == 0 && v.Canary == 0 {
		v.Primary = 100
	}
	if a.Actions[ReadRoutes] == nil {
		return v.Routes, nil
	}
	answer, err := a.do(ctx, ReadRoutes, *v)
	if err != nil {
		return rollout.Routes{}, err
	}
	r, err := parseRoutes(answer)
	if err != nil {
		return rollout.Routes{}, fmt.Errorf("%s: %w", ReadRoutes, err)
	}
	v.Routes = r
	return r, nil
}

// SetRoutes changes the routes with the action.
func (a *Adapter) SetRoutes(ctx context.Context, r rollout.Routes) error {
	if err := checkRoutes(r); err != nil {
		return err
	}
	v := a.Values
	v.Routes = r
	_, err := a.do(ctx, SetRoutes, v)
	if err == nil {
		a.Values = v
	}
	return err
}

// Revision returns the answer of the action, one line of at most 1 KiB, or the
// revision in Values if there is no action.
func (a *Adapter) Revision(ctx context.Context) (string, error) {
	if a.Actions[Revision] == nil {
		return a.Values.Revision, nil
	}
	answer, err := a.do(ctx, Revision, a.Values)
	if err != nil {
		return "", err
	}
	revision := strings.TrimSpace(answer)
	if revision == "" || len(revision) > 1<<10 || !utf8.ValidString(revision) || strings.ContainsFunc(revision, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "", fmt.Errorf("%s: the answer has to be the revision: one line of text, of at most 1 KiB", Revision)
	}
	a.Values.Revision = revision
	return revision, nil
}

// PrimaryReady returns an error unless the primary is ready.
func (a *Adapter) PrimaryReady(ctx context.Context) error {
	return a.doWithoutAnswer(ctx, PrimaryReady)
}

// CanaryReady returns an error unless the canary is ready.
func (a *Adapter) CanaryReady(ctx context.Context) error { return a.doWithoutAnswer(ctx, CanaryReady) }

// ScaleUp starts the canary.
func (a *Adapter) ScaleUp(ctx context.Context) error { return a.doWithoutAnswer(ctx, ScaleUp) }

// ScaleDown stops the canary.
func (a *Adapter) ScaleDown(ctx context.Context) error { return a.doWithoutAnswer(ctx, ScaleDown) }

// Promote copies the revision to the primary.
func (a *Adapter) Promote(ctx context.Context) error { return a.doWithoutAnswer(ctx, Promote) }

func (a *Adapter) doWithoutAnswer(ctx context.Context, op Operation) error {
	_, err := a.do(ctx, op, a.Values)
	return err
}

func (a *Adapter) do(ctx context.Context, op Operation, v Values) (string, error) {
	action := a.Actions[op]
	if action == nil {
		return "", nil
	}
	limit := cmp.Or(a.Timeout, time.Minute)
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %s: %w", limit, context.DeadlineExceeded))
	defer cancel()
	v.Operation = op
	answer, err := action.Do(limited, v)
	switch {
	case err == nil && len(answer) > maxText:
		err = fmt.Errorf("the answer is longer than %d bytes", maxText)
	case err != nil && limited.Err() != nil:
		err = context.Cause(limited)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", op, redact.Error(err))
	}
	return answer, nil
}

// parseRoutes parses routes: the percentages of primary and canary, optionally
// followed by "mirrored", or the same as a JSON object.
func parseRoutes(text string) (rollout.Routes, error) {
	var r struct {
		Primary, Canary *int
		Mirrored        bool
	}
	words := strings.Fields(text)
	if r.Mirrored = len(words) == 3 && words[2] == "mirrored"; len(words) == 2 || r.Mirrored {
		// JSON refuses numbers with a plus sign, leading zeros or another base.
		text = fmt.Sprintf(`{"primary":%s,"canary":%s,"mirrored":%s}`, words[0], words[1], strconv.FormatBool(r.Mirrored))
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&r)
	if _, tokenErr := d.Token(); err != nil || tokenErr != io.EOF || r.Primary == nil || r.Canary == nil {
		return rollout.Routes{}, errors.New(`the answer is not routes: it has to be like "90 10", "100 0 mirrored" or {"primary":90,"canary":10}`)
	}
	routes := rollout.Routes{Primary: *r.Primary, Canary: *r.Canary, Mirrored: r.Mirrored}
	return routes, checkRoutes(routes)
}
