package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/headgate-io/headgate/internal/listen"
	"github.com/headgate-io/headgate/source/controller/notify"
)

// runKeep serves until ctx ends.
func (p *program) runKeep(ctx context.Context, f *keepFlags) error {
	w, err := p.openWarden(ctx, f)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "serving sources at %s\n", w.listener.URL)
	err = errors.Join(w.run(ctx), w.closeWithin(ctx, f))
	w.log.Info("ended")
	return err
}

// run keeps and serves until ctx ends, or one of the two does.
func (w *warden) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- w.listener.Serve(ctx)
	}()
	err := w.controller.Run(ctx)
	cancel()
	return errors.Join(err, <-served)
}

// closeWithin closes what the server has, and delivers what events wait for it.
func (w *warden) closeWithin(ctx context.Context, f *keepFlags) error {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.grace)
	defer cancel()
	w.listener = nil // it has ended
	return w.close(grace)
}

// close closes what was opened, the last first.
func (w *warden) close(ctx context.Context) error {
	var errs []error
	if w.dispatcher != nil {
		errs = append(errs, w.dispatcher.Close(ctx))
	}
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
	if errors.Is(err, listen.ErrExposed) {
		return usage("--addr: %w: give --tokens or --client-ca, or --insecure-listen", err)
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
