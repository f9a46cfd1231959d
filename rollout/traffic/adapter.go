package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	Primary   int    // percent: the routes to set, or those that were set or read last
	Canary    int
	Mirrored  bool
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
// operation without one does nothing, and the workload is ready. It is safe
// for concurrent use.
type Adapter struct {
	Actions map[Operation]Action
	Canary  *rollout.Canary // what Values say of it; may be nil
	Timeout time.Duration   // of one operation, default 1m
	Secrets []string        // texts that errors never contain

	ID    string               // the revision, when no operation tells it
	Start rollout.Routes       // the routes before any are set, when no operation tells them; zero for all to the primary
	Phase func() rollout.Phase // what Values have as the phase; may be nil

	mu       sync.Mutex
	routes   rollout.Routes // zero when none were set or read
	revision string
}

var (
	_ rollout.Traffic = (*Adapter)(nil)
	_ rollout.Target  = (*Adapter)(nil)
)

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
	v := a.values(ReadRoutes)
	r := rollout.Routes{Primary: v.Primary, Canary: v.Canary, Mirrored: v.Mirrored}
	if a.Actions[ReadRoutes] == nil {
		return r, checkRoutes(r)
	}
	answer, err := a.do(ctx, v)
	if err != nil {
		return rollout.Routes{}, err
	}
	if r, err = parseRoutes(answer); err != nil {
		return rollout.Routes{}, fmt.Errorf("%s: %w", ReadRoutes, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.routes = r
	return r, nil
}

// SetRoutes has the routes changed.
func (a *Adapter) SetRoutes(ctx context.Context, r rollout.Routes) error {
	if err := checkRoutes(r); err != nil {
		return err
	}
	v := a.values(SetRoutes)
	v.Primary, v.Canary, v.Mirrored = r.Primary, r.Canary, r.Mirrored
	if _, err := a.do(ctx, v); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.routes = r
	return nil
}

// Revision returns what is answered: one line of at most 1 KiB.
func (a *Adapter) Revision(ctx context.Context) (string, error) {
	if a.Actions[Revision] == nil {
		return a.ID, nil
	}
	answer, err := a.do(ctx, a.values(Revision))
	if err != nil {
		return "", err
	}
	revision := strings.TrimSpace(answer)
	if revision == "" || len(revision) > 1<<10 || !utf8.ValidString(revision) || strings.ContainsFunc(revision, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "", fmt.Errorf("%s: the answer has to be the revision: one line of text, of at most 1 KiB", Revision)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revision = revision
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
	_, err := a.do(ctx, a.values(op))
	return err
}

func (a *Adapter) do(ctx context.Context, v Values) (string, error) {
	action := a.Actions[v.Operation]
	if action == nil {
		return "", nil
	}
	limit := or(a.Timeout, time.Minute)
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %s: %w", limit, context.DeadlineExceeded))
	defer cancel()
	answer, err := action.Do(limited, v)
	switch {
	case err == nil && len(answer) > maxText:
		err = fmt.Errorf("the answer is longer than %d bytes", maxText)
	case err != nil && limited.Err() != nil:
		err = context.Cause(limited)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", v.Operation, redact.Error(err, a.Secrets...))
	}
	return answer, nil
}

func (a *Adapter) values(op Operation) Values {
	v := Values{Operation: op}
	if c := a.Canary; c != nil {
		v.Name, v.Namespace = c.Metadata.Name, c.Metadata.Namespace
		v.Target, v.Service = c.Spec.TargetRef.Name, c.Spec.Service.Name
		if v.Service == "" {
			v.Service = v.Target
		}
	}
	if a.Phase != nil {
		v.Phase = a.Phase()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r := all
	for _, known := range []rollout.Routes{a.Start, a.routes} {
		if known != (rollout.Routes{}) {
			r = known
		}
	}
	v.Primary, v.Canary, v.Mirrored = r.Primary, r.Canary, r.Mirrored
	if v.Revision = a.revision; v.Revision == "" {
		v.Revision = a.ID
	}
	return v
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
