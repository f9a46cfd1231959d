package run

import (
	"context"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// Bounds of a watch: changes that are ready to be taken, and runs that changed
// since. Of more, the longest changed are left out.
const (
	watchReady   = 16
	watchChanged = 1000
)

// A watch is somebody who wants to know what changes. The desk's lock guards it.
type watch struct {
	changed []string // IDs, each once, in the order of their first change
	wake    chan struct{}
}

// Watch yields runs, without output, as they become queued, running, final and
// delivered. To who is slow only the last change of a run is told. The channel
// is closed when ctx has ended, or the desk is shut down.
func (d *Desk) Watch(ctx context.Context) <-chan api.Run {
	w, out := &watch{wake: make(chan struct{}, 1)}, make(chan api.Run, watchReady)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		close(out)
		return out
	}
	d.watches[w] = true
	d.watching.Go(func() { d.tell(ctx, w, out) })
	return out
}

// tell passes on what changes until ctx or the desk ends.
func (d *Desk) tell(ctx context.Context, w *watch, out chan<- api.Run) {
	defer close(out)
	defer func() {
		d.mu.Lock()
		delete(d.watches, w)
		d.mu.Unlock()
	}()
	for {
		r, ok := d.next(w)
		if !ok {
			select {
			case <-w.wake:
				continue
			case <-ctx.Done():
				return
			case <-d.ended:
			}
			if r, ok = d.next(w); !ok {
				return
			}
		}
		select {
		case out <- r:
			continue
		default:
		}
		select {
		case out <- r:
		case <-ctx.Done():
			return
		case <-d.ended:
			return
		}
	}
}

// next takes the run that changed first.
func (d *Desk) next(w *watch) (api.Run, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(w.changed) > 0 {
		id := w.changed[0]
		w.changed = w.changed[1:]
		if e := d.byID[id]; e != nil {
			return e.run, true
		}
	}
	return api.Run{}, false
}

// changed tells the history and who watches of a change of e.
func (d *Desk) changed(e *entry) {
	d.history.put(e)
	for w := range d.watches {
		w.note(e.run.ID)
	}
}

func (w *watch) note(id string) {
	for _, known := range w.changed {
		if known == id {
			return
		}
	}
	if len(w.changed) == watchChanged {
		w.changed = w.changed[1:]
	}
	w.changed = append(w.changed, id)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
