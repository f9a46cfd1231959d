package main

import (
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/notify"
)

// serveFlags are the flags of headgate serve.
type serveFlags struct {
	storingFlags
	listenFlags
	logFlags
	scheduleFlags
	tellFlags
	socket        string
	openArtifacts bool
	profiles      bool
}

// scheduleFlags say when sources are checked, and how many at a time.
type scheduleFlags struct {
	runs      int
	perHost   int
	fetches   int
	jitter    float64 // percent
	apart     bool
	minRetry  time.Duration
	maxRetry  time.Duration
	retention time.Duration
	scrub     int64 // bytes a second
}

// tellFlags say who is told of events, and who may ask by webhook.
type tellFlags struct {
	eventURLs  []string
	eventsFile string
	hookSecret string
}

// defaultSocket is where the socket is in a store.
const defaultSocket = ".serve.sock"

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
whatever ended it. headgate get, reconcile, suspend, resume and events find it by the store, or with --server.

It prints one line that says where it listens; its log goes to standard error. An interrupt or SIGTERM ends it when what is under
way has ended or is undone; a second one ends it at once, which tears nothing either.

Exit codes: 0 it was told to end; 1 it cannot listen or keep its store; 2 usage.`,
		Example: `  headgate serve -f sources/ --store ./store
  headgate serve -f sources.yaml --secrets ./secrets --store ./store --events-addr https://alerts.example.org/hook
  headgate serve -f sources/ --store ./store --addr :9090 --base-url https://sources.example.org --tokens tokens.yaml --tls-cert tls.crt --tls-key tls.key`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return asFailure(p.runServe(c.Context(), f)) },
	}
	f.register(c)
	return c
}

func (f *serveFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringArrayVarP(&f.files, "filename", "f", nil, "`FILE` or directory with objects and Secrets, watched; repeatable")
	f.registerFrom(c)
	fl.StringVar(&f.secrets, "secrets", "", "`DIR` of Secrets, as NAME/KEY or NAMESPACE/NAME/KEY, watched; looked up after the documents, and before the variables HEADGATE_SECRET_NAME_KEY")
	registerDocker(c, &f.docker)
	f.registerNetworks(c)
	registerLimit(c, &f.maxBytes)
	registerStore(c, &f.store)
	f.registerDigest(c)
	f.cacheFlags.register(c)
	fl.IntVar(&f.records, "artifact-retention-records", 2, "superseded artifacts of an object that stay; -1 keeps all")
	spanVar(c, &f.recordsFor, "artifact-retention-ttl", time.Minute, "how long a superseded artifact stays; -1s keeps it for ever")
	f.listenFlags.register(c, listenWords{
		addr: "127.0.0.1:9090", baseURL: "that artifacts are served at, in their status; default that of --addr", open: "reads artifacts and statuses and triggers checks",
		grace: 20 * time.Second, ending: "answers have to be read, and events to be delivered,",
	})
	fl.StringVar(&f.socket, "socket", defaultSocket, "`PATH` of the socket for commands of this machine, which may do everything; relative to the store; empty for none")
	fl.BoolVar(&f.openArtifacts, "open-artifacts", false, "artifacts need no token although everything else does")
	fl.BoolVar(&f.profiles, "profiles", false, "profiles of the process are at /debug/pprof/, for those who may debug")
	f.logFlags.register(c)
	f.scheduleFlags.register(c)
	f.tellFlags.register(c)
}

func (f *scheduleFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.IntVar(&f.runs, "concurrent", 256, "objects checked at a time")
	fl.IntVar(&f.perHost, "per-host", 16, "of them with one upstream host")
	fl.IntVar(&f.fetches, "fetches", 0, "contents fetched and packed at a time, half of them from one host at most; default 2 for each processor")
	fl.BoolVar(&f.apart, "apart", false, "objects with the same upstream and credentials do not share its answers: each asks for itself")
	fl.Float64Var(&f.jitter, "interval-jitter-percentage", 5, "`PERCENT` by which intervals and retries vary")
	spanVar(c, &f.minRetry, "min-retry-delay", 750*time.Millisecond, "time until the first attempt after a failure")
	spanVar(c, &f.maxRetry, "max-retry-delay", 15*time.Minute, "the longest between two attempts, which is never longer than the interval of the object")
	spanVar(c, &f.retention, "retention", time.Hour, "how long the artifacts of an object stay that is no longer in the files")
	bytesVar(c, &f.scrub, "scrub-rate", 32<<20, 0, "`BYTES` of artifacts hashed again in a second, in the background; 0 is none")
}

func (f *tellFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringArrayVar(&f.eventURLs, "events-addr", nil, "`[SEVERITY=]URL` that events are posted to, all or those of a severity and above; repeatable")
	fl.StringVar(&f.eventsFile, "events-file", "", "`FILE` of receivers of events, with their Secrets")
	fl.StringVar(&f.hookSecret, "hook-secret", "", "`NAME` of the Secret of webhooks, in the namespace of the object, for those that name none")
}

// check refuses flags that cannot be meant.
func (f *serveFlags) check() error {
	if len(f.files) == 0 {
		return usage("give objects with -f FILE or -f DIR")
	}
	for _, file := range f.files {
		if file == "-" {
			return usage("-f -: standard input cannot be watched: give a file or a directory")
		}
		if inside, found := below(file, f.store); found && !hidden(inside) {
			return usage("-f %s holds the store %s: choose a --store outside, or one whose name begins with a dot", file, f.store)
		}
	}
	for _, least := range []struct {
		flag   string
		number float64
		least  float64
	}{
		{"concurrent", float64(f.runs), 1}, {"per-host", float64(f.perHost), 1}, {"fetches", float64(f.fetches), 0},
		{"interval-jitter-percentage", f.jitter, 0}, {"min-retry-delay", float64(f.minRetry), 1}, {"max-retry-delay", float64(f.maxRetry), float64(f.minRetry)},
		{"retention", float64(f.retention), 1},
		{"artifact-retention-records", float64(f.records), -1},
	} {
		if least.number < least.least {
			return usage("--%s: want %s", least.flag, worded(least.flag, least.least))
		}
	}
	switch {
	case f.jitter > 50:
		return usage("--interval-jitter-percentage: want 50 or less")
	case f.records == 0:
		return usage("--artifact-retention-records: want 1 or more, or -1: consumers fetch what a status told them a moment ago")
	}
	return f.listenFlags.check()
}

// checkFiles refuses files and directories of objects that are not there.
func (f *serveFlags) checkFiles() error {
	for _, file := range f.files {
		if _, err := os.Stat(file); err != nil {
			return usage("-f: %w", err)
		}
	}
	return nil
}

// worded writes the least that a flag may be.
func worded(flag string, least float64) string {
	switch flag {
	case "min-retry-delay", "retention":
		return "a time above 0"
	case "max-retry-delay":
		return "--min-retry-delay or more"
	}
	return strconv.FormatFloat(least, 'f', -1, 64) + " or more"
}

// config returns what the flags say of a server. It does nothing.
func (f *serveFlags) config() serve.Config {
	jitter, scrub := f.jitter/100, f.scrub // for the server 0 is the default, and less is none
	if jitter == 0 {
		jitter = -1
	}
	if scrub == 0 {
		scrub = -1
	}
	return serve.Config{
		Runs: f.runs, PerHost: f.perHost, Fetches: f.fetches, Jitter: jitter, Apart: f.apart, MinRetry: f.minRetry, MaxRetry: f.maxRetry,
		Retention: f.retention, Scrub: scrub, Hooks: f.hookSecret, Profiles: f.profiles, BaseURL: f.baseURL, Grace: f.grace,
		OpenArtifacts: f.openArtifacts, OpenMetrics: f.openMetrics, Notify: notify.Config{Proxy: http.ProxyFromEnvironment},
	}
}
