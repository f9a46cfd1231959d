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
	socket     string
	jitter     float64 // percent
	eventURLs  []string
	eventsFile string
}

// serveCommand returns the command that sets f.
func (p *program) serveCommand(f *serveFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "serve -f FILE|DIR...",
		Short: "Keep artifacts up to date, and serve them",
		Long: `Serve keeps the objects of files and directories up to date: see docs/serve.md. It checks every origin at the interval of
its object; serves artifacts, statuses, events and a page over HTTP; answers webhooks; and sends events. It reads files
and Secrets again when they change. An invalid document does not stop the others.

Artifacts, statuses and events are in --store, which one server can use at a time. After a restart or crash it continues
where it was. headgate get, reconcile, suspend, resume and events find the server through the store, or with --server. An
interrupt or SIGTERM stops it when active checks have ended or are undone; a second one stops it at once, without damage.

Exit codes: 0 stopped by a signal, 1 it cannot listen or use its store, 2 usage.`,
		Example: `  headgate serve -f sources.yaml --secrets ./secrets --store ./store --events-addr https://alerts.example.org/hook
  headgate serve -f sources/ --store ./store --addr :9090 --base-url https://sources.example.org --tokens tokens.yaml --tls-cert tls.crt --tls-key tls.key`,
		Args: rangeArgs(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return p.runServe(c.Context(), f) },
	}
	fl, config := c.Flags(), &f.config
	fl.StringArrayVarP(&f.files, "filename", "f", nil, "`FILE` or directory with objects and Secrets; repeatable")
	f.registerFrom(c)
	registerSecrets(c, &f.secrets)
	f.registerLogin(c)
	f.storingFlags.register(c)
	fl.IntVar(&f.storeConfig.Keep, "artifact-retention-records", 2, "number of superseded artifacts kept for an object; -1 keeps all")
	spanVar(c, &f.storeConfig.KeepFor, "artifact-retention-ttl", time.Minute, "how long a superseded artifact is kept; -1s keeps it forever")
	f.listenFlags.register(c, listenWords{
		addr: "127.0.0.1:9090", baseURL: "at which clients reach the server, used in statuses; default that of --addr", open: "read artifacts and statuses, and trigger checks",
		grace: 20 * time.Second, ending: "open requests and the delivery of events",
	})
	fl.StringVar(&f.socket, "socket", ".serve.sock", "`PATH` of the socket for commands on this machine, which have all rights; relative to the store; empty for none")
	fl.BoolVar(&config.OpenArtifacts, "open-artifacts", false, "serve artifacts without a token, even if the rest needs one")
	fl.BoolVar(&config.Profiles, "profiles", false, "serve profiles of the process at /debug/pprof/, for tokens that may debug")
	f.logFlags.register(c)
	fl.IntVar(&config.Runs, "parallel", 256, "number of objects checked at the same time")
	fl.IntVar(&config.PerHost, "per-host", 16, "number of these with the same upstream host")
	fl.IntVar(&config.Fetches, "fetches", 0, "number of contents fetched and packed at the same time, at most half of them from one host; default 2 for each processor")
	fl.BoolVar(&config.Apart, "apart", false, "send requests for each object, even if others have the same upstream and credentials")
	fl.Float64Var(&f.jitter, "interval-jitter-percentage", 5, "`PERCENT` by which intervals and retry delays vary at random")
	spanVar(c, &config.MinRetry, "min-retry-delay", 750*time.Millisecond, "delay of the first retry after a failure")
	spanVar(c, &config.MaxRetry, "max-retry-delay", 15*time.Minute, "maximum delay of a retry, which is never longer than the interval of the object")
	spanVar(c, &config.Retention, "retention", time.Hour, "how long artifacts are kept after their object was removed from the files")
	bytesVar(c, &config.Scrub, "scrub-rate", 32<<20, 0, "`BYTES` of artifacts that are checked for damage each second, in the background; 0 for none")
	fl.StringArrayVar(&f.eventURLs, "events-addr", nil, "`[SEVERITY=]URL` that gets events, all or those of a severity and above; repeatable")
	fl.StringVar(&f.eventsFile, "events-file", "", "`FILE` with receivers of events, and their Secrets")
	fl.StringVar(&config.Hooks, "hook-secret", "", "`NAME` of the Secret for webhooks, in the namespace of the object, if the object names none")
	return c
}

// check returns an error for invalid values and combinations of flags.
func (f *serveFlags) check() error {
	for _, file := range f.files {
		if file == "-" {
			return usage("-f -: standard input cannot be watched: give a file or a directory")
		}
		if inside, found := pathInside(file, f.store); found && !strings.Contains("/"+inside, "/.") {
			return usage("-f %s holds the store %s: choose a --store outside, or one whose name begins with a dot", file, f.store)
		}
	}
	return cmp.Or(checkRules([]flagRule{
		{len(f.files) == 0, "give objects with -f FILE or -f DIR"},
		{f.config.Runs < 1, "--parallel: want 1 or more"},
		{f.config.PerHost < 1, "--per-host: want 1 or more"},
		{f.config.Fetches < 0, "--fetches: want 0 or more"},
		{f.jitter < 0 || f.jitter > 50, "--interval-jitter-percentage: want 0 or more, and 50 or less"},
		{f.config.MinRetry <= 0, "--min-retry-delay: want a time above 0"},
		{f.config.MaxRetry < f.config.MinRetry, "--max-retry-delay: want --min-retry-delay or more"},
		{f.config.Retention <= 0, "--retention: want a time above 0"},
		{f.storeConfig.Keep < 1 && f.storeConfig.Keep != -1, "--artifact-retention-records: want 1 or more, or -1: consumers fetch what a status told them a moment ago"},
	}), f.listenFlags.check())
}

// joinCloseError is deferred: it calls closer and joins its error to *err.
func joinCloseError(err *error, closer func() error) { *err = errors.Join(*err, closer()) }

// runServe serves until ctx ends. Requests that are cut off then, after the grace time, are logged but not an error.
func (p *program) runServe(ctx context.Context, f *serveFlags) (err error) {
	log := f.logger(p.stderr)
	problem := func(of string) func(error) { return func(err error) { log.Warn(of, "problem", err.Error()) } }
	c, err := p.serveConfig(f, problem)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.store, 0o700); err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	lock, err := serve.LockStore(f.store)
	if err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	defer joinCloseError(&err, lock.Release)
	note := serve.StoreNote{Socket: f.socket}
	if f.socket != "" && !filepath.IsAbs(f.socket) {
		note.Socket, _ = filepath.Abs(filepath.Join(f.store, f.socket))
	}
	f.listenEndpoint.Socket = note.Socket
	l, err := httpserve.Listen(f.listenEndpoint, c.Callers.Required(), f.baseURL, problem("certificates"))
	if err != nil {
		return listenError(err)
	}
	defer l.Close() // for errors before l.Serve, which closes it otherwise
	note.URL = l.URL
	if err := lock.Tell(note); err != nil {
		return err
	}
	f.storeConfig.BaseURL = cmp.Or(f.baseURL, l.URL)
	store, end, err := f.openStore()
	if err != nil {
		return err
	}
	defer joinCloseError(&err, end)
	if c.Journal, err = journal.Open(journal.Config{Dir: filepath.Join(f.store, ".events"), Report: problem("events")}); err != nil {
		return err
	}
	defer joinCloseError(&err, c.Journal.Close)
	c.Feed = &feed.Files{Paths: f.files, Secrets: f.secrets, More: source.EnvSecrets(p.lookupEnv), Warn: problem("documents")}
	c.Store, c.Statuses, c.Log, c.Origin = store, ledgerOf(f.store), log, p.origins(f.cacheDir()).New
	server, err := serve.New(c)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	hangupCtx, stop := p.hangupContext(ctx, log)
	defer stop()
	fmt.Fprintf(p.stdout, "serving sources at %s\n", l.URL)
	ctx, cancel := context.WithCancel(hangupCtx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- l.Serve(ctx, server.Handler(), log, func(context.Context) error { return nil })
	}()
	err = server.Run(ctx)
	cancel()
	late := <-ended
	if hangupCtx.Err() != nil && late != nil {
		log.Warn("ending", "problem", redact.String(late.Error()))
		late = nil
	}
	log.Info("ended")
	return errors.Join(err, late)
}

// serveConfig checks the flags and returns the configuration of the server. It creates no files.
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
	c.BaseURL, c.Grace, c.OpenMetrics = f.baseURL, f.listenEndpoint.Grace, f.openMetrics
	c.Jitter, c.Scrub = cmp.Or(f.jitter/100, -1), cmp.Or(c.Scrub, -1) // in a Config 0 means the default, and a negative value means none
	c.Notify.Proxy = http.ProxyFromEnvironment
	c.Notify.Instance, _ = os.Hostname()
	if c.Env, err = p.sourceEnv(&f.sourceFlags, nil); err != nil {
		return c, err
	}
	if f.requiresAuth() {
		c.Callers, err = serve.OpenCallers(serve.CallersConfig{File: f.tokens, Certificates: f.listenEndpoint.ClientCA != "", Warn: problem("tokens")})
		if err != nil {
			return c, usage("--tokens: %w", err)
		}
	}
	if _, err := f.storeConfig.Algorithm.New(); err != nil {
		return c, usage("--digest: %w", err)
	}
	if err := f.addReceivers(&c.Notify); err != nil {
		return c, err
	}
	if err := f.checkFrom(c.Env.Local, "", ""); err != nil {
		return c, &exitError{exitUsage, err}
	}
	return c, nil
}

// addReceivers adds the receivers of --events-addr and --events-file to c.
func (f *serveFlags) addReceivers(c *notify.Config) error {
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
	receivers, err := notify.Decode(f.eventsFile, bytes.NewReader(text))
	if err != nil {
		return usage("--events-file: %w", err)
	}
	c.Receivers = append(c.Receivers, receivers...)
	return nil
}

// listenFlags are the flags for the address of a server and the authentication of callers.
type listenFlags struct {
	listenEndpoint httpserve.Endpoint
	baseURL        string
	tokens         string
	openMetrics    bool
}

// listenWords are the defaults and help texts that differ between servers.
type listenWords struct {
	addr    string // default of --addr
	baseURL string // what --base-url is for
	open    string // what any client can do if no token is needed
	grace   time.Duration
	ending  string // what grace limits
}

func (f *listenFlags) register(c *cobra.Command, words listenWords) {
	fl := c.Flags()
	fl.StringVar(&f.listenEndpoint.Addr, "addr", words.addr, "`HOST:PORT` to listen on; port 0 takes a free one")
	fl.StringVar(&f.baseURL, "base-url", "", "`URL` "+words.baseURL)
	fl.StringVar(&f.tokens, "tokens", "", "`FILE` with tokens and client certificates, and what each allows; callers then need one; read again when it changes")
	fl.StringVar(&f.listenEndpoint.Cert, "tls-cert", "", "`FILE` with the certificate for TLS; read again when it changes")
	fl.StringVar(&f.listenEndpoint.Key, "tls-key", "", "`FILE` with the key of --tls-cert")
	fl.StringVar(&f.listenEndpoint.ClientCA, "client-ca", "", "`FILE` with the CA of client certificates; callers then need one")
	fl.BoolVar(&f.listenEndpoint.Optional, "client-cert-optional", false, "let callers without a client certificate use a token")
	fl.BoolVar(&f.listenEndpoint.Insecure, "insecure-listen", false, "listen where other machines can reach it, without tokens or client certificates: any client can "+words.open)
	fl.BoolVar(&f.openMetrics, "open-metrics", false, "serve metrics without a token, even if the rest needs one")
	spanVar(c, &f.listenEndpoint.Grace, "shutdown-grace", words.grace, "time limit for "+words.ending+" when it is stopped")
}

// requiresAuth reports whether callers must authenticate.
func (f *listenFlags) requiresAuth() bool { return f.tokens != "" || f.listenEndpoint.ClientCA != "" }

func (f *listenFlags) check() error {
	return cmp.Or(checkRules([]flagRule{
		{(f.listenEndpoint.Cert == "") != (f.listenEndpoint.Key == ""), "--tls-cert and --tls-key go together"},
		{f.listenEndpoint.ClientCA != "" && f.listenEndpoint.Cert == "", "--client-ca needs --tls-cert and --tls-key"},
		{f.listenEndpoint.Optional && (f.listenEndpoint.ClientCA == "" || f.tokens == ""), "--client-cert-optional needs --client-ca and --tokens"},
		{f.listenEndpoint.Grace <= 0, fmt.Sprintf("--shutdown-grace %s: want a positive time", f.listenEndpoint.Grace)},
	}), checkHostPort(f.listenEndpoint.Addr), checkWebURL("base-url", f.baseURL))
}

func checkHostPort(addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return usage("--addr %q: want HOST:PORT, as 127.0.0.1:8080, [::1]:8080 or :8080", addr)
	}
	return nil
}

// checkWebURL returns an error unless text, the value of a flag, is the URL of a server or "".
func checkWebURL(flag, text string) error {
	u, err := url.Parse(text)
	if text != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		return usage("--%s: want http:// or https://, a host, and perhaps a path", flag)
	}
	return nil
}

// listenError adds to an error of listening which flag helps.
func listenError(err error) error {
	var network *net.OpError
	switch {
	case errors.Is(err, httpserve.ErrExposed):
		return usage("--addr: %w: give --tokens or --client-ca, or --insecure-listen", err)
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("--addr: %w: another program is there; port 0 takes a free one", err)
	case errors.As(err, &network) && errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("--addr: %w: listening below port 1024 needs more rights", err)
	case errors.As(err, &network):
		return fmt.Errorf("--addr: %w", err)
	}
	return err
}

// hangupContext returns the context of a server; the caller calls the function at the end. If the log goes to a
// terminal, SIGHUP ends the context, because the terminal was closed. Otherwise SIGHUP is ignored: servers
// reload their files without a signal.
func (p *program) hangupContext(ctx context.Context, log *slog.Logger) (context.Context, context.CancelFunc) {
	switch {
	case signal.Ignored(syscall.SIGHUP): // by nohup, for example
	case isTerminal(p.stderr):
		return signal.NotifyContext(ctx, syscall.SIGHUP)
	default:
		signal.Ignore(syscall.SIGHUP)
		log.Debug("hangup is ignored: files are read again when they change")
	}
	return context.WithCancel(ctx)
}
