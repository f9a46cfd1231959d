package rollout

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
)

// An about is what an event is about, beside the canary.
type about struct {
	name   string // of a webhook or a metric
	reason string
	muted  bool // nobody is alerted to it
}

// emit tells an event of the phase that the status is in, and returns its
// message. It is numbered whether or not somebody listens.
func (t *tick) emit(code EventCode, a about) string {
	t.s.Sequence++
	how, c := tellings[code], t.Canary
	e := Event{
		Code: code, Warning: how.warning, Time: t.now,
		Name: c.Metadata.Name, Namespace: c.Namespace(), Phase: t.s.Phase,
		Checksum: t.checksum(), Sequence: t.s.Sequence,
		Weight: t.s.CanaryWeight, MaxWeight: c.MaxWeight(), Iteration: t.s.Iterations, FailedChecks: t.s.FailedChecks,
		Hook: bounded(a.name), Reason: bounded(a.reason), Alert: how.alert,
	}
	if a.muted {
		e.Alert = ""
	}
	number := strconv.Itoa
	e.Message = bounded(c.Metadata.Name+"."+c.Namespace()) + ": " + strings.NewReplacer(
		"{hook}", e.Hook, "{reason}", cmp.Or(e.Reason, "no reason given"),
		"{weight}", number(e.Weight), "{primary}", number(100-e.Weight),
		"{iteration}", number(e.Iteration), "{iterations}", number(c.Spec.Analysis.Iterations),
		"{failed}", number(e.FailedChecks), "{threshold}", number(c.Threshold()),
	).Replace(how.text)
	if t.Sink != nil {
		t.Sink.Emit(t.ctx, e)
	}
	return e.Message
}

// checksum is that of the revision that the tick is about.
func (t *tick) checksum() string { return Checksum(cmp.Or(t.revision, t.s.AppliedSpec), nil) }

// maxReason bounds what a status and an event keep of a remote text, in bytes.
const maxReason = 1 << 10

// bounded returns the beginning of a text on one line, without credentials.
func bounded(text string) string { return shorten(text[:min(len(text), 4*maxReason)], maxReason) }

// reason is what a webhook said, or why it did not.
func reason(answer Answer, err error) string {
	person := attributed(bounded(answer.Actor), bounded(answer.Reason))
	if err == nil {
		return bounded(cmp.Or(person, string(answer.Body)))
	}
	text := err.Error()
	if status, is := errors.AsType[*StatusError](err); is && person+string(status.Body) != "" {
		text = "status " + strconv.Itoa(status.Code) + ": " + cmp.Or(person, string(status.Body))
	}
	return bounded(text)
}
