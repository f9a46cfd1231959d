package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// hangUp returns the context of a server, to be ended by the function. A SIGHUP
// ends it where the log goes to a terminal, which has been closed then. Elsewhere
// it asks servers to read their files again; these do so without, and only say so.
// It is ignored by a process that was started so, as by nohup.
func (p *program) hangUp(ctx context.Context, log *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if signal.Ignored(syscall.SIGHUP) {
		return ctx, cancel
	}
	hung := make(chan os.Signal, 1)
	signal.Notify(hung, syscall.SIGHUP)
	context.AfterFunc(ctx, func() { signal.Stop(hung) })
	f, isFile := p.stderr.(*os.File)
	closed := isFile && term.IsTerminal(int(f.Fd()))
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hung:
			}
			if closed {
				cancel()
				return
			}
			log.Info("hangup: files are read again when they change, without being told")
		}
	}()
	return ctx, cancel
}
