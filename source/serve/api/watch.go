package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/internal/call"
	"github.com/headgate-io/headgate/internal/retry"
)

// Times between two attempts to connect, of which half is left to chance.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 15 * time.Second
)

// Watch calls each with every source that a filter selects, once with Synced
// when all were told, and then with every change. It connects again when the
// connection breaks, until ctx ends, which is no error, or each returns an
// error, which it returns. After that it tells what has changed meanwhile and
// what is gone, and nothing twice. What the server refuses ends it, and so does
// a server that cannot be reached in the first place.
func (c *Client) Watch(ctx context.Context, f Filter, each func(Notice) error) error {
	w := watch{each: each, told: map[Gone]uint64{}, seed: maphash.MakeSeed()}
	return c.follow(ctx, "watch sources", func(begun func()) error {
		w.seen = map[Gone]bool{}
		r := call.Request{Path: "watch", Query: f.query()}
		return c.server().Stream(ctx, r, begun, func(_ string, data []byte) error { return w.take(data) })
	})
}

// A watch remembers what was told.
type watch struct {
	each   func(Notice) error
	told   map[Gone]uint64 // hash of the last notice of each source
	seen   map[Gone]bool   // on this connection, until all were told; nil then
	synced bool            // the caller knows
	seed   maphash.Seed
}

// take reads one notice and tells it, unless it was told.
func (w *watch) take(data []byte) error {
	var n Notice
	if err := json.Unmarshal(data, &n); err != nil {
		return fmt.Errorf("notice: %w", err)
	}
	switch {
	case n.Source != nil:
		of := Gone{n.Source.Kind, n.Source.Namespace, n.Source.Name}
		sum := maphash.Bytes(w.seed, bytes.TrimSpace(data))
		if w.seen != nil {
			w.seen[of] = true
		}
		if last, known := w.told[of]; known && last == sum {
			return nil
		}
		w.told[of] = sum
	case n.Gone != nil:
		if _, known := w.told[*n.Gone]; !known {
			return nil
		}
		delete(w.told, *n.Gone)
	case n.Synced:
		return w.sync()
	default:
		return nil // of a later version
	}
	return w.tell(n)
}

// sync tells what is gone since the connection before.
func (w *watch) sync() error {
	for of := range w.told {
		if w.seen == nil || w.seen[of] {
			continue
		}
		delete(w.told, of)
		if err := w.tell(Notice{Gone: &of}); err != nil {
			return err
		}
	}
	w.seen = nil
	if w.synced {
		return nil
	}
	w.synced = true
	return w.tell(Notice{Synced: true})
}

func (w *watch) tell(n Notice) error { return enough(w.each(n)) }

// FollowEvents calls each with the events that a query selects, and then with
// those that come. It connects again as Watch does, loses none that the server
// still has, and tells none twice.
func (c *Client) FollowEvents(ctx context.Context, q EventQuery, each func(Event) error) error {
	last, connected := q.After, false
	return c.follow(ctx, "follow events", func(begun func()) error {
		r := call.Request{Path: "events", Query: q.query()}
		if connected { // all since are wanted, and not the newest of them
			r.Query.Del("limit")
			r.Query.Set("after", strconv.FormatInt(last, 10))
		}
		r.Query.Set("follow", "true")
		return c.server().Stream(ctx, r, func() { connected = true; begun() }, func(_ string, data []byte) error {
			var e Event
			if err := json.Unmarshal(data, &e); err != nil {
				return fmt.Errorf("event: %w", err)
			}
			if e.ID != 0 && e.ID <= last { // 0 says that some were missed
				return nil
			}
			last = max(last, e.ID)
			return enough(each(e))
		})
	})
}

// follow calls connect, which follows a stream, again and again. Begun is to be
// called when there is a stream.
func (c *Client) follow(ctx context.Context, operation string, connect func(begun func()) error) error {
	ever, lost := false, false
	tell := func(err error) {
		if lost = err != nil; c.Lost != nil {
			c.Lost(err)
		}
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := connect(func() {
			ever, pause = true, firstPause/2
			if lost {
				tell(nil)
			}
		})
		own := (*own)(nil)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &own):
			return own.error
		case !ever || final(err):
			return c.advised(c.server().Failed(operation+" at "+c.place(), err))
		case !lost:
			tell(c.server().Failed(operation+" at "+c.place(), err))
		}
		if retry.Sleep(ctx, pause/2+rand.N(pause)) != nil {
			return nil
		}
	}
}

// final reports whether another attempt ends in the same way.
func final(err error) bool {
	if p := (*Problem)(nil); errors.As(err, &p) {
		return p.Status < http.StatusInternalServerError && p.Status != http.StatusTooManyRequests
	}
	return errors.Is(err, call.ErrNoStream)
}

// An own error is one of the caller.
type own struct{ error }

// enough marks an error of the caller; nil stays nil.
func enough(err error) error {
	if err == nil {
		return nil
	}
	return &own{err}
}
