package tester

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

const maxLogText = 200 // bytes of a text that a request chose

// logger returns the log of a server.
func (s *Server) logger() *slog.Logger {
	if s.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Log
}

// clean returns a text that a request chose, as logs may have it.
func clean(text string) string {
	if len(text) > maxLogText {
		text = strings.ToValidUTF8(text[:maxLogText], "") + "..."
	}
	return redact.String(text)
}

// logRun logs that a run waits, runs or has ended.
func (s *Server) logRun(r api.Run) {
	level, attrs := slog.LevelInfo, []slog.Attr{
		slog.String("id", r.ID), slog.String("type", r.Type), slog.String("namespace", clean(r.Namespace)), slog.String("name", clean(r.Name)),
	}
	said := "run started"
	switch r.State {
	case api.Queued:
		said = "run queued"
	case api.Running:
		attrs = append(attrs, slog.String("phase", clean(r.Phase)), slog.String("checksum", clean(r.Checksum)), slog.String("actor", r.Actor))
	default:
		said = "run ended"
		attrs = append(attrs, slog.String("state", string(r.State)), slog.Int64("durationMs", r.Duration), slog.Int64("bytes", r.Bytes))
		if r.ExitCode != nil {
			attrs = append(attrs, slog.Int("exitCode", *r.ExitCode))
		}
		if r.State != api.Succeeded {
			level, attrs = slog.LevelWarn, append(attrs, slog.String("reason", clean(r.Reason)))
		}
	}
	s.logger().LogAttrs(context.Background(), level, said, attrs...)
}

// logShared logs that a request was given the run of another.
func (s *Server) logShared(r api.Run) {
	s.logger().LogAttrs(context.Background(), slog.LevelDebug, "run shared", slog.String("id", r.ID), slog.String("type", r.Type))
}

// logChange logs that a caller changed a gate.
func (s *Server) logChange(g api.Gate, action, actor string) {
	s.logger().LogAttrs(context.Background(), slog.LevelInfo, "gate changed", slog.String("action", action), slog.String("kind", string(g.Kind)),
		slog.String("namespace", clean(g.Namespace)), slog.String("name", clean(g.Name)), slog.String("gate", clean(g.Gate)),
		slog.Bool("open", g.Open), slog.String("mode", string(g.Mode)), slog.String("checksum", clean(g.Checksum)),
		slog.String("actor", clean(actor)), slog.String("reason", clean(g.Reason)))
}

// logDenial logs that a caller was refused, up to 20 times at once and every 2
// seconds after that: whoever can be refused can be so very often.
func (s *Server) logDenial(r *http.Request, reason, actor string, err error) {
	suppressed, ok := s.refusals.Allow(time.Now())
	if !ok {
		return
	}
	address, _, splitErr := net.SplitHostPort(r.RemoteAddr)
	if splitErr != nil {
		address = r.RemoteAddr
	}
	attrs := []slog.Attr{
		slog.String("reason", reason), slog.String("actor", actor), slog.String("remote", clean(address)),
		slog.String("route", routes[routeOf(r.URL.Path)]), slog.String("cause", clean(err.Error())),
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("others", suppressed))
	}
	s.logger().LogAttrs(context.Background(), slog.LevelWarn, "refused", attrs...)
}
