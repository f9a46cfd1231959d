package run

import (
	"context"
	"errors"
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
	queue := leftover(d.queue)
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
	for _, q := range queue {
		d.finish(q.e, q.l, q.s, outcome{state: api.Stopped, reason: stopped{}.Error()})
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
	d.end = errors.Join(d.end, d.history.close())
	close(d.gone)
	return d.end
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
