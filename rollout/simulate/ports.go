package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/headgate-io/headgate/rollout"
)

// A scriptedPorts implements all ports of an analysis with outcomes of the script.
// Operations that the script does not mention succeed.
type scriptedPorts struct {
	script Script
	state
	tick *Tick // the current tick, which records calls and events
}

// A state is the state of the simulated traffic and target.
type state struct {
	routes  rollout.Routes
	scaled  bool   // the canary runs
	primary string // the revision that the primary has
}

// scriptedValue returns the value in the script for a subject in this tick, "" for none.
func (w *scriptedPorts) scriptedValue(of Subject, names ...string) string {
	return w.script.valueAt(w.tick.Number, of, names...)
}

// revision returns the revision of the target in this tick.
func (w *scriptedPorts) revision() string {
	return cmp.Or(w.scriptedValue(Revision), []string{"1", "2"}[min(w.tick.Number, 1)])
}

var (
	errScripted = errors.New("scripted error")
	errNotReady = errors.New("not ready: scripted")
)

func (w *scriptedPorts) record(c Call) { w.tick.Calls = append(w.tick.Calls, c) }

// act records a call of the target or the traffic, and calls do unless the script
// says that the call fails.
func (w *scriptedPorts) act(of Subject, name, detail string, do func()) error {
	c, err := Call{Subject: of, Name: name, Detail: detail, Outcome: "ok"}, error(nil)
	if outcome := w.scriptedValue(of, name); outcome == "error" || outcome == "set-error" {
		c.Outcome, err = "error", errScripted
	} else {
		do()
	}
	w.record(c)
	return err
}

// Routes and SetRoutes implement [rollout.Traffic].
func (w *scriptedPorts) Routes(context.Context) (rollout.Routes, error) {
	if w.scriptedValue(Traffic) == "error" {
		w.record(Call{Subject: Traffic, Name: "read", Detail: "unread", Outcome: "error"})
		return rollout.Routes{}, errScripted
	}
	return w.routes, nil
}

func (w *scriptedPorts) SetRoutes(_ context.Context, r rollout.Routes) error {
	return w.act(Traffic, "set", routesText(r), func() { w.routes = r })
}

// The methods from Revision to Promote implement [rollout.Target].
func (w *scriptedPorts) Revision(context.Context) (string, error) {
	if w.scriptedValue(Target, "revision") == "error" {
		w.record(Call{Subject: Target, Name: "revision", Outcome: "error"})
		return "", errScripted
	}
	return w.revision(), nil
}

func (w *scriptedPorts) PrimaryReady(context.Context) error {
	return w.checkReady(Primary, w.scriptedValue(Primary))
}

// CanaryReady returns an error for a canary that is scaled down, whatever the script says.
func (w *scriptedPorts) CanaryReady(context.Context) error {
	if !w.scaled {
		return w.checkReady(Canary, "not-ready")
	}
	return w.checkReady(Canary, w.scriptedValue(Canary))
}

func (w *scriptedPorts) checkReady(of Subject, outcome string) error {
	var err error
	switch outcome {
	case "not-ready":
		err = errNotReady
	case "stuck":
		err = fmt.Errorf("scripted: %w", rollout.ErrStuck)
	default:
		return nil
	}
	w.record(Call{Subject: of, Outcome: outcome})
	return err
}

func (w *scriptedPorts) ScaleUp(context.Context) error {
	return w.act(Target, "scale-up", "", func() { w.scaled = true })
}

func (w *scriptedPorts) ScaleDown(context.Context) error {
	return w.act(Target, "scale-down", "", func() { w.scaled = false })
}

func (w *scriptedPorts) Promote(context.Context) error {
	return w.act(Target, "promote", "", func() { w.primary = w.revision() })
}

// Query implements [rollout.Metrics].
func (w *scriptedPorts) Query(ctx context.Context, c *rollout.Canary, m rollout.Metric) (float64, error) {
	outcome := w.scriptedValue(Metric, m.Name)
	value, err := passingValue(m), error(nil)
	switch outcome {
	case "":
	case "none":
		err = fmt.Errorf("%w for metric %s", rollout.ErrNoValues, m.Name)
	case "error":
		err = errScripted
	default:
		value, _ = strconv.ParseFloat(outcome, 64) // ParseOutcome has checked its form
	}
	call := Call{Subject: Metric, Name: m.Name, Outcome: outcome}
	if err == nil {
		call.Outcome = strconv.FormatFloat(value, 'g', -1, 64)
	}
	w.record(call)
	return value, err
}

// passingValue returns a value that passes the check of a metric.
func passingValue(m rollout.Metric) float64 {
	r := m.Bounds()
	switch {
	case r.Min == nil && r.Max == nil && m.Name == rollout.SuccessRate:
		return 100
	case r.Min == nil && r.Max == nil:
		return 0
	case r.Min == nil:
		return *r.Max
	case r.Max == nil:
		return *r.Min
	}
	return *r.Min + (*r.Max-*r.Min)/2
}

// Call implements [rollout.Hooks].
func (w *scriptedPorts) Call(ctx context.Context, h rollout.Hook, p rollout.Payload) (rollout.Answer, error) {
	of := h.Kind()
	outcome := w.scriptedValue(Hook, h.Name, string(of))
	if outcome == "" {
		outcome = "200"
		if of == rollout.HookRollback {
			outcome = "403"
		}
	}
	answer, err := rollout.Answer{Attempts: 1}, error(nil)
	switch outcome {
	case "timeout":
		err = fmt.Errorf("no answer: %w", errTimeout)
	case "refused":
		err = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	default:
		answer.Status, _ = strconv.Atoi(outcome) // ParseOutcome has checked its form
		answer.Body = []byte(http.StatusText(answer.Status))
		err = &rollout.StatusError{Code: answer.Status, Body: answer.Body}
		if v := of.Judge(err); v == rollout.Pass || v == rollout.Fire {
			err = nil
		}
	}
	w.record(Call{Subject: Hook, Name: h.Name, Type: of, Phase: p.Phase, Checksum: p.Checksum, Outcome: outcome, Verdict: of.Judge(err).String()})
	return answer, err
}

// errTimeout is not [context.DeadlineExceeded], which would mean the end of a context.
var errTimeout = errors.New("timeout")

// Emit implements [rollout.Sink].
func (w *scriptedPorts) Emit(ctx context.Context, e rollout.Event) {
	w.tick.Events = append(w.tick.Events, e)
	w.record(Call{Subject: event, Name: string(e.Code), Detail: e.Message, Outcome: string(e.Alert), Phase: e.Phase})
}

// event is the subject of recorded events. A script cannot use it.
const event Subject = "event"
