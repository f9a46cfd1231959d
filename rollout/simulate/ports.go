package simulate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/headgate-io/headgate/rollout"
)

// A world is what the ports of an analysis look at and change. What comes of a
// call is asked of says; "" means that it goes well.
type world struct {
	says func(of Subject, names ...string) string

	state
	revision string // of the target, when the script says nothing

	tick *Tick // where calls and events are recorded
}

// A state is what the ports changed.
type state struct {
	routes  rollout.Routes
	scaled  bool   // the canary runs
	primary string // the revision that the primary has
}

var (
	errScripted = errors.New("scripted error")
	errNotReady = errors.New("not ready: scripted")
)

func (w *world) record(c Call) { w.tick.Calls = append(w.tick.Calls, c) }

// did records a call of the target or of traffic, and what came of it.
func (w *world) did(of Subject, name, detail string, err error) error {
	c := Call{Subject: of, Name: name, Detail: detail, Outcome: ok}
	if err != nil {
		c.Outcome = failing
	}
	w.record(c)
	return err
}

func (w *world) fails(of Subject, names ...string) error {
	if w.says(of, names...) == failing {
		return errScripted
	}
	return nil
}

// Routes and SetRoutes are the port [rollout.Traffic].
func (w *world) Routes(ctx context.Context) (rollout.Routes, error) {
	if w.says(Traffic) == failing {
		return rollout.Routes{}, w.did(Traffic, "read", "unread", errScripted)
	}
	return w.routes, nil
}

func (w *world) SetRoutes(ctx context.Context, r rollout.Routes) error {
	err := w.fails(Traffic)
	if w.says(Traffic) == setFailing {
		err = errScripted
	}
	if err == nil {
		w.routes = r
	}
	return w.did(Traffic, "set", routesText(r), err)
}

// The methods from Revision to Promote are the port [rollout.Target].
func (w *world) Revision(ctx context.Context) (string, error) {
	if w.says(Target, revision) == failing {
		return "", w.did(Target, revision, "", errScripted)
	}
	return w.current(), nil
}

func (w *world) current() string {
	if r := w.says(Revision); r != "" {
		return r
	}
	return w.revision
}

func (w *world) PrimaryReady(ctx context.Context) error { return w.isReady(Primary) }

// CanaryReady says that a canary that was scaled down is not ready.
func (w *world) CanaryReady(ctx context.Context) error {
	if !w.scaled {
		w.record(Call{Subject: Canary, Outcome: notReady})
		return errNotReady
	}
	return w.isReady(Canary)
}

func (w *world) isReady(of Subject) error {
	var err error
	switch w.says(of) {
	case notReady:
		err = errNotReady
	case stuck:
		err = fmt.Errorf("scripted: %w", rollout.ErrStuck)
	default:
		return nil
	}
	w.record(Call{Subject: of, Outcome: w.says(of)})
	return err
}

func (w *world) ScaleUp(ctx context.Context) error {
	err := w.fails(Target, scaleUp)
	if err == nil {
		w.scaled = true
	}
	return w.did(Target, scaleUp, "", err)
}

func (w *world) ScaleDown(ctx context.Context) error {
	err := w.fails(Target, scaleDown)
	if err == nil {
		w.scaled = false
	}
	return w.did(Target, scaleDown, "", err)
}

func (w *world) Promote(ctx context.Context) error {
	err := w.fails(Target, promote)
	if err == nil {
		w.primary = w.current()
	}
	return w.did(Target, promote, "", err)
}

// Query is the port [rollout.Metrics].
func (w *world) Query(ctx context.Context, c *rollout.Canary, m rollout.Metric) (float64, error) {
	says := w.says(Metric, m.Name)
	value, err := normal(m), error(nil)
	switch says {
	case "":
	case none:
		err = fmt.Errorf("%w for metric %s", rollout.ErrNoValues, m.Name)
	case failing:
		err = errScripted
	default:
		value = number(says)
	}
	call := Call{Subject: Metric, Name: m.Name, Outcome: says}
	if err == nil {
		call.Outcome = strconv.FormatFloat(value, 'g', -1, 64)
	}
	w.record(call)
	return value, err
}

// normal is a value that passes the check of a metric.
func normal(m rollout.Metric) float64 {
	r := m.ThresholdRange
	switch {
	case r != nil && r.Min != nil && r.Max != nil:
		return *r.Min + (*r.Max-*r.Min)/2
	case r != nil && r.Min != nil:
		return *r.Min
	case r != nil && r.Max != nil:
		return *r.Max
	case m.Threshold != nil:
		return *m.Threshold
	case m.Name == "request-success-rate":
		return 100
	}
	return 0
}

// Call is the port [rollout.Hooks].
func (w *world) Call(ctx context.Context, h rollout.Hook, p rollout.Payload) (rollout.Answer, error) {
	of := typeOf(h)
	says := w.says(Hook, h.Name, string(of))
	if says == "" {
		says = "200"
		if of == rollout.HookRollback {
			says = "403"
		}
	}
	answer, err := answerOf(of, says)
	w.record(Call{Subject: Hook, Name: h.Name, Type: of, Phase: p.Phase, Checksum: p.Checksum, Outcome: says, Verdict: of.Judge(err).String()})
	return answer, err
}

func answerOf(of rollout.HookType, says string) (rollout.Answer, error) {
	switch says {
	case timeout:
		return rollout.Answer{Attempts: 1}, fmt.Errorf("no answer: %w", errTimeout)
	case refused:
		return rollout.Answer{Attempts: 1}, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	answer := rollout.Answer{Status: status(says), Body: []byte(http.StatusText(status(says))), Attempts: 1}
	err := &rollout.StatusError{Code: answer.Status, Body: answer.Body}
	if v := of.Judge(err); v == rollout.Pass || v == rollout.Fire {
		return answer, nil
	}
	return answer, err
}

// errTimeout is no [context.DeadlineExceeded]: that would be the end of a context.
var errTimeout = errors.New("timeout")

func typeOf(h rollout.Hook) rollout.HookType {
	if h.Type == "" {
		return rollout.HookRollout
	}
	return h.Type
}

// Emit is the port [rollout.Sink].
func (w *world) Emit(ctx context.Context, e rollout.Event) {
	w.tick.Events = append(w.tick.Events, e)
	w.record(Call{Subject: event, Name: string(e.Code), Detail: e.Message, Outcome: string(e.Alert), Phase: e.Phase})
}

// event is the subject of calls that tell an event; no script speaks of it.
const event Subject = "event"
