package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/api"
)

const (
	maxWait   = 10 * time.Minute // for the end of a run
	maxReason = 1000             // bytes of why somebody wants something
	maxActor  = 200              // bytes of who does
)

// target returns the object of the path, which the caller may change.
func (c *apiCall) target(parameters ...string) (source.Reference, serve.View, map[string]string, error) {
	values, err := c.query(parameters...)
	if err != nil {
		return source.Reference{}, serve.View{}, nil, err
	}
	ref, v, err := c.object()
	if err == nil || statusOf(err) == http.StatusNotFound {
		err = cmp.Or(c.grant.Change(ref), err)
	}
	return ref, v, values, err
}

// change reads who wants something and why. The credential says who, where there is one.
func (c *apiCall) change() (api.Change, error) {
	var why api.Change
	if err := c.bodies.JSON(c.w, c.r, &why); err != nil {
		return why, err
	}
	switch {
	case len(why.By) > maxActor:
		return why, httpserve.Refuse(http.StatusBadRequest, "by: longer than %d bytes", maxActor)
	case len(why.Reason) > maxReason:
		return why, httpserve.Refuse(http.StatusBadRequest, "reason: longer than %d bytes", maxReason)
	}
	why.By, why.Reason = redact.String(cmp.Or(c.grant.Actor, why.By)), redact.String(why.Reason)
	return why, nil
}

// reconcile asks for a run, and may wait for its end.
func (c *apiCall) reconcile() error {
	ref, v, values, err := c.target("wait")
	if err != nil {
		return err
	}
	wait, err := span(values, "wait", maxWait)
	if err != nil {
		return err
	}
	why, err := c.change()
	if err != nil {
		return err
	}
	run, err := c.Controller.Request(ref, serve.Request)
	if err != nil {
		return err
	}
	c.changed(v.Object, "ReconcileRequested", why)
	if wait > 0 {
		ctx, end := c.streaming(c.r.Context())
		defer end()
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		v, err := c.Controller.Wait(ctx, ref, run)
		if err == nil {
			one, err := c.detail(v)
			if err != nil {
				return err
			}
			return c.reply(one)
		}
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return httpserve.JSON(c.w, http.StatusAccepted, api.Ticket{Run: run})
}

func (c *apiCall) suspend() error {
	ref, v, _, err := c.target()
	if err != nil {
		return err
	}
	why, err := c.change()
	if err != nil {
		return err
	}
	err = c.Controller.Suspend(ref, source.Suspension{By: why.By, Reason: why.Reason, Since: time.Now()})
	if err != nil {
		return err
	}
	c.changed(v.Object, "Suspended", why)
	return c.current(ref)
}

func (c *apiCall) resume() error {
	ref, v, _, err := c.target()
	if err != nil {
		return err
	}
	why, err := c.change()
	if err != nil {
		return err
	}
	if err := c.Controller.Resume(ref); err != nil {
		return err
	}
	did := "Resumed"
	if v.Suspension == nil { // nothing but a run came of it
		did = "ReconcileRequested"
	}
	c.changed(v.Object, did, why)
	return c.current(ref)
}

// current answers with an object as it is now.
func (c *apiCall) current(ref source.Reference) error {
	v, err := c.Controller.View(ref)
	if err != nil {
		return err
	}
	one, err := c.detail(v)
	if err != nil {
		return err
	}
	return c.reply(one)
}

// said are the messages of events about what callers did.
var said = map[string]string{
	"ReconcileRequested": "a run was requested",
	"Suspended":          "suspended",
	"Resumed":            "resumed",
}

// changed logs and keeps what a caller did.
func (c *apiCall) changed(obj source.Object, reason string, why api.Change) {
	message := said[reason]
	if why.By != "" {
		message += " by " + why.By
	}
	if why.Reason != "" {
		message += ": " + why.Reason
	}
	c.logChange(obj, reason, why, c.r)
	if c.Journal != nil {
		c.Journal.Append(source.Event{
			InvolvedObject: source.Involved(obj), Severity: "info", Timestamp: time.Now(),
			Message: message, Reason: reason, Controller: "headgate",
		})
	}
}
