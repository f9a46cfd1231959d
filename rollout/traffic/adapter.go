package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-io/headgate/rollout"
)

// A Driver does operations.
type Driver interface {
	// Has reports whether op is configured.
	Has(op Operation) bool
	// Do does op, which is configured, and returns what was answered. The error
	// of an operation that asks whether the workload is ready wraps
	// [rollout.ErrStuck] when it never will be.
	Do(ctx context.Context, op Operation, v Values) (answer string, err error)
	// Check returns what is wrong with the configuration.
	Check() error
}

// An Adapter is the traffic and the target of a rollout, by what a driver does.
// An operation that is not configured does nothing, and the workload is ready.
// It is safe for concurrent use.
type Adapter struct {
	Driver Driver          // nil does nothing
	Canary *rollout.Canary // what Values say of it; may be nil

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

// Routes returns the routes as the driver tells them, or those that were set last.
func (a *Adapter) Routes(ctx context.Context) (rollout.Routes, error) {
	v := a.values(ReadRoutes)
	known := rollout.Routes{Primary: v.Primary, Canary: v.Canary, Mirrored: v.Mirrored}
	if !a.has(ReadRoutes) {
		return known, checkRoutes(known)
	}
	answer, err := a.Driver.Do(ctx, ReadRoutes, v)
	if err != nil {
		return rollout.Routes{}, fmt.Errorf("%s: %w", ReadRoutes, err)
	}
	r, err := parseRoutes(answer)
	if err != nil {
		return rollout.Routes{}, fmt.Errorf("%s: %w", ReadRoutes, err)
	}
	a.know(func() { a.routes = r })
	return r, nil
}

// SetRoutes has the driver change the routes.
func (a *Adapter) SetRoutes(ctx context.Context, r rollout.Routes) error {
	if err := checkRoutes(r); err != nil {
		return err
	}
	v := a.values(SetRoutes)
	v.Primary, v.Canary, v.Mirrored = r.Primary, r.Canary, r.Mirrored
	if _, err := a.do(ctx, v); err != nil {
		return err
	}
	a.know(func() { a.routes = r })
	return nil
}

// Revision returns what the driver tells: one line of at most 1 KiB.
func (a *Adapter) Revision(ctx context.Context) (string, error) {
	if !a.has(Revision) {
		return a.ID, nil
	}
	answer, err := a.do(ctx, a.values(Revision))
	if err != nil {
		return "", err
	}
	revision := strings.TrimSpace(answer)
	if err := checkRevision(revision); err != nil {
		return "", fmt.Errorf("%s: %w", Revision, err)
	}
	a.know(func() { a.revision = revision })
	return revision, nil
}

// PrimaryReady asks the driver.
func (a *Adapter) PrimaryReady(ctx context.Context) error { return a.plain(ctx, PrimaryReady) }

// CanaryReady asks the driver.
func (a *Adapter) CanaryReady(ctx context.Context) error { return a.plain(ctx, CanaryReady) }

// ScaleUp has the driver start the canary.
func (a *Adapter) ScaleUp(ctx context.Context) error { return a.plain(ctx, ScaleUp) }

// ScaleDown has the driver stop the canary.
func (a *Adapter) ScaleDown(ctx context.Context) error { return a.plain(ctx, ScaleDown) }

// Promote has the driver make the revision that of the primary.
func (a *Adapter) Promote(ctx context.Context) error { return a.plain(ctx, Promote) }

func (a *Adapter) plain(ctx context.Context, op Operation) error {
	_, err := a.do(ctx, a.values(op))
	return err
}

func (a *Adapter) do(ctx context.Context, v Values) (string, error) {
	if !a.has(v.Operation) {
		return "", nil
	}
	answer, err := a.Driver.Do(ctx, v.Operation, v)
	if err != nil {
		return "", fmt.Errorf("%s: %w", v.Operation, err)
	}
	return answer, nil
}

func (a *Adapter) has(op Operation) bool { return a.Driver != nil && a.Driver.Has(op) }

func (a *Adapter) know(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
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
		if known.Primary+known.Canary != 0 {
			r = known
		}
	}
	v.Primary, v.Canary, v.Mirrored = r.Primary, r.Canary, r.Mirrored
	if v.Revision = a.revision; v.Revision == "" {
		v.Revision = a.ID
	}
	return v
}

// maxRevision is how long a revision may be, in bytes.
const maxRevision = 1 << 10

func checkRevision(text string) error {
	switch {
	case text == "":
		return errors.New("the answer is empty: it has to be the revision")
	case len(text) > maxRevision:
		return fmt.Errorf("the answer has more than %d bytes", maxRevision)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("the answer is not one line of text")
	}
	return nil
}

// parseRoutes reads routes: the percentages of primary and canary, and
// "mirrored" after them when they are; or the same as a JSON object.
func parseRoutes(text string) (rollout.Routes, error) {
	text = strings.TrimSpace(text)
	r, err := parseWords(text)
	if strings.HasPrefix(text, "{") {
		r, err = parseObject(text)
	}
	if err != nil {
		return rollout.Routes{}, err
	}
	return r, checkRoutes(r)
}

var errAnswer = errors.New(`the answer is not routes: it has to be like "90 10", "100 0 mirrored" or {"primary":90,"canary":10}`)

func parseWords(text string) (r rollout.Routes, err error) {
	words := strings.Fields(text)
	if len(words) == 3 && words[2] == "mirrored" {
		r.Mirrored, words = true, words[:2]
	}
	if len(words) != 2 {
		return r, errAnswer
	}
	for i, to := range []*int{&r.Primary, &r.Canary} {
		if *to, err = strconv.Atoi(words[i]); err != nil {
			return r, errAnswer
		}
	}
	return r, nil
}

func parseObject(text string) (rollout.Routes, error) {
	var object struct {
		Primary, Canary *int
		Mirrored        bool
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&object); err != nil || object.Primary == nil || object.Canary == nil {
		return rollout.Routes{}, errAnswer
	}
	if _, err := d.Token(); err != io.EOF {
		return rollout.Routes{}, errAnswer
	}
	return rollout.Routes{Primary: *object.Primary, Canary: *object.Canary, Mirrored: object.Mirrored}, nil
}
