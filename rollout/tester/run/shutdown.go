package run

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// Shutdown refuses new requests, ends the runs under way, records them as
// Stopped and tells who waits for them. It returns when their tasks have
// returned. When ctx ends before, it returns an error that names those which
// have not: they are recorded as Stopped all the same. No other method that
// starts or changes something may be called afterwards.
func (d *Desk) Shutdown(ctx context.Context) error {
	d.mu.Lock()
	first := !d.closed
	d.closed = true
	queue := d.queue
	d.queue = nil
	d.mu.Unlock()
	if !first {
		select {
		case <-d.gone:
			return d.end
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	d.stop(stopped{})
	for _, e := range queue {
		d.finish(e, e.live, outcome{state: api.Stopped, reason: stopped{}.Error()})
	}
	returned := make(chan struct{})
	go func() {
		d.tasks.Wait()
		close(returned)
	}()
	select {
	case <-returned:
	case <-ctx.Done():
		d.end = d.abandon()
	}
	close(d.ended)
	d.watching.Wait()
	d.history.close()
	close(d.gone)
	return d.end
}

// abandon records the runs whose tasks do not return.
func (d *Desk) abandon() error {
	d.mu.Lock()
	var left []*entry
	for _, e := range d.all {
		if !e.ended() {
			left = append(left, e)
		}
	}
	d.mu.Unlock()
	var names []string
	for _, e := range left {
		d.finish(e, e.live, outcome{state: api.Stopped, reason: stopped{}.Error() + ", and the task did not end in time"})
		names = append(names, fmt.Sprintf("%s of %s/%s (%s)", e.run.Type, e.run.Namespace, e.run.Name, e.run.ID))
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("shut down: %d of the runs did not end in time: %s", len(names), strings.Join(names, ", "))
}
