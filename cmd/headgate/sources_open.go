package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/access"
	"github.com/headgate-io/headgate/source/serve/hook"
	"github.com/headgate-io/headgate/source/serve/journal"
	"github.com/headgate-io/headgate/source/serve/notify"
	"github.com/headgate-io/headgate/source/serve/server"
)

// sourceServer owns everything that `headgate serve` opens.
type sourceServer struct {
	log        *slog.Logger
	lock       *storeLock
	server     *server.Server
	listener   *server.Listener
	controller *serve.Controller
	feed       *latestSecrets
	store      *artifact.Store
	cache      *artifact.Cache // nil: none
	journal    *journal.Journal
	dispatcher *notify.Dispatcher // nil: nobody is told
}

// latestSecrets is a feed that exposes the Secrets of its newest snapshot. It logs
// how many documents there are.
type latestSecrets struct {
	serve.Feed
	log *slog.Logger
	now atomic.Pointer[source.Secrets]
}

// Follow implements [serve.Feed].
func (h *latestSecrets) Follow(ctx context.Context, set func(serve.Desired)) error {
	objects, defects := -1, 0
	return h.Feed.Follow(ctx, func(d serve.Desired) {
		h.now.Store(&d.Secrets)
		if len(d.Objects) != objects || len(d.Defects) != defects {
			objects, defects = len(d.Objects), len(d.Defects)
			h.log.Info("documents", "objects", objects, "defects", defects)
		}
		set(d)
	})
}

// Secret implements [source.Secrets].
func (h *latestSecrets) Secret(ctx context.Context, namespace, name string) (source.Secret, error) {
	if now := h.now.Load(); now != nil && *now != nil {
		return (*now).Secret(ctx, namespace, name)
	}
	return source.Secret{}, fmt.Errorf("secret %s/%s: %w: documents are not read yet", namespace, name, fs.ErrNotExist)
}

// PullSecrets implements [source.Secrets].
func (h *latestSecrets) PullSecrets(ctx context.Context, namespace, account string) ([]source.Secret, error) {
	if now := h.now.Load(); now != nil && *now != nil {
		return (*now).PullSecrets(ctx, namespace, account)
	}
	return nil, fmt.Errorf("service account %s/%s: %w: documents are not read yet", namespace, account, fs.ErrNotExist)
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
	w.controller = f.controller()
	if w.controller.Env, err = p.environment(&f.sourceFlags, nil); err != nil {
		return nil, err
	}
	guard, err := f.guard(w.log)
	if err != nil {
		return nil, err
	}
	receivers, err := f.receivers()
	if err != nil {
		return nil, err
	}
	w.server = &server.Server{Controller: w.controller, Guard: guard, BaseURL: f.baseURL, OpenArtifacts: f.openArtifacts, OpenMetrics: f.openMetrics,
		Profiles: f.profiles, Log: w.log}
	if err := f.checkFrom(w.controller.Env.Local, ""); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	if err := os.MkdirAll(f.store, 0o700); err != nil {
		return nil, fmt.Errorf("--store: %w", err)
	}
	if err := w.open(ctx, p, f, receivers); err != nil {
		return nil, errors.Join(err, w.close(ctx))
	}
	return w, nil
}

// open opens all that has to be closed.
func (w *sourceServer) open(ctx context.Context, p *program, f *serveFlags, receivers []notify.Receiver) (err error) {
	if w.lock, err = lockStore(f.store); err != nil {
		return err
	}
	if w.listener, err = w.server.Listen(ctx, f.endpoint()); err != nil {
		return listenError(err)
	}
	if err := w.lock.tell(f.note(w.listener.URL)); err != nil {
		return err
	}
	base := f.baseURL
	if base == "" {
		base = w.listener.URL
	}
	if w.cache, err = f.openCache(); err != nil {
		return err
	}
	if w.store, err = f.openStore(base, w.cache); err != nil {
		return err
	}
	files := f.feed()
	files.More, files.Warn = source.EnvSecrets(p.lookup), func(err error) { w.log.Warn("documents", "problem", err.Error()) }
	w.feed = &latestSecrets{Feed: files, log: w.log}
	c := w.controller
	c.Feed, c.Store, c.Ledger = w.feed, w.store, ledgerOf(f.store)
	c.Origin = p.origins(f.cacheDir()).New
	return w.openEvents(f, receivers)
}

// openEvents opens what events come from and go to.
func (w *sourceServer) openEvents(f *serveFlags, receivers []notify.Receiver) (err error) {
	report := func(err error) { w.log.Warn("events", "problem", err.Error()) }
	if w.journal, err = journal.Open(journal.Config{Dir: filepath.Join(f.store, eventsDir), Report: report}); err != nil {
		return err
	}
	if len(receivers) > 0 {
		host, _ := os.Hostname()
		w.dispatcher, err = notify.Start(notify.Config{Receivers: receivers, Secrets: w.feed, Proxy: http.ProxyFromEnvironment, Instance: host,
			Delivered: func(source.Event) { w.server.ObserveDelivery(nil, false) },
			Report: func(err error, lost bool) {
				w.server.ObserveDelivery(err, lost)
				report(err)
			}})
		if err != nil {
			return &exitError{exitUsage, err}
		}
	}
	w.controller.Observe = w.server.ObserveRun
	w.controller.Emit = func(e source.Event) {
		w.journal.Append(e)
		if w.dispatcher != nil {
			w.dispatcher.Emit(e)
		}
		w.server.ObserveEvent(e)
	}
	w.server.Store, w.server.Journal = w.store, w.journal
	w.server.Hooks = w.hooks(f)
	return nil
}

// hooks returns what answers webhooks.
func (w *sourceServer) hooks(f *serveFlags) *hook.Receiver {
	return &hook.Receiver{
		Object: func(ref source.Reference) (source.Object, error) {
			view, err := w.controller.View(ref)
			return view.Object, err
		},
		Secrets: w.feed,
		Secret:  f.hookSecret,
		Request: func(ref source.Reference) error {
			_, err := w.controller.Request(ref, serve.Hook)
			return err
		},
		Allowed: func(r *http.Request, ref source.Reference) bool {
			grant, err := w.server.Guard.Identify(r)
			return err == nil && grant.Change(ref) == nil
		},
		Observe: w.server.ObserveHook,
	}
}

// guard returns who knows the callers, nil when nobody is asked.
func (f *serveFlags) guard(log *slog.Logger) (*access.Guard, error) {
	if !f.guarded() {
		return nil, nil
	}
	guard, err := access.Open(access.Config{File: f.tokens, Certificates: f.clientCA != "",
		Warn: func(err error) { log.Warn("tokens", "problem", err.Error()) }})
	if err != nil {
		return nil, usage("--tokens: %w", err)
	}
	return guard, nil
}

func (f *serveFlags) endpoint() server.Endpoint {
	return server.Endpoint{Addr: f.addr, Socket: f.socketPath(), Cert: f.cert, Key: f.key, ClientCA: f.clientCA, Optional: f.optional,
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
