package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/feed"
	"github.com/headgate-io/headgate/source/serve/journal"
	"github.com/headgate-io/headgate/source/serve/notify"
)

// serveFlags are the flags of headgate serve.
type serveFlags struct {
	storingFlags
	listenFlags
	logFlags
	config     serve.Config
	records    int           // superseded artifacts that stay
	recordsFor time.Duration // and how long
	socket     string
	jitter     float64 // percent
	eventURLs  []string
	eventsFile string
}

func (p *program) serve() *cobra.Command { return p.serveCommand(new(serveFlags)) }

// serveCommand returns the command that sets f.
func (p *program) serveCommand(f *serveFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "serve -f FILE|DIR...",
		Short: "Keep artifacts up to date with their origins, and serve them",
		Long: `Serve keeps the objects of files and directories up to date: see docs/serve.md. It checks every origin at the interval of
its object, serves artifacts, statuses, events and a page over HTTP, answers webhooks, and tells the world what changed. Files and
Secrets are read again when they change; a document that is wrong does not stop the others.

Artifacts, statuses and events are in --store, which one server has at a time: a new one goes on where the last one ended,
whatever ended it. headgate get, reconcile, suspend, resume and events find it by the store, or with --server. An interrupt or
SIGTERM ends it when what is under way has ended or is undone; a second one ends it at once, which tears nothing either.

Exit codes: 0 it was told to end; 1 it cannot listen or keep its store; 2 usage.`,
		Example: `  headgate serve -f sources.yaml --secrets ./secrets --store ./store --events-addr https://alerts.example.org/hook
  headgate serve -f sources/ --store ./store --addr :9090 --base-url https://sources.example.org --tokens tokens.yaml --tls-cert tls.crt --tls-key tls.key`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return asFailure(p.runServe(c.Context(), f)) },
	}
	fl, config := c.Flags(), &f.config
	fl.StringArrayVarP(&f.files, "filename", "f", nil, "`FILE` or directory with objects and Secrets, watched; repeatable")
	f.registerFrom(c)
	fl.StringVar(&f.secrets, "secrets", "", "`DIR` of Secrets, as NAME/KEY or NAMESPACE/NAME/KEY, watched; looked up after the documents, and before the variables HEADGATE_SECRET_NAME_KEY")
	f.registerLogin(c)
	f.storingFlags.register(c)
	fl.IntVar(&f.records, "artifact-retention-records", 2, "superseded artifacts of an object that stay; -1 keeps all")
	spanVar(c, &f.recordsFor, "artifact-retention-ttl", time.Minute, "how long a superseded artifact stays; -1s keeps it for ever")
	f.listenFlags.register(c, listenWords{
		addr: "127.0.0.1:9090", baseURL: "that artifacts are served at, in their status; default that of --addr", open: "reads artifacts and statuses and triggers checks",
		grace: 20 * time.Second, ending: "answers have to be read, and events to be delivered,",
	})
	fl.StringVar(&f.socket, "socket", ".serve.sock", "`PATH` of the socket for commands of this machine, which may do everything; relative to the store; empty for none")
	fl.BoolVar(&config.OpenArtifacts, "open-artifacts", false, "artifacts need no token although everything else does")
	fl.BoolVar(&config.Profiles, "profiles", false, "profiles of the process are at /debug/pprof/, for those who may debug")
	f.logFlags.register(c)
	fl.IntVar(&config.Runs, "parallel", 256, "objects checked at a time")
	fl.IntVar(&config.PerHost, "per-host", 16, "of them with one upstream host")
	fl.IntVar(&config.Fetches, "fetches", 0, "contents fetched and packed at a time, half of them from one host at most; default 2 for each processor")
	fl.BoolVar(&config.Apart, "apart", false, "objects with the same upstream and credentials do not share its answers: each asks for itself")
	fl.Float64Var(&f.jitter, "interval-jitter-percentage", 5, "`PERCENT` by which intervals and retries vary")
	spanVar(c, &config.MinRetry, "min-retry-delay", 750*time.Millisecond, "time until the first attempt after a failure")
	spanVar(c, &config.MaxRetry, "max-retry-delay", 15*time.Minute, "the longest between two attempts, which is never longer than the interval of the object")
	spanVar(c, &config.Retention, "retention", time.Hour, "how long the artifacts of an object stay that is no longer in the files")
	bytesVar(c, &config.Scrub, "scrub-rate", 32<<20, 0, "`BYTES` of artifacts hashed again in a second, in the background; 0 is none")
	fl.StringArrayVar(&f.eventURLs, "events-addr", nil, "`[SEVERITY=]URL` that events are posted to, all or those of a severity and above; repeatable")
	fl.StringVar(&f.eventsFile, "events-file", "", "`FILE` of receivers of events, with their Secrets")
	fl.StringVar(&config.Hooks, "hook-secret", "", "`NAME` of the Secret of webhooks, in the namespace of the object, for those that name none")
	return c
}

// check refuses flags that cannot be meant.
func (f *serveFlags) check() error {
	for _, file := range f.files {
		if file == "-" {
			return usage("-f -: standard input cannot be watched: give a file or a directory")
		}
		if inside, found := below(file, f.store); found && !strings.Contains("/"+inside, "/.") {
			return usage("-f %s holds the store %s: choose a --store outside, or one whose name begins with a dot", file, f.store)
		}
	}
	for _, wrong := range []struct {
		is   bool
		text string
	}{
		{len(f.files) == 0, "give objects with -f FILE or -f DIR"},
		{f.config.Runs < 1, "--parallel: want 1 or more"},
		{f.config.PerHost < 1, "--per-host: want 1 or more"},
		{f.config.Fetches < 0, "--fetches: want 0 or more"},
		{f.jitter < 0 || f.jitter > 50, "--interval-jitter-percentage: want 0 or more, and 50 or less"},
		{f.config.MinRetry <= 0, "--min-retry-delay: want a time above 0"},
		{f.config.MaxRetry < f.config.MinRetry, "--max-retry-delay: want --min-retry-delay or more"},
		{f.config.Retention <= 0, "--retention: want a time above 0"},
		{f.records < 1 && f.records != -1, "--artifact-retention-records: want 1 or more, or -1: consumers fetch what a status told them a moment ago"},
	} {
		if wrong.is {
			return usage("%s", wrong.text)
		}
	}
	return f.listenFlags.check()
}

// closing closes what a function opened when it ends with an error or none.
func closing(err *error, closer func() error) { *err = errors.Join(*err, closer()) }

// runServe serves until ctx ends. What is cut off then, after its grace, is no
// failure.
func (p *program) runServe(ctx context.Context, f *serveFlags) (err error) {
	log, err := f.log(p.stderr)
	if err != nil {
		return err
	}
	problem := func(of string) func(error) { return func(err error) { log.Warn(of, "problem", err.Error()) } }
	c, err := p.serveConfig(f, problem)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.store, 0o700); err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	lock, err := lockStore(f.store)
	if err != nil {
		return err
	}
	defer closing(&err, lock.release)
	note := storeNote{Socket: f.socket}
	if f.socket != "" && !filepath.IsAbs(f.socket) {
		note.Socket, _ = filepath.Abs(filepath.Join(f.store, f.socket))
	}
	at := httpserve.Endpoint{Addr: f.addr, Socket: note.Socket, Cert: f.cert, Key: f.key, ClientCA: f.clientCA, Optional: f.optional, Insecure: f.insecure, Grace: f.grace}
	l, err := httpserve.Listen(ctx, at, c.Callers.Required(), f.baseURL, problem("certificates"))
	if err != nil {
		return listenError(err)
	}
	served := false
	defer func() {
		if !served {
			closing(&err, l.Close)
		}
	}()
	note.URL = l.URL
	if err := lock.tell(note); err != nil {
		return err
	}
	store, end, err := f.openStore(artifact.StoreConfig{BaseURL: cmp.Or(f.baseURL, l.URL), Keep: f.records, KeepFor: f.recordsFor})
	if err != nil {
		return err
	}
	defer closing(&err, end)
	if c.Journal, err = journal.Open(journal.Config{Dir: filepath.Join(f.store, ".events"), Report: problem("events")}); err != nil {
		return err
	}
	defer closing(&err, c.Journal.Close)
	c.Feed = countedFeed{&feed.Files{Paths: f.files, Secrets: f.secrets, More: source.EnvSecrets(p.lookup), Warn: problem("documents")}, log}
	c.Store, c.Statuses, c.Log, c.Origin = store, ledgerOf(f.store), log, p.origins(f.cacheDir()).New
	server, err := serve.New(c)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	told, stop := p.hangUp(ctx, log)
	defer stop()
	fmt.Fprintf(p.stdout, "serving sources at %s\n", l.URL)
	ctx, cancel := context.WithCancel(told)
	defer cancel()
	served = true
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- l.Serve(ctx, server.Handler(), log, func(context.Context) error { return nil })
	}()
	err = server.Run(ctx)
	cancel()
	late := <-ended
	if told.Err() != nil && late != nil {
		log.Warn("ending", "problem", redact.String(late.Error()))
		late = nil
	}
	log.Info("ended")
	return errors.Join(err, late)
}

// serveConfig returns what the flags say of a server, once all of them are checked.
// It makes nothing.
func (p *program) serveConfig(f *serveFlags, problem func(string) func(error)) (c serve.Config, err error) {
	if err := errors.Join(f.check(), checkDir("secrets", f.secrets, "a directory of Secrets")); err != nil {
		return c, err
	}
	for _, file := range f.files {
		if _, err := os.Stat(file); err != nil {
			return c, usage("-f: %w", err)
		}
	}
	c = f.config
	c.Jitter, c.BaseURL, c.Grace, c.OpenMetrics = f.jitter/100, f.baseURL, f.grace, f.openMetrics
	if c.Jitter == 0 { // which is the default
		c.Jitter = -1
	}
	if c.Scrub == 0 {
		c.Scrub = -1
	}
	c.Notify.Proxy = http.ProxyFromEnvironment
	c.Notify.Instance, _ = os.Hostname()
	if c.Env, err = p.environment(&f.sourceFlags, nil); err != nil {
		return c, err
	}
	if f.guarded() {
		c.Callers, err = serve.OpenCallers(serve.CallersConfig{File: f.tokens, Certificates: f.clientCA != "", Warn: problem("tokens")})
		if err != nil {
			return c, usage("--tokens: %w", err)
		}
	}
	if _, err := artifact.Algorithm(f.digest).New(); err != nil {
		return c, usage("--digest: %w", err)
	}
	if err := f.receivers(&c.Notify); err != nil {
		return c, err
	}
	if err := f.checkFrom(c.Env.Local, ""); err != nil {
		return c, &exitError{exitUsage, err}
	}
	return c, nil
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

// receivers adds the addresses that events are posted to, and their Secrets.
func (f *serveFlags) receivers(c *notify.Config) error {
	for _, text := range f.eventURLs {
		r, err := notify.ParseReceiver(text)
		if err != nil {
			return usage("--events-addr: %w", err)
		}
		c.Receivers = append(c.Receivers, r)
	}
	if f.eventsFile == "" {
		return nil
	}
	text, err := os.ReadFile(f.eventsFile)
	if err != nil {
		return usage("--events-file: %w", err)
	}
	more, err := notify.Decode(f.eventsFile, bytes.NewReader(text))
	if err != nil {
		return usage("--events-file: %w", err)
	}
	c.Receivers = append(c.Receivers, more...)
	return nil
}

// listenFlags say where a server listens, and who may call it.
type listenFlags struct {
	addr        string
	baseURL     string
	tokens      string
	cert, key   string
	clientCA    string
	optional    bool
	insecure    bool
	openMetrics bool
	grace       time.Duration
}

// listenWords are what differs between servers.
type listenWords struct {
	addr    string // the default
	baseURL string // what it is for
	open    string // what any client can do where no token is asked for
	grace   time.Duration
	ending  string // what has that long
}

func (f *listenFlags) register(c *cobra.Command, words listenWords) {
	fl := c.Flags()
	fl.StringVar(&f.addr, "addr", words.addr, "`HOST:PORT` to listen on; port 0 takes a free one")
	fl.StringVar(&f.baseURL, "base-url", "", "`URL` "+words.baseURL)
	fl.StringVar(&f.tokens, "tokens", "", "`FILE` of tokens and client certificates, and what each allows: callers have to have one; read again when it changes")
	fl.StringVar(&f.cert, "tls-cert", "", "`FILE` with the certificate of the server: it speaks TLS; read again when it changes")
	fl.StringVar(&f.key, "tls-key", "", "`FILE` with its key")
	fl.StringVar(&f.clientCA, "client-ca", "", "`FILE` with the CA of client certificates, one of which callers have to have")
	fl.BoolVar(&f.optional, "client-cert-optional", false, "callers without a certificate have to have a token")
	fl.BoolVar(&f.insecure, "insecure-listen", false, "listen where others can reach it although nobody is asked who they are: whoever does "+words.open)
	fl.BoolVar(&f.openMetrics, "open-metrics", false, "metrics need no token although everything else does")
	spanVar(c, &f.grace, "shutdown-grace", words.grace, "how long "+words.ending+" when it is told to end")
}

// guarded reports whether callers have to say who they are.
func (f *listenFlags) guarded() bool { return f.tokens != "" || f.clientCA != "" }

func (f *listenFlags) check() error {
	switch {
	case (f.cert == "") != (f.key == ""):
		return usage("--tls-cert and --tls-key go together")
	case f.clientCA != "" && f.cert == "":
		return usage("--client-ca needs --tls-cert and --tls-key")
	case f.optional && (f.clientCA == "" || f.tokens == ""):
		return usage("--client-cert-optional needs --client-ca and --tokens")
	case f.grace <= 0:
		return usage("--shutdown-grace %s: want a positive time", f.grace)
	}
	if err := checkHostPort(f.addr); err != nil || f.baseURL == "" {
		return err
	}
	if err := checkWebURL(f.baseURL); err != nil {
		return usage("--base-url: %w", err)
	}
	return nil
}

func checkHostPort(addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return usage("--addr %q: want HOST:PORT, as 127.0.0.1:8080, [::1]:8080 or :8080", addr)
	}
	return nil
}

// checkWebURL wants the URL of a server.
func checkWebURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("want http:// or https://, a host, and perhaps a path")
	}
	return nil
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

// hangUp returns the context of a server, to be ended by the function. A SIGHUP
// ends it where the log goes to a terminal, which has been closed then. Elsewhere
// it is ignored: servers read their files again without being told.
func (p *program) hangUp(ctx context.Context, log *slog.Logger) (context.Context, context.CancelFunc) {
	switch {
	case signal.Ignored(syscall.SIGHUP): // as nohup starts a process
	case isTerminal(p.stderr):
		return signal.NotifyContext(ctx, syscall.SIGHUP)
	default:
		signal.Ignore(syscall.SIGHUP)
		log.Debug("hangup is ignored: files are read again when they change")
	}
	return ctx, func() {}
}
