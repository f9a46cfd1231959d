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

// An Operation is something that an [Adapter] has done.
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

	rollout.Routes // to set, or those that were set or read last: Primary and Canary in percent, and Mirrored
}

// An Action does an operation: a [Command] or a [Request].
type Action interface {
	// Do does v.Operation and returns what was answered. The error of an
	// operation that asks whether the workload is ready wraps
	// [rollout.ErrStuck] when it never will be.
	Do(ctx context.Context, v Values) (answer string, err error)
	// Check returns what is wrong with the configuration, for op.
	Check(op Operation) error
}

// An Adapter is the traffic and the target of a rollout, by actions. An
// operation without one does nothing, and the workload is ready. It is not safe
// for concurrent use.
type Adapter struct {
	Actions map[Operation]Action
	Timeout time.Duration // of one operation, default 1m

	// Values are what actions are told. The owner sets the names and the phase,
	// the revision when no operation tells it, and the routes to begin with when
	// no operation tells them; with none all traffic goes to the primary.
	Values Values
}

var (
	_ rollout.Traffic = (*Adapter)(nil)
	_ rollout.Target  = (*Adapter)(nil)
)

// ValuesOf returns what actions are told of a canary whose rollout has come as far as s.
func ValuesOf(c *rollout.Canary, s rollout.Status) Values {
	target := c.Spec.TargetRef.Name
	return Values{
		Name: c.Metadata.Name, Namespace: c.Metadata.Namespace, Target: target, Service: cmp.Or(c.Spec.Service.Name, target),
		Phase: s.Phase, Routes: s.Routes(),
	}
}

// Check returns what is wrong with the actions.
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

// Routes returns the routes as they are answered, or those that were set last.
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

// SetRoutes has the routes changed.
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

// Revision returns what is answered: one line of at most 1 KiB.
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

// PrimaryReady asks whether the primary is ready.
func (a *Adapter) PrimaryReady(ctx context.Context) error { return a.plain(ctx, PrimaryReady) }

// CanaryReady asks whether the canary is ready.
func (a *Adapter) CanaryReady(ctx context.Context) error { return a.plain(ctx, CanaryReady) }

// ScaleUp has the canary started.
func (a *Adapter) ScaleUp(ctx context.Context) error { return a.plain(ctx, ScaleUp) }

// ScaleDown has the canary stopped.
func (a *Adapter) ScaleDown(ctx context.Context) error { return a.plain(ctx, ScaleDown) }

// Promote has the revision made that of the primary.
func (a *Adapter) Promote(ctx context.Context) error { return a.plain(ctx, Promote) }

func (a *Adapter) plain(ctx context.Context, op Operation) error {
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

// parseRoutes reads routes: the percentages of primary and canary, and
// "mirrored" after them when they are; or the same as a JSON object.
func parseRoutes(text string) (rollout.Routes, error) {
	var r struct {
		Primary, Canary *int
		Mirrored        bool
	}
	words := strings.Fields(text)
	if r.Mirrored = len(words) == 3 && words[2] == "mirrored"; len(words) == 2 || r.Mirrored {
		// A number in JSON has no sign +, no leading zeros and no other base.
		text = fmt.Sprintf(`{"primary":%s,"canary":%s,"mirrored":%s}`, words[0], words[1], strconv.FormatBool(r.Mirrored))
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&r)
	if _, more := d.Token(); err != nil || more != io.EOF || r.Primary == nil || r.Canary == nil {
		return rollout.Routes{}, errors.New(`the answer is not routes: it has to be like "90 10", "100 0 mirrored" or {"primary":90,"canary":10}`)
	}
	routes := rollout.Routes{Primary: *r.Primary, Canary: *r.Canary, Mirrored: r.Mirrored}
	return routes, checkRoutes(routes)
}
