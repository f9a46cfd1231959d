package tester

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

const (
	maxLogged = 256 << 10 // bytes of the output of a run that are logged
	maxLine   = 4 << 10
)

// A loggedTask logs what its task writes, line by line (metadata logCmdOutput).
type loggedTask struct {
	run.Task
	log     *slog.Logger
	secrets []string
}

func (s *Server) logged(j *job) run.Task {
	r := j.request
	log := s.logger().With("type", r.Type, "namespace", redact.String(r.Namespace), "name", redact.String(r.Name))
	return loggedTask{j.task, log, r.Secrets}
}

// Run runs the task.
func (t loggedTask) Run(ctx context.Context, out io.Writer) error {
	lines := &lineLog{log: t.log, secrets: t.secrets, left: maxLogged}
	err := t.Task.Run(ctx, io.MultiWriter(out, lines))
	lines.end()
	return err
}

// A lineLog logs what is written to it.
type lineLog struct {
	log     *slog.Logger
	secrets []string

	mu   sync.Mutex
	line []byte // at most maxLine of it
	cut  bool   // and there was more
	left int    // bytes that may still be logged
}

func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := p; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		room := min(len(line), maxLine-len(l.line))
		l.line, l.cut = append(l.line, line[:room]...), l.cut || room < len(line)
		if whole {
			l.flush()
		}
		rest = after
	}
	return len(p), nil
}

// end logs the line that has begun.
func (l *lineLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
}

func (l *lineLog) flush() {
	if len(l.line) > 0 && l.left > 0 {
		line := string(l.line)
		if l.cut {
			line = redact.Tail(line, l.secrets...)
		}
		l.log.Info("output", "line", redact.String(line, l.secrets...))
		if l.left -= len(l.line); l.left <= 0 {
			l.log.Info("output: what follows is not logged")
		}
	}
	l.line, l.cut = l.line[:0], false
}
