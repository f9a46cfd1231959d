package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	credentials "github.com/headgate-io/headgate/internal/access"
	"github.com/headgate-io/headgate/internal/listen"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller"
	"github.com/headgate-io/headgate/source/controller/api"
	"github.com/headgate-io/headgate/source/controller/hook"
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
func (s *Server) logRun(r controller.Run, revision string, recovered bool) {
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

// ObserveEvent counts and logs an event. What the line of its run says too is
// for who looks closely.
func (s *Server) ObserveEvent(e source.Event) {
	s.measures().events.WithLabelValues(e.Severity).Inc()
	level := slog.LevelDebug
	if loud[e.Reason] && e.Severity == "error" {
		level = slog.LevelWarn
	}
	o := e.InvolvedObject
	s.logger().LogAttrs(context.Background(), level, "event", slog.String("object", o.Kind+"/"+o.Namespace+"/"+o.Name),
		slog.String("severity", e.Severity), slog.String("reason", e.Reason), slog.String("message", clean(e.Message)))
}

// logHook logs a call of a webhook.
func (s *Server) logHook(o hook.Outcome) {
	level := slog.LevelInfo
	if o.Status >= http.StatusBadRequest {
		level = slog.LevelWarn
	}
	suppressed := 0
	if level == slog.LevelWarn {
		var ok bool
		if suppressed, ok = s.refusals.Allow(time.Now()); !ok {
			return
		}
	}
	attrs := []slog.Attr{slog.Int("status", o.Status), slog.String("reason", clean(o.Reason))}
	if o.Object != (source.Reference{}) {
		attrs = append(attrs, slog.String("object", clean(o.Object.String())))
	}
	if o.Provider != "" {
		attrs = append(attrs, slog.String("provider", o.Provider))
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("others", suppressed))
	}
	s.logger().LogAttrs(context.Background(), level, "webhook", attrs...)
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

// observeDenial counts and logs that a caller was refused, up to 20 times at
// once and every 2 seconds after that: whoever can be refused can be so very often.
func (s *Server) observeDenial(r *http.Request, err error) {
	reason, actor := "unknown", ""
	if denial, ok := errors.AsType[*credentials.Denial](err); ok {
		reason, actor = denial.Kind, denial.Actor
	} else if errors.Is(err, errForeign) {
		reason = "origin"
	} else if _, ok := errors.AsType[listen.Misdirected](err); ok {
		reason = "host"
	}
	s.measures().denials.WithLabelValues(reason).Inc()
	suppressed, ok := s.refusals.Allow(time.Now())
	if !ok {
		return
	}
	attrs := []slog.Attr{
		slog.String("reason", reason), slog.String("actor", clean(actor)), slog.String("remote", remote(r)),
		slog.String("method", r.Method), slog.String("path", clean(r.URL.Path)), slog.String("error", clean(err.Error())),
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("others", suppressed))
	}
	s.logger().LogAttrs(context.Background(), slog.LevelWarn, "refused", attrs...)
}

// remote returns the address of a caller, or that it came by the socket.
func remote(r *http.Request) string {
	if listen.Trusted(r) {
		return "socket"
	}
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return clean(r.RemoteAddr)
	}
	return address
}
