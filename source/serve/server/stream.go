package server

import (
	"context"
	"encoding/json"
	"errors"
	"hash/maphash"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/access"
	"github.com/headgate-io/headgate/source/serve/api"
	"github.com/headgate-io/headgate/source/serve/journal"
)

// errStreamed is the end of a stream: there is nothing more to answer.
var errStreamed = errors.New("the stream has ended")

// streaming returns a context that also ends with the server.
func (s *Server) streaming(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	stop := make(chan struct{})
	var stopped sync.WaitGroup
	stopped.Go(func() {
		select {
		case <-s.ending:
			cancel()
		case <-stop:
		}
	})
	return ctx, sync.OnceFunc(func() { close(stop); stopped.Wait(); cancel() })
}

// An eventStream is an answer of server-sent events. It ends when its reader
// is gone or takes nothing, the server ends, or the caller is not known any more.
type eventStream struct {
	*apiCall
	end context.CancelFunc // of the context of the stream

	mu      sync.Mutex // guards the rest, and what is written
	out     httpserve.Stream
	current access.Grant
}

// stream answers with the events that send tells, until ctx ends.
func (c *apiCall) stream(send func(ctx context.Context, s *eventStream) error) error {
	out := httpserve.StreamEvents(c.w)
	if c.r.Method == http.MethodHead {
		return nil
	}
	ctx, stop := c.streaming(c.r.Context())
	defer stop()
	ctx, end := context.WithCancel(ctx)
	s := &eventStream{apiCall: c, end: end, out: out, current: c.grant}
	var idle sync.WaitGroup
	defer idle.Wait()
	defer end()
	s.write(": here it begins\n\n")
	idle.Go(func() { s.keepAlive(ctx) })
	if err := send(ctx, s); err != nil && ctx.Err() == nil {
		level := slog.LevelWarn
		if errors.Is(err, serve.ErrBehind) { // a slow client connects again
			level = slog.LevelInfo
		}
		c.logger().Log(ctx, level, "a stream broke", "path", clean(c.r.URL.Path), "error", clean(err.Error()))
	}
	return errStreamed
}

// keepAlive writes comments, so that a proxy knows that the stream is wanted, and
// ends the stream of a caller that is not known any more.
func (s *eventStream) keepAlive(ctx context.Context) {
	every := s.Keepalive
	if every <= 0 {
		every = 15 * time.Second
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if s.may(func(access.Grant) error { return nil }) {
				s.write(":\n\n")
			}
		}
	}
}

// may reports whether the caller may do something now. The stream of one that is
// not known any more ends.
func (s *eventStream) may(do func(access.Grant) error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	grant, err := s.Guard.Renew(s.current)
	if err != nil {
		s.end()
		return false
	}
	s.current = grant
	return do(grant) == nil
}

// sees reports whether the caller may read of an object now.
func (s *eventStream) sees(ref source.Reference) bool {
	return s.may(func(g access.Grant) error { return g.Read(ref) })
}

// tell writes one event; 0 is the ID of one that has none.
func (s *eventStream) tell(id int64, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	head := "data: "
	if id > 0 {
		head = "id: " + strconv.FormatInt(id, 10) + "\ndata: "
	}
	s.write(head + string(text) + "\n\n")
	return nil
}

// write writes a text. The stream of a reader that does not take it ends.
func (s *eventStream) write(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.out.Write([]byte(text)); err != nil {
		s.end()
	}
}

// watch streams the sources that the caller may read, and their changes. One
// that the filter selects no more is told as gone.
func (c *apiCall) watch() error {
	ref, ready, err := c.selection()
	if err != nil {
		return err
	}
	return c.stream(func(ctx context.Context, s *eventStream) error {
		w := &watch{eventStream: s, ref: ref, ready: ready, seed: maphash.MakeSeed(), told: make(map[uint64]struct{}), pending: make(map[uint64]struct{})}
		for _, v := range c.Controller.Views() {
			w.pending[w.mark(source.ReferenceTo(v.Object))] = struct{}{}
		}
		w.synced()
		return c.Controller.Watch(ctx, func(v serve.View) {
			if ctx.Err() == nil {
				w.changed(v)
			}
		})
	})
}

// A watch is a stream of notices. It knows objects by hashes, which take some 15
// bytes for each of them.
type watch struct {
	*eventStream
	ref   source.Reference // that are selected
	ready string

	seed    maphash.Seed
	told    map[uint64]struct{} // objects that the client knows
	pending map[uint64]struct{} // that are told before the client is told that all were; nil afterwards
}

func (w *watch) mark(ref source.Reference) uint64 { return maphash.Comparable(w.seed, ref) }

// changed tells that an object changed.
func (w *watch) changed(v serve.View) {
	ref := source.ReferenceTo(v.Object)
	mark := w.mark(ref)
	_, told := w.told[mark]
	switch selected := w.ref.Selects(ref) && (w.ready == "" || w.ready == readyOf(v).Status) && v.Phase != serve.Gone; {
	case selected && w.sees(ref):
		one := Summary(v)
		w.told[mark] = struct{}{}
		w.tell(0, api.Notice{Source: &one})
	case told:
		delete(w.told, mark)
		w.tell(0, api.Notice{Gone: &api.Gone{Kind: source.Involved(v.Object).Kind, Namespace: ref.Namespace, Name: ref.Name}})
	}
	delete(w.pending, mark)
	w.synced()
}

// synced tells once that all objects were told.
func (w *watch) synced() {
	if w.pending != nil && len(w.pending) == 0 {
		w.pending = nil
		w.tell(0, api.Notice{Synced: true})
	}
}

const (
	defaultEvents = 100
	maxEvents     = 1000
)

// events answers with events, the oldest first, or follows them.
func (c *apiCall) events() error {
	values, err := c.query(append([]string{"severity", "since", "after", "limit", "follow"}, filterNames...)...)
	if err != nil {
		return err
	}
	q, err := c.eventQuery(values)
	if err != nil {
		return err
	}
	follow, err := strconv.ParseBool(values["follow"])
	switch {
	case err != nil && values["follow"] != "":
		return impossible("follow", values["follow"], "true or false")
	case c.Journal == nil:
		return httpserve.Refuse(http.StatusNotFound, "this server keeps no events")
	case follow:
		return c.stream(func(ctx context.Context, s *eventStream) error {
			q.Select = func(e *journal.Entry) bool { return s.sees(involved(e)) }
			return c.Journal.Follow(ctx, q, func(e journal.Entry) error {
				if err := s.tell(e.ID, api.Event{ID: e.ID, Event: e.Event}); err != nil {
					return err
				}
				return ctx.Err()
			})
		})
	}
	q.Select = func(e *journal.Entry) bool { return c.grant.Read(involved(e)) == nil }
	entries, err := c.Journal.Read(c.r.Context(), q)
	if err != nil {
		return err
	}
	list := []api.Event{} // [] and not null
	for _, e := range entries {
		list = append(list, api.Event{ID: e.ID, Event: e.Event})
	}
	return c.reply(struct {
		Events []api.Event `json:"events"`
	}{list})
}

// eventQuery reads which events are wanted.
func (c *apiCall) eventQuery(values map[string]string) (q journal.Query, err error) {
	if q.Object, err = filter(values); err != nil {
		return q, err
	}
	switch q.Severity = values["severity"]; q.Severity {
	case "", "trace", "info", "error":
	default:
		return q, impossible("severity", q.Severity, "trace, info or error")
	}
	if text := values["since"]; text != "" {
		if q.Since, err = time.Parse(time.RFC3339, text); err != nil {
			return q, impossible("since", text, "a time such as 2026-01-31T12:00:00Z")
		}
	}
	after := values["after"]
	if id := c.r.Header.Get("Last-Event-ID"); id != "" {
		after = id // what the stream before ended with
	}
	if after != "" {
		if q.After, err = strconv.ParseInt(after, 10, 64); err != nil || q.After < 0 {
			return q, impossible("after", after, "the number of an event")
		}
	}
	otherwise := defaultEvents
	if after != "" && values["follow"] != "" {
		otherwise = 0 // none is to be left out
	}
	q.Limit, err = number(values, "limit", 1, maxEvents, otherwise)
	return q, err
}

// involved returns the object of an event; the zero Reference when there is
// none: then only callers that may read everything are told.
func involved(e *journal.Entry) source.Reference {
	o := e.InvolvedObject
	ref, err := source.ParseReference(strings.Join([]string{o.Kind, o.Namespace, o.Name}, "/"))
	if err != nil {
		return source.Reference{}
	}
	return ref
}
