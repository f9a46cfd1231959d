package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/api"
	"github.com/headgate-io/headgate/source/serve/hook"
)

const maxLogText = 1000 // bytes of a text that is not the server's own

// logger returns the log of a server.
func (s *Server) logger() *slog.Logger {
	if s.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Log
}

// clean returns a text that a request or an upstream chose, as logs may have it.
func clean(text string) string {
	return shorten(redact.String(shorten(text, 4*maxLogText)), maxLogText)
}

// ObserveRun counts, logs and remembers a run; it is for serve.Controller Observe.
func (s *Server) ObserveRun(r serve.Run) {
	m, kind, outcome := &s.started().metrics, r.Object.Kind, r.Result.Outcome
	m.runs.WithLabelValues(kind).Observe(r.Took.Seconds())
	m.late.WithLabelValues(kind).Observe(max(0, r.Started.Sub(r.Due).Seconds()))
	m.outcomes.WithLabelValues(kind, string(r.Trigger), string(outcome)).Inc()
	revision, size := "", int64(0)
	if a := r.Artifact; a != nil {
		revision, size = a.Revision, a.Size
	}
	if outcome == source.Stored {
		m.stored.WithLabelValues(kind).Add(float64(size))
		fetched := r.Result.Report.Bytes
		if fetched == 0 {
			fetched = size // one file as it is
		}
		m.fetched.WithLabelValues(kind).Add(float64(fetched))
	}
	notable, recovered := s.history.add(r, revision)
	if !notable {
		revision = ""
	}
	s.logRun(r, revision, recovered)
}

// ObserveDelivery counts an event that was posted to a receiver: an error is
// that of the first attempt, or with lost the last.
func (s *Server) ObserveDelivery(err error, lost bool) {
	result := "delivered"
	switch {
	case lost:
		result = "lost"
	case err != nil:
		result = "failed"
	}
	s.started().metrics.told.WithLabelValues(result).Inc()
}

// ObserveHook counts and logs a call of a webhook; it is for hook.Receiver Observe.
func (s *Server) ObserveHook(o hook.Outcome) {
	s.started().metrics.hooks.WithLabelValues(o.Provider, strconv.Itoa(o.Status)).Inc()
	level := slog.LevelInfo
	if o.Status >= http.StatusBadRequest {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{slog.Int("status", o.Status), slog.String("reason", clean(o.Reason))}
	if o.Object != (source.Reference{}) {
		attrs = append(attrs, slog.String("object", clean(o.Object.String())))
	}
	if o.Provider != "" {
		attrs = append(attrs, slog.String("provider", o.Provider))
	}
	s.logger().LogAttrs(context.Background(), level, "webhook", attrs...)
}

// levels say how loud a run is; those that are not here are errors.
var levels = map[source.Outcome]slog.Level{
	source.Stored:    slog.LevelInfo,
	source.Unchanged: slog.LevelDebug,
	source.Suspended: slog.LevelDebug,
	source.Waiting:   slog.LevelWarn,
	source.Failed:    slog.LevelWarn,
	source.Stalled:   slog.LevelError,
}

// logRun logs a run; one that recovered is told even if nothing changed.
func (s *Server) logRun(r serve.Run, revision string, recovered bool) {
	level, known := levels[r.Result.Outcome]
	if !known {
		level = slog.LevelError
	}
	said := "run"
	if recovered {
		level, said = slog.LevelInfo, "recovered"
	}
	log := s.logger()
	if !log.Enabled(context.Background(), level) {
		return
	}
	spelled := r.Object
	spelled.Kind = r.Kind
	attrs := []slog.Attr{
		slog.String("object", spelled.String()), slog.String("trigger", string(r.Trigger)), slog.String("outcome", string(r.Result.Outcome)),
	}
	if revision != "" {
		attrs = append(attrs, slog.String("revision", clean(revision)))
	}
	attrs = append(attrs, slog.Float64("took", r.Took.Round(time.Millisecond).Seconds()))
	if r.Result.Why != "" {
		attrs = append(attrs, slog.String("why", clean(r.Result.Why)))
	}
	if r.Err != nil {
		attrs = append(attrs, slog.String("error", clean(r.Err.Error())))
	}
	log.LogAttrs(context.Background(), level, said, attrs...)
}

// loud are the reasons of events that no line of a run tells of.
var loud = map[string]bool{"GarbageCollectionFailed": true, "ArtifactVerificationFailed": true, "ReadOperationFailed": true}

// ObserveEvent counts and logs an event. What the line of its run says too
// is at level debug.
func (s *Server) ObserveEvent(e source.Event) {
	s.started().metrics.events.WithLabelValues(e.Severity).Inc()
	level := slog.LevelDebug
	if loud[e.Reason] && e.Severity == "error" {
		level = slog.LevelWarn
	}
	o := e.InvolvedObject
	s.logger().LogAttrs(context.Background(), level, "event", slog.String("object", o.Kind+"/"+o.Namespace+"/"+o.Name),
		slog.String("severity", e.Severity), slog.String("reason", e.Reason), slog.String("message", clean(e.Message)))
}

// logChange logs what a caller did.
func (s *Server) logChange(obj source.Object, what string, why api.Change, r *http.Request) {
	attrs := []slog.Attr{slog.String("object", obj.Head().String()), slog.String("change", what)}
	for _, said := range [][2]string{{"by", why.By}, {"reason", why.Reason}} {
		if said[1] != "" {
			attrs = append(attrs, slog.String(said[0], clean(said[1])))
		}
	}
	s.logger().LogAttrs(context.Background(), slog.LevelInfo, "change", append(attrs, slog.String("remote", remote(r)))...)
}

// denied counts and logs that a caller was refused.
func (s *Server) denied(r *http.Request, reason, actor string, cause error) {
	s.metrics.denials.WithLabelValues(reason).Inc()
	s.logger().LogAttrs(context.Background(), slog.LevelWarn, "refused",
		slog.String("reason", reason), slog.String("actor", clean(actor)), slog.String("remote", remote(r)),
		slog.String("method", r.Method), slog.String("path", clean(r.URL.Path)), slog.String("error", clean(cause.Error())))
}

// remote returns the address of a caller, or that it came by the socket.
func remote(r *http.Request) string {
	if httpserve.Trusted(r) {
		return "socket"
	}
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return clean(r.RemoteAddr)
	}
	return address
}

const (
	maxRuns    = 20     // of one object that are shown
	maxHistory = 20_000 // of all; the oldest go first
)

// A history has the last notable runs of objects: those that stored, failed,
// stalled or waited, and of those in a row that found nothing new the first.
type history struct {
	mu   sync.Mutex
	runs []past // a ring of maxHistory, once it is full
	next int    // where the oldest is then
	last map[source.Reference]source.Outcome
}

// A past run is one of an object.
type past struct {
	object source.Reference
	run    api.Run
}

// add adds a run of an object, which is the newest, if it is notable, and reports
// whether the object has recovered: the run before went wrong, and this one did not.
func (h *history) add(r serve.Run, revision string) (notable, recovered bool) {
	outcome := r.Result.Outcome
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.last[r.Object]
	if outcome == last && (outcome == source.Unchanged || outcome == source.Suspended) {
		return false, false
	}
	if h.last == nil {
		h.last = make(map[source.Reference]source.Outcome)
	}
	h.last[r.Object] = outcome
	p := past{r.Object, runOf(r, revision)}
	if len(h.runs) < maxHistory {
		h.runs = append(h.runs, p)
	} else {
		h.runs[h.next] = p
		h.next = (h.next + 1) % maxHistory
	}
	return true, last != "" && !good(last) && good(outcome)
}

func good(outcome source.Outcome) bool {
	return outcome == source.Stored || outcome == source.Unchanged
}

// of returns the last runs of an object, the newest first.
func (h *history) of(ref source.Reference) []api.Run {
	h.mu.Lock()
	defer h.mu.Unlock()
	runs := []api.Run{} // [] and not null
	for i := len(h.runs) - 1; i >= 0 && len(runs) < maxRuns; i-- {
		if p := h.runs[(h.next+i)%len(h.runs)]; p.object == ref {
			runs = append(runs, p.run)
		}
	}
	return runs
}
