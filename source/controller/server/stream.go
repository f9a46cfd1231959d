package server

import (
	"context"
	"encoding/json"
	"errors"
	"hash/maphash"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller"
	"github.com/headgate-io/headgate/source/controller/api"
)

// errStreamed is the end of a stream: there is nothing more to answer.
var errStreamed = errors.New("the stream has ended")

// streaming returns a context that also ends with the server.
func (s *Server) streaming(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-s.ending():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); <-stopped }
}

// An eventStream is an answer of server-sent events. It ends when its reader
// is gone or takes nothing, the server ends, or the caller is not known any more.
type eventStream struct {
	*apiCall
	out *answer.Stream
	end context.CancelFunc

	mu sync.Mutex // of the grant
}

// stream answers with the events that send tells, until ctx ends.
func (c *apiCall) stream(send func(ctx context.Context, s *eventStream) error) error {
	answer.EventHeader(c.w.Header())
	if c.r.Method == http.MethodHead {
		return nil
	}
	ctx, end := c.streaming(c.r.Context())
	s := &eventStream{apiCall: c, out: answer.NewStream(c.w), end: end}
	defer s.out.Close()
	var idle sync.WaitGroup
	defer idle.Wait()
	defer end()
	if err := s.out.Send([]byte(": here it begins\n\n")); err != nil {
		return errStreamed
	}
	idle.Go(func() { s.keepAlive(ctx) })
	if err := send(ctx, s); err != nil && ctx.Err() == nil {
		level := slog.LevelWarn
		if errors.Is(err, controller.ErrBehind) { // who was too slow comes again
			level = slog.LevelInfo
		}
		c.logger().Log(ctx, level, "a stream broke", "path", clean(c.r.URL.Path), "error", clean(err.Error()))
	}
	return errStreamed
}

// keepAlive writes comments, so that whoever is between knows the stream is
// wanted, and ends the stream of one who is not known any more.
func (s *eventStream) keepAlive(ctx context.Context) {
	every := s.Keepalive
	if every <= 0 {
		every = defaultKeepalive
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if !s.known() || s.out.Send([]byte(":\n\n")) != nil {
				s.end()
			}
		}
	}
}

// known reports whether the caller is still known, and sees what it may do now.
func (s *eventStream) known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	grant, err := s.Guard.Renew(s.grant)
	s.grant = grant
	return err == nil
}

// may reports whether the caller may read of an object now. The stream of one
// who is not known any more ends.
func (s *eventStream) may(ref source.Reference) bool {
	if !s.known() {
		s.end()
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grant.Read(ref) == nil
}

// tell writes one event; 0 is the ID of one that has none.
func (s *eventStream) tell(id int64, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var event []byte
	if id > 0 {
		event = append(strconv.AppendInt(append(event, "id: "...), id, 10), '\n')
	}
	event = append(append(append(event, "data: "...), text...), "\n\n"...)
	if _, err := s.out.Write(event); err != nil {
		s.end()
	}
	return nil
}

// watch streams the sources that the caller may read, and their changes. One
// that the filter selects no more is told as gone.
func (c *apiCall) watch() error {
	values, err := c.query(append([]string{"ready"}, filterNames...)...)
	if err != nil {
		return err
	}
	ref, err := filter(values)
	if err != nil {
		return err
	}
	ready, err := readiness(values)
	if err != nil {
		return err
	}
	return c.stream(func(ctx context.Context, s *eventStream) error {
		w := &watch{eventStream: s, ref: ref, ready: ready, seed: maphash.MakeSeed(), told: marks{}}
		if len(c.Controller.Views()) == 0 {
			w.synced()
		}
		return c.Controller.Watch(ctx, func(v controller.View) {
			if ctx.Err() == nil {
				w.changed(v)
			}
		})
	})
}

// A watch is a stream of notices.
type watch struct {
	*eventStream
	ref   source.Reference // that are selected
	ready string

	seed    maphash.Seed
	told    marks // objects that the caller knows
	pending marks // that it is to be told of before all were; nil before the first
	done    bool  // all were told
}

// marks are objects by hash: for each of 10,000 some 15 bytes, while somebody
// watches, and not 100.
type marks map[uint64]struct{}

func (w *watch) mark(ref source.Reference) uint64 { return maphash.Comparable(w.seed, ref) }

// changed tells that an object changed.
func (w *watch) changed(v controller.View) {
	ref := source.ReferenceTo(v.Object)
	mark := w.mark(ref)
	_, told := w.told[mark]
	switch selected := w.ref.Selects(ref) && (w.ready == "" || w.ready == readyOf(v).Status) && v.Phase != controller.Gone; {
	case selected && w.may(ref):
		one := Summary(v)
		w.told[mark] = struct{}{}
		w.tell(0, api.Notice{Source: &one})
	case told:
		delete(w.told, mark)
		w.tell(0, api.Notice{Gone: &api.Gone{Kind: source.Involved(v.Object).Kind, Namespace: ref.Namespace, Name: ref.Name}})
	}
	if w.done {
		return
	}
	if w.pending == nil {
		w.pending = marks{}
		for _, v := range w.Controller.Views() {
			w.pending[w.mark(source.ReferenceTo(v.Object))] = struct{}{}
		}
	}
	delete(w.pending, mark)
	if len(w.pending) == 0 {
		w.synced()
	}
}

// synced tells that all objects were told.
func (w *watch) synced() {
	w.done, w.pending = true, nil
	w.tell(0, api.Notice{Synced: true})
}
