package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source/serve/notify"
)

// runServe serves until ctx ends.
func (p *program) runServe(ctx context.Context, f *serveFlags) error {
	w, err := p.openSourceServer(ctx, f)
	if err != nil {
		return err
	}
	ctx, stop := p.hangUp(ctx, w.log)
	defer stop()
	fmt.Fprintf(p.stdout, "serving sources at %s\n", w.listener.URL)
	err = errors.Join(w.run(ctx), w.close())
	w.log.Info("ended")
	return err
}

// run keeps and serves until ctx ends, or one of the two does. What is cut off when the grace of a
// server that was told to end is over is no failure.
func (w *sourceServer) run(told context.Context) error {
	ctx, cancel := context.WithCancel(told)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- w.listener.Serve(ctx, w.server.Handler(), w.log, func(context.Context) error { return nil })
	}()
	err := w.server.Run(ctx)
	cancel()
	late := <-served
	w.listener = nil // it has ended
	if told.Err() != nil && late != nil {
		w.log.Warn("ending", "problem", redact.String(late.Error()))
		late = nil
	}
	return errors.Join(err, late)
}

// close closes what was opened, the last first.
func (w *sourceServer) close() error {
	var errs []error
	if w.journal != nil {
		errs = append(errs, w.journal.Close())
	}
	if w.cache != nil {
		errs = append(errs, w.cache.Close())
	}
	if w.store != nil {
		errs = append(errs, w.store.Close())
	}
	if w.listener != nil {
		errs = append(errs, w.listener.Close())
	}
	if w.lock != nil {
		errs = append(errs, w.lock.release())
	}
	return errors.Join(errs...)
}

// listenError says which flag helps.
func listenError(err error) error {
	var network *net.OpError
	switch {
	case errors.Is(err, httpserve.ErrExposed):
		return usage("--addr: %w: give --tokens or --client-ca, or --insecure-listen", err)
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("--addr: %w: another program is there; port 0 takes a free one", err)
	case errors.As(err, &network) && errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("--addr: %w: ports below 1024 need the right to", err)
	case errors.As(err, &network):
		return fmt.Errorf("--addr: %w", err)
	}
	return err
}

// receivers returns who is told of events.
func (f *tellFlags) receivers() ([]notify.Receiver, error) {
	var all []notify.Receiver
	for _, text := range f.eventURLs {
		r, err := notify.ParseReceiver(text)
		if err != nil {
			return nil, usage("--events-addr: %w", err)
		}
		all = append(all, r)
	}
	if f.eventsFile == "" {
		return all, nil
	}
	file, err := os.Open(f.eventsFile)
	if err != nil {
		return nil, usage("--events-file: %w", err)
	}
	defer file.Close()
	more, err := notify.Decode(f.eventsFile, file)
	if err != nil {
		return nil, usage("--events-file: %w", err)
	}
	return append(all, more...), nil
}
