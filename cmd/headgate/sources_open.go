package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/feed"
	"github.com/headgate-io/headgate/source/serve/journal"
)

// sourceServer owns everything that `headgate serve` opens.
type sourceServer struct {
	log      *slog.Logger
	lock     *storeLock
	server   *serve.Server
	listener *httpserve.Listener
	store    *artifact.Store
	cache    *artifact.Cache // nil: none
	journal  *journal.Journal
}

// countedFeed logs how many documents there are.
type countedFeed struct {
	serve.Feed
	log *slog.Logger
}

// Follow implements [serve.Feed].
func (f countedFeed) Follow(ctx context.Context, set func(serve.Desired)) error {
	objects, defects := -1, 0
	return f.Feed.Follow(ctx, func(d serve.Desired) {
		if len(d.Objects) != objects || len(d.Defects) != defects {
			objects, defects = len(d.Objects), len(d.Defects)
			f.log.Info("documents", "objects", objects, "defects", defects)
		}
		set(d)
	})
}

// openSourceServer opens the server that the flags describe. It listens, and keeps the
// store, but does nothing yet.
func (p *program) openSourceServer(ctx context.Context, f *serveFlags) (w *sourceServer, err error) {
	w = new(sourceServer)
	if w.log, err = f.log(p.stderr); err != nil {
		return nil, err
	}
	if err := errors.Join(f.check(), f.checkFiles(), checkSecrets(f.secrets)); err != nil {
		return nil, err
	}
	c := f.config()
	if c.Env, err = p.environment(&f.sourceFlags, nil); err != nil {
		return nil, err
	}
	if c.Callers, err = f.callers(w.log); err != nil {
		return nil, err
	}
	if c.Notify.Receivers, err = f.receivers(); err != nil {
		return nil, err
	}
	if err := f.checkFrom(c.Env.Local, ""); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	if err := os.MkdirAll(f.store, 0o700); err != nil {
		return nil, fmt.Errorf("--store: %w", err)
	}
	if err := w.open(ctx, p, f, c); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// open opens all that has to be closed.
func (w *sourceServer) open(ctx context.Context, p *program, f *serveFlags, c serve.Config) (err error) {
	if w.lock, err = lockStore(f.store); err != nil {
		return err
	}
	problem := func(of string) func(error) { return func(err error) { w.log.Warn(of, "problem", err.Error()) } }
	if w.listener, err = httpserve.Listen(ctx, f.endpoint(), c.Callers.Required(), f.baseURL, problem("certificates")); err != nil {
		return listenError(err)
	}
	if err := w.lock.tell(f.note(w.listener.URL)); err != nil {
		return err
	}
	if w.cache, err = f.openCache(); err != nil {
		return err
	}
	if w.store, err = f.openStore(cmp.Or(f.baseURL, w.listener.URL), w.cache); err != nil {
		return err
	}
	if w.journal, err = journal.Open(journal.Config{Dir: filepath.Join(f.store, eventsDir), Report: problem("events")}); err != nil {
		return err
	}
	c.Feed = countedFeed{&feed.Files{Paths: f.files, Secrets: f.secrets, More: source.EnvSecrets(p.lookup), Warn: problem("documents")}, w.log}
	c.Store, c.Statuses, c.Journal, c.Log, c.Origin = w.store, ledgerOf(f.store), w.journal, w.log, p.origins(f.cacheDir()).New
	c.Notify.Instance, _ = os.Hostname()
	if w.server, err = serve.New(c); err != nil {
		return &exitError{exitUsage, err}
	}
	return nil
}

// callers returns the callers that the server knows, nil when it knows none.
func (f *serveFlags) callers(log *slog.Logger) (*serve.Callers, error) {
	if !f.guarded() {
		return nil, nil
	}
	guard, err := serve.OpenCallers(serve.CallersConfig{File: f.tokens, Certificates: f.clientCA != "",
		Warn: func(err error) { log.Warn("tokens", "problem", err.Error()) }})
	if err != nil {
		return nil, usage("--tokens: %w", err)
	}
	return guard, nil
}

func (f *serveFlags) endpoint() httpserve.Endpoint {
	return httpserve.Endpoint{Addr: f.addr, Socket: f.socketPath(), Cert: f.cert, Key: f.key, ClientCA: f.clientCA, Optional: f.optional,
		Insecure: f.insecure, Grace: f.grace}
}

// socketPath returns the path of the socket, "" for none.
func (f *serveFlags) socketPath() string {
	if f.socket == "" || filepath.IsAbs(f.socket) {
		return f.socket
	}
	return filepath.Join(f.store, f.socket)
}

// note returns what commands are told of the server.
func (f *serveFlags) note(url string) storeNote {
	socket := f.socketPath()
	if absolute, err := filepath.Abs(socket); socket != "" && err == nil {
		socket = absolute
	}
	return storeNote{URL: url, Socket: socket}
}
