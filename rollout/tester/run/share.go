package run

import (
	"context"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// Start starts the task in the background unless an equal run is under way.
// When the last equal run of the same checksum failed with FailOnError within
// Config.Verdict and that was not delivered, it returns that one, with its output,
// and starts nothing. The error is ErrBusy or
// ErrClosed.
func (d *Desk) Start(r Request, t Task) (api.Run, error) {
	p, err := d.claim(&r, t, false)
	if err != nil {
		return api.Run{}, err
	}
	return d.record(p.entry), nil
}

// Wait returns how the run ended, with its output: an equal one that is under
// way, one of the same checksum that ended within Config.Verdict and was not
// delivered, or a new one. When ctx
// ends first the run goes on, and its end waits for the next equal request: the
// error is the cause of ctx then, and the run is as it is now. Otherwise the
// error is ErrBusy or ErrClosed.
func (d *Desk) Wait(ctx context.Context, r Request, t Task) (api.Run, error) {
	if ctx.Err() != nil {
		return api.Run{}, context.Cause(ctx)
	}
	p, err := d.Join(r, t)
	if err != nil {
		return api.Run{}, err
	}
	r, t = Request{}, nil // of many callers that wait, only one run needs them
	select {
	case <-p.Ended():
	case <-ctx.Done():
	}
	state, ended := p.Run()
	if !ended {
		return state, context.Cause(ctx)
	}
	return state, nil
}

// Join is the part of Wait that does not wait: it returns the run that answers.
// The error is ErrBusy or ErrClosed.
func (d *Desk) Join(r Request, t Task) (*Pending, error) {
	p, err := d.claim(&r, t, true)
	if err != nil {
		return nil, err
	}
	if p.live != nil {
		p.ended = p.live.done
	} else {
		p.ended = make(chan struct{})
		close(p.ended)
	}
	return p, nil
}

// A Pending is a run that somebody waits for. It is small, for many may wait.
type Pending struct {
	desk  *Desk
	entry *entry
	live  *live // nil when it had ended before
	kept  bool
	ended chan struct{}
}

// Kept reports whether the run had ended before it was asked for: its verdict
// waited for this request.
func (p *Pending) Kept() bool { return p.kept }

// Ended is closed when the run has ended.
func (p *Pending) Ended() <-chan struct{} { return p.ended }

// Run returns the run, and whether it has ended: then it is as Wait returns it,
// else as it is now, without output.
func (p *Pending) Run() (state api.Run, hasEnded bool) {
	if p.live == nil {
		return p.desk.record(p.entry), true
	}
	select {
	case <-p.live.done:
		return p.live.final, true
	default:
	}
	p.desk.mu.Lock()
	defer p.desk.mu.Unlock()
	return p.entry.run, false
}

// claim returns the run that answers a request.
func (d *Desk) claim(r *Request, t Task, waits bool) (*Pending, error) {
	k := r.key()
	d.mu.Lock()
	defer d.mu.Unlock()
	e, err := d.shared(k, waits)
	if e == nil && err == nil {
		d.mu.Unlock()
		n := d.newEntry(k, r, t, waits) // masks, which takes a while
		d.mu.Lock()
		if e, err = d.shared(k, waits); e == nil && err == nil {
			e, err = n, d.admit(n)
		}
	}
	if err != nil {
		return nil, err
	}
	return &Pending{desk: d, entry: e, live: e.live, kept: e.ended()}, nil
}

// shared returns the run that another equal request started and that answers
// this one too; nil when there is none.
func (d *Desk) shared(k key, waits bool) (*entry, error) {
	if d.closed {
		return nil, ErrClosed
	}
	e := d.byKey[k]
	if e == nil {
		return nil, nil
	}
	age := d.config.Now().Sub(e.run.Ended).Abs() // less than none when the clock was put back
	if e.ended() && (!e.owes(waits) || age > d.config.Verdict) {
		return nil, nil
	}
	if waits && !e.run.Waits && !e.ended() {
		e.run.Waits = true
		d.changed(e)
	}
	d.config.Observe(e.run, true)
	return e, nil
}

// Deliver says that a caller has received how a run ended. It does nothing for a
// run that has not ended, or was delivered before.
func (d *Desk) Deliver(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.byID[id]
	if e == nil || !e.ended() || e.run.Delivered {
		return
	}
	e.run.Delivered = true
	if e.saved {
		d.release(e)
	}
	d.changed(e)
}
