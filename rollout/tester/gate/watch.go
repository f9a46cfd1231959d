package gate

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// maxPending is how many gates a slow watcher may have to be told of; with more
// it is given up.
const maxPending = 4096

// watched is who watches.
type watched struct {
	some     atomic.Int32 // number of watchers
	mu       sync.Mutex
	watchers map[*watcher]struct{}
}

// A watcher has the keys that it was not told of yet, in order.
type watcher struct {
	wake    chan struct{}
	mu      sync.Mutex
	keys    []api.Key
	pending map[api.Key]struct{}
	behind  bool // too far
}

// Watch sends gates that change, or that somebody begins or ceases to wait at,
// until ctx ends or the book is closed; then the channel is closed. Who is slow
// gets the latest state of a gate once, and holds up nobody; the channel of who
// is more than 4096 gates behind is closed too, for it has missed something.
func (b *Book) Watch(ctx context.Context) <-chan api.Gate {
	out := make(chan api.Gate)
	w := &watcher{wake: make(chan struct{}, 1), pending: map[api.Key]struct{}{}}
	b.watched.add(w, 1)
	b.running.Add(1)
	go func() {
		defer b.running.Done()
		defer close(out)
		defer b.watched.add(w, -1)
		for !b.over(ctx) {
			keys, behind := w.take()
			if behind {
				return
			}
			for _, k := range keys {
				if !b.send(ctx, out, b.Gate(k)) {
					return
				}
			}
			select {
			case <-w.wake:
			case <-ctx.Done():
			case <-b.ended:
			}
		}
	}()
	return out
}

func (b *Book) send(ctx context.Context, out chan<- api.Gate, g api.Gate) bool {
	select {
	case out <- g:
		return true
	case <-ctx.Done():
	case <-b.ended:
	}
	return false
}

// add adds a watcher, or with -1 removes it.
func (w *watched) add(one *watcher, n int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watchers == nil {
		w.watchers = map[*watcher]struct{}{}
	}
	w.some.Add(n)
	if n > 0 {
		w.watchers[one] = struct{}{}
	} else {
		delete(w.watchers, one)
	}
}

// notify tells all watchers of a gate.
func (w *watched) notify(k api.Key) {
	if w.some.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.watchers {
		one.add(k)
	}
}

func (w *watcher) add(k api.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, found := w.pending[k]; found || w.behind {
		return
	}
	if len(w.keys) >= maxPending {
		w.keys, w.pending, w.behind = nil, nil, true
	} else {
		w.keys = append(w.keys, k)
		w.pending[k] = struct{}{}
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watcher) take() (keys []api.Key, behind bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys = w.keys
	if !w.behind {
		w.keys, w.pending = nil, map[api.Key]struct{}{}
	}
	return keys, w.behind
}
