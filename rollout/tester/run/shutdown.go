package run

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// A phase of the end of a desk happens once.
type phase struct {
	begun bool          // guarded by the desk's lock
	over  chan struct{} // closed when err is set
	err   error
}

// once does the phase, or waits until who does it is done. The error is that of
// the phase, or the cause of ctx when that ended before.
func (d *Desk) once(ctx context.Context, p *phase, do func() error) error {
	d.mu.Lock()
	first := !p.begun
	p.begun = true
	d.mu.Unlock()
	if first {
		p.err = do()
		close(p.over)
	}
	select {
	case <-p.over:
		return p.err
	default:
	}
	select {
	case <-p.over:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stop refuses new requests, ends the runs under way, records them as Stopped
// and tells who waits for them. It returns when their tasks have returned. When
// ctx ends before, it returns an error that names those which have not: they are
// recorded as Stopped all the same. What is delivered afterwards is recorded
// until Shutdown.
func (d *Desk) Stop(ctx context.Context) error {
	return d.once(ctx, &d.stopping, func() error { return d.stopRuns(ctx) })
}

// Shutdown is Stop, and the end of the history. No other method that starts or
// changes something may be called afterwards.
func (d *Desk) Shutdown(ctx context.Context) error {
	err := d.Stop(ctx)
	select {
	case <-d.stopping.over:
	default:
		return err // who stops the runs goes on
	}
	return d.once(ctx, &d.closing, func() error {
		d.watching.Wait()
		return errors.Join(err, d.history.close())
	})
}

func (d *Desk) stopRuns(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	queue := leftover(d.queue)
	d.queue = nil
	d.mu.Unlock()
	d.stop(stopped{})
	for _, q := range queue {
		d.finish(q.e, q.l, q.s, outcome{state: api.Stopped, reason: stopped{}.Error()})
	}
	returned := make(chan struct{})
	go func() {
		d.tasks.Wait()
		close(returned)
	}()
	var err error
	select {
	case <-returned:
	case <-ctx.Done():
		err = d.abandon()
	}
	close(d.ended)
	return err
}

// A left is a run that has not ended.
type left struct {
	e *entry
	l *live
	s *sink
}

func leftover(all []*entry) (list []left) {
	for _, e := range all {
		if !e.ended() {
			list = append(list, left{e, e.live, e.live.sink})
		}
	}
	return list
}

// abandon records the runs whose tasks do not return.
func (d *Desk) abandon() error {
	d.mu.Lock()
	list := leftover(d.all)
	d.mu.Unlock()
	var names []string
	for _, q := range list {
		reason := stopped{}.Error() + ", and the task did not end in time"
		if d.finish(q.e, q.l, q.s, outcome{state: api.Stopped, reason: reason}) {
			names = append(names, fmt.Sprintf("%s of %s/%s (%s)", q.e.run.Type, q.e.run.Namespace, q.e.run.Name, q.e.run.ID))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("shut down: %d of the runs did not end in time: %s", len(names), strings.Join(names, ", "))
}
