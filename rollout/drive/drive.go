// Package drive runs the rollout of a canary: it connects the analysis with the
// traffic, metrics, webhooks and receivers of alerts, and saves its status to a
// file. After the process has ended for any reason, another one can resume the
// rollout. A request of a user is stored beside the file until the owner of the
// file has accepted it: see [Ask].
package drive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/metric"
	"github.com/headgate-io/headgate/rollout/notify"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// Options configure a rollout. Canary, File, Querier, Caller and View are required.
type Options struct {
	Canary    *rollout.Canary
	File      *File
	Revision  string                               // to roll out, unless an action returns it
	Actions   map[traffic.Operation]traffic.Action // of the traffic and the target
	Timeout   time.Duration                        // of one action
	Proxy     *Proxy                               // divides the traffic; nil for none
	Querier   *metric.Querier
	Providers []*notify.Provider // of alerts
	Caller    *rollout.Caller
	EventURL  string // receives all events if the canary has no webhook of type event
	Cluster   string // shown in alerts

	Interval time.Duration    // between two steps; 0 for the interval of the canary
	Again    bool             // roll out again a revision whose rollout has ended
	Once     bool             // do one step, if it is due
	Request  *rollout.Request // for the first step; nil for none

	View View
}

// A View displays a rollout. Calls are sequential, except that Warn may be called
// concurrently.
type View interface {
	rollout.Sink
	Show(rollout.Status) // after each step
	Say(text string)
	Warn(error) // a problem that does not end the rollout
}

// A Result is the result of a run.
type Result struct {
	Outcome   Outcome        `json:"outcome"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Revision  string         `json:"revision,omitempty"`
	Reason    string         `json:"reason,omitempty"`
	Status    rollout.Status `json:"status"`
	Settled   bool           `json:"-"` // there was nothing to do
}

// An Outcome says how a run ended.
type Outcome string

// The outcomes. After NotOver and Failed, the rollout can be resumed.
const (
	Promoted   Outcome = "promoted"
	RolledBack Outcome = "rolled back"
	NotOver    Outcome = "not over"
	Failed     Outcome = "error"
)

// A Rollout is a rollout under way. The caller of [Begin] must call Close.
type Rollout struct {
	Options
	ctx              context.Context
	stop             context.CancelCauseFunc
	status           rollout.Status
	analysis         rollout.Analysis
	adapter          *traffic.Adapter
	dispatcher       *notify.Dispatcher
	proxy            *traffic.Proxy // nil without one
	server           *http.Server   // of the proxy
	revision         string         // as last read
	promotedRevision string         // the revision that the proxy promoted; it gets all requests
	stepped          bool
	unsaved          error         // why the status could not be saved
	alert            rollout.Event // the last warning that caused an alert
	lastFailedCheck  rollout.Event // the last check that failed
}

// Begin loads the status and connects the ports of the analysis. If there is a
// proxy, it serves until Close. After an error, for example in the options, no
// rollout was changed.
func Begin(ctx context.Context, o Options) (*Rollout, error) {
	s, err := o.File.Load()
	if err != nil {
		return nil, err
	}
	if now := time.Now(); s.LastStep.After(now) { // the clock went backwards: the interval counts from now
		s.LastStep = now.UTC().Round(0)
	}
	if o.Request != nil {
		s.Request = o.Request
	}
	r := &Rollout{Options: o, status: s}
	r.ctx, r.stop = context.WithCancelCause(ctx)
	if err = r.connect(); err == nil {
		err = r.File.Save(s) // fails now rather than after the first step has acted
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Status returns the status after the last step.
func (r *Rollout) Status() rollout.Status { return r.status }

// connect creates the analysis and its ports.
func (r *Rollout) connect() error {
	adapter := &traffic.Adapter{Actions: r.Actions, Timeout: r.Timeout, Values: traffic.ValuesOf(r.Canary, r.status)}
	adapter.Values.Revision, r.adapter = r.Revision, adapter
	if err := adapter.Check(); err != nil {
		return err
	}
	r.analysis = rollout.Analysis{Canary: r.Canary, Traffic: adapter, Target: &target{adapter, r}, Metrics: r.Querier, Hooks: r.Caller, Sink: r}
	if r.Proxy != nil {
		if err := r.connectProxy(adapter); err != nil {
			return err
		}
	}
	if r.Request == nil || r.Request.Action != rollout.Abort { // an abort queries no metrics
		if err := r.connectMetrics(); err != nil {
			return err
		}
	}
	var err error
	r.dispatcher, err = notify.Start(r.ctx, notify.Config{
		Canary: r.Canary, Providers: r.Providers, EventURL: r.EventURL, Cluster: r.Cluster, Caller: r.Caller, Report: r.View.Warn,
	})
	if err == nil && r.proxy != nil {
		err = r.serve()
	}
	return err
}

// connectMetrics chooses the source of the metrics: the measurements of the proxy,
// if there is one and no metrics server is set, or else the Querier. It returns an
// error if a metric of the canary has no source.
func (r *Rollout) connectMetrics() error {
	measured := r.proxy != nil && r.Querier.Server == "" && r.Canary.Spec.MetricsServer == ""
	if measured {
		r.proxy.Next, r.analysis.Metrics = r.Querier, r.proxy
	}
	for _, m := range r.Canary.Spec.Analysis.Metrics {
		if measured && m.Builtin() {
			continue
		}
		if err := r.Querier.Check(r.Canary, m); err != nil {
			return fmt.Errorf("%s: %w", r.Canary, err)
		}
	}
	if measured {
		return nil
	}
	if err := r.Querier.Online(r.ctx, r.Canary); err != nil && r.ctx.Err() == nil { // a server may start later
		r.View.Warn(fmt.Errorf("metrics: %w", err))
	}
	return nil
}

// Run runs the rollout until it or the context of Begin has ended, and returns the
// result. An error is the reason of a result with outcome [Failed].
func (r *Rollout) Run() Result {
	r.dropEndedRequest() // a request for an ended rollout is not for the next one
	s := r.status
	if s.Phase == "" || s.Ended() && r.Again {
		r.status = rollout.Status{Phase: rollout.Initialized, Sequence: s.Sequence, PromotedURL: s.PromotedURL}
	}
	loop := rollout.Loop{Wait: r.wait, Save: r.save, Interval: r.Interval, Request: r.pendingRequest, Next: true}
	last, err := r.analysis.Run(r.ctx, r.status, loop)
	r.status = last
	r.dropEndedRequest()
	return r.result(err)
}

// result returns the result of a run that ended with err, or without an error.
func (r *Rollout) result(err error) Result {
	s := r.withPromotedURL(r.status)
	result := Result{Name: r.Canary.Metadata.Name, Namespace: r.Canary.Namespace(), Revision: s.AppliedSpec, Status: s, Settled: err == nil && !r.stepped}
	if err != nil && r.ctx.Err() != nil { // the end of the context caused err
		err = notOver("interrupted")
		if broken := r.proxyError(); broken != nil {
			err = broken
		} else if r.ctx.Err() == context.DeadlineExceeded {
			err = notOver(context.Cause(r.ctx).Error())
		}
	}
	if r.unsaved != nil { // also if the run was interrupted at the same time
		err = r.unsaved
	}
	reason, is := errors.AsType[notOver](err)
	switch {
	case is:
		result.Outcome, result.Reason = NotOver, string(reason)
	case err != nil:
		result.Outcome, result.Reason = Failed, err.Error()
	case result.Settled && r.revision == s.PromotedSpec:
		result.Outcome, result.Revision = Promoted, r.revision
	case s.Phase == rollout.Failed:
		result.Outcome, result.Reason = RolledBack, r.alert.Message
		if r.alert.Reason == "" && r.lastFailedCheck.Reason != "" {
			result.Reason += "; " + r.lastFailedCheck.Message
		}
		if !result.Settled {
			result.Reason = cmp.Or(result.Reason, s.Reason) // the previous run decided the rollback
		}
	default:
		result.Outcome = Promoted
	}
	return result
}

// Emit sends an event to the View and to all receivers.
func (r *Rollout) Emit(ctx context.Context, e rollout.Event) {
	switch {
	case e.Warning && (e.Alert == rollout.Warn || e.Alert == rollout.Error):
		r.alert = e
	case e.Warning && e.Reason != "":
		r.lastFailedCheck = e
	}
	e.Message = r.eventMessage(e)
	r.View.Emit(ctx, e)
	r.dispatcher.Emit(ctx, e)
}

// save saves the status to the file and shows it.
func (r *Rollout) save(s rollout.Status) error {
	s = r.withPromotedURL(s)
	if r.unsaved = r.File.Save(s); r.unsaved == nil {
		r.stepped, r.status, r.adapter.Values.Phase = true, s, s.Phase
		r.View.Show(s)
	}
	return r.unsaved
}

// interval returns the time between two steps.
func (r *Rollout) interval() time.Duration { return cmp.Or(r.Interval, r.Canary.Interval()) }

// wait waits until the next step is due. With Once, it returns an error after the
// first step, or if the first step is not due within a tenth of the interval.
func (r *Rollout) wait(ctx context.Context, interval time.Duration) error {
	due := time.Now().Add(interval).UTC().Format(time.RFC3339)
	switch {
	case r.Once && r.stepped:
		return notOver("")
	case r.Once && interval >= r.interval()/10:
		return notOver("nothing is done before " + due + ", when the next step is due")
	case !r.stepped:
		r.View.Say("the next step is due at " + due)
	}
	return retry.Sleep(ctx, interval)
}

// notOver is the reason why a run ended before its rollout; "" if the options asked
// for one step only.
type notOver string

func (e notOver) Error() string { return "not over: " + string(e) }

// pendingRequest returns the pending request for a rollout with status s. It removes a
// request that was accepted already or cannot be accepted.
func (r *Rollout) pendingRequest(s rollout.Status) *rollout.Request {
	request, err := Asked(r.File.Path)
	id := ""
	switch {
	case request == nil && err == nil:
		return nil
	case request != nil && s.Request != nil && s.Request.ID == request.ID:
		id = request.ID
	case request != nil:
		if err = s.Accepts(*request); err == nil {
			return request
		}
		id, err = request.ID, fmt.Errorf("what %s asked for is not done: %w", request.By, err)
	}
	if err := errors.Join(err, r.File.removeRequest(context.WithoutCancel(r.ctx), id)); err != nil {
		r.View.Warn(err)
	}
	return nil
}

// dropEndedRequest removes the request for a rollout that has ended.
func (r *Rollout) dropEndedRequest() {
	if r.status.Ended() {
		r.pendingRequest(r.status)
	}
}

// Wait waits until the context of Begin ends, or the proxy fails. The error says
// why the proxy cannot serve any more.
func (r *Rollout) Wait() error {
	<-r.ctx.Done()
	return r.proxyError()
}

func (r *Rollout) proxyError() error {
	if err := context.Cause(r.ctx); errors.Is(err, errProxy) {
		return err
	}
	return nil
}

// drainTimeout is the time limit for the delivery of pending events in Close.
const drainTimeout = 20 * time.Second

// Close shuts down the proxy, delivers pending events, and closes Caller and Querier.
func (r *Rollout) Close() {
	ctx := context.WithoutCancel(r.ctx)
	if r.server != nil {
		r.shutdown(ctx)
	}
	if r.dispatcher != nil {
		ctx, cancel := context.WithTimeout(ctx, drainTimeout)
		defer cancel()
		if err := r.dispatcher.Close(ctx); err != nil {
			r.View.Warn(err)
		}
	}
	if r.proxy != nil {
		r.proxy.Close()
	}
	r.Caller.Close()
	r.Querier.Close()
	r.stop(nil)
}
