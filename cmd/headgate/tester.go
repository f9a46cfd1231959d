package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/rollout/tester"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
	testrun "github.com/headgate-io/headgate/rollout/tester/run"
	"github.com/headgate-io/headgate/rollout/tester/task"
)

// testerFlags say how the test runner is reached, what it may run, and what it keeps.
type testerFlags struct {
	listenFlags
	logFlags
	server      tester.Server
	runs        testrun.Config
	outputLimit int64
	commands    []string
	env         []string
}

// testerCommand returns the command tester, whose flags set f.
func (p *program) testerCommand(f *testerFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "tester",
		Short: "Answer the webhooks of rollouts: tests, load, gates and rollback switches",
		Long: `Tester answers the webhooks of canary rollouts: see docs/tester.md. It runs tests and load, and keeps gates and rollback
switches. Its callers run commands on this machine, so it listens on loopback unless it has tokens or client certificates.

It prints its URL to standard output, and logs to standard error. After an interrupt or SIGTERM it refuses new work, ends
active runs and records them; a second one stops it at once.

Exit codes: 0 stopped by a signal, and everything is recorded, 1 it cannot listen or use its state, or runs did not end
within --shutdown-grace, 2 usage.`,
		Example: `  headgate tester --state ./tester --types cmd,bash --concurrency 4 --run-timeout 10m
  headgate tester --addr :8080 --state ./tester --tokens tokens.yaml --tls-cert tls.crt --tls-key tls.key
  headgate tester --state ./tester --command smoke="./smoke.sh --fast" --only-named`,
		Args: rangeArgs(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("timeout") {
				p.warn(errors.New("--timeout bounds each run here, and not the command: write --run-timeout"))
			}
			return p.runTester(c.Context(), f)
		},
	}
	f.listenFlags.register(c, listenWords{
		addr: "127.0.0.1:8080", baseURL: "at which people reach the test runner, used in links; default that of the request", open: "run commands here",
		grace: 20 * time.Second, ending: "active runs and open requests",
	})
	f.logFlags.register(c)
	fl, s, r, t := c.Flags(), &f.server, &f.runs, &f.server.Tools
	fl.StringVar(&r.Dir, "state", "", "`DIR` of gates, audit trail and history, which one test runner can use at a time; without it they are lost at the end")
	fl.StringSliceVar(&s.Types, "types", nil, "`TYPE,…` of tests that callers can run; default all")
	fl.IntVar(&s.FailureStatus, "failure-status", 422, "`STATUS` of the answer when a test failed: 400 to 599, but not 408, 425, 429 or 503")
	fl.BoolVar(&s.Strict, "strict", false, "accept tests at / only, and answer 404 for other unknown paths")
	bytesVar(c, &s.MaxBody, "max-body", 1<<20, 1, "maximum `BYTES` of a request")
	completeFlag(c, "types", api.Types()...)

	spanVar(c, &r.Timeout, "run-timeout", time.Hour, "time limit of a run; metadata can set a lower one")
	fl.Var(spanValue{&r.Timeout}, "timeout", "")
	_ = fl.MarkHidden("timeout") // the former name of --run-timeout; it shadows the global --timeout
	fl.IntVar(&r.Concurrency, "concurrency", 100, "number of runs at the same time")
	fl.IntVar(&r.Queue, "queue", 1000, "number of requests that wait for a run to end; others are answered 429")
	bytesVar(c, &f.outputLimit, "output-limit", 256<<10, 1, "`BYTES` of output kept of a run, half from its beginning and half from its end")
	fl.IntVar(&r.Keep, "history", 1000, "number of finished runs that are kept")
	spanVar(c, &r.KeepFor, "history-for", 7*24*time.Hour, "how long finished runs are kept")
	spanVar(c, &r.Verdict, "verdict-ttl", 5*time.Minute, "how long an undelivered verdict waits for an equal request with the same checksum")

	fl.StringSliceVar(&t.Allow, "allow", nil, "run only this `PROGRAM`, by name or absolute path, without a shell; repeatable, or separated by commas")
	fl.BoolVar(&t.NoShell, "no-shell", false, "run commands without a shell: only words and quotes")
	fl.StringArrayVar(&f.commands, "command", nil, "`NAME=LINE`: metadata cmd: \"@NAME\" runs the command LINE; repeatable")
	fl.BoolVar(&t.OnlyNamed, "only-named", false, "run only the commands of --command")
	fl.StringArrayVar(&f.env, "env", nil, "`NAME[=VALUE]` to add to the environment of programs, which is PATH and little more; without a value, that of this process; repeatable")
	fl.StringSliceVar(&t.PassEnv, "pass-env", nil, "`NAME,…` of variables that metadata can set as env.NAME")
	fl.StringVar(&t.Dir, "dir", "", "`DIR` in which programs run; default a new one for each run, which is removed afterwards")
	fl.BoolVar(&t.NoPipefail, "no-pipefail", false, "run bash without pipefail unless metadata asks for it, as Flagger's load tester does")
	fl.BoolVar(&t.Privileges, "allow-privileges", false, "let programs gain privileges, as sudo does")

	fl.StringSliceVar(&s.Servers.Hosts, "hosts", nil, "`HOST[:PORT],…` of nGrinder and Concord that metadata can name; *.DOMAIN for all hosts below it")
	fl.StringVar(&s.Servers.Keys, "keys", "", "`DIR` of API keys and passwords for nGrinder and Concord, one file each")
	fl.StringVar(&s.Servers.LoadURL, "ngrinder-url", "", "`URL` of nGrinder, if metadata names none")
	fl.StringVar(&s.Servers.ProcessURL, "concord-url", "", "`URL` of Concord, if metadata names none")
	return c
}

// check validates the flags and completes the server. The error names a flag.
func (f *testerFlags) check(lookup func(string) (string, bool)) error {
	s, r := &f.server, &f.runs
	busy := []int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusServiceUnavailable} // callers retry after these
	if err := checkRules([]flagRule{
		{r.Timeout <= 0, "--run-timeout: want more than 0"},
		{r.Concurrency <= 0, "--concurrency: want more than 0"},
		{r.Queue <= 0, "--queue: want more than 0"},
		{r.Keep <= 0, "--history: want more than 0"},
		{r.KeepFor <= 0, "--history-for: want more than 0"},
		{r.Verdict <= 0, "--verdict-ttl: want more than 0"},
		{f.outputLimit > 64<<20, "--output-limit: want 64Mi or less"},
		{s.FailureStatus < 400 || s.FailureStatus > 599 || slices.Contains(busy, s.FailureStatus),
			fmt.Sprintf("--failure-status %d: want 400 to 599, but not 408, 425, 429 or 503", s.FailureStatus)},
	}); err != nil {
		return err
	}
	for _, name := range s.Types {
		if api.TypeName(name) == "" {
			return usage("--types %q: want %s", name, joinOr(api.Types()))
		}
	}
	for _, host := range s.Servers.Hosts {
		if host == "" || strings.ContainsAny(host, " /@?#") {
			return usage("--hosts %q: want HOST, HOST:PORT or *.DOMAIN", host)
		}
	}
	r.OutputLimit = int(f.outputLimit)
	s.BaseURL, s.OpenMetrics, s.Servers.Proxy = f.baseURL, f.openMetrics, http.ProxyFromEnvironment
	return cmp.Or(checkWebURL("ngrinder-url", s.Servers.LoadURL), checkWebURL("concord-url", s.Servers.ProcessURL), checkDir("keys", s.Servers.Keys, "a directory of keys"), checkDir("dir", s.Tools.Dir, "a directory where programs run"),
		f.configureTools(lookup), f.listenFlags.check())
}

// inheritedVariables are the variables of this process that every program gets. HOME and
// TMPDIR are not among them: each run has its own.
var inheritedVariables = []string{"PATH", "TZ", "LANG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}

// configureTools sets the environment of programs, and the named commands.
func (f *testerFlags) configureTools(lookup func(string) (string, bool)) error {
	t := &f.server.Tools
	for i, entry := range append(slices.Clone(inheritedVariables), f.env...) {
		name, _, given := strings.Cut(entry, "=")
		value, set := lookup(name)
		switch {
		case name == "":
			return usage("--env %q: want NAME or NAME=VALUE", entry)
		case given:
			t.Env = append(t.Env, entry)
		case set:
			t.Env = append(t.Env, name+"="+value)
		case i >= len(inheritedVariables):
			return usage("--env %s: this process has no such variable: write %[1]s=VALUE", name)
		}
	}
	t.Commands = map[string]string{}
	for _, entry := range f.commands {
		name, line, found := strings.Cut(entry, "=")
		if !found || name == "" || strings.TrimSpace(line) == "" {
			return usage("--command %q: want NAME=LINE", entry)
		} else if t.Commands[name] != "" {
			return usage("--command %s: given twice", name)
		}
		t.Commands[name] = line
	}
	if t.OnlyNamed && len(t.Commands) == 0 {
		return usage("--only-named: give the commands with --command NAME=LINE")
	}
	return nil
}

// runTester serves until ctx ends.
func (p *program) runTester(ctx context.Context, f *testerFlags) (err error) {
	if err := f.check(p.lookupEnv); err != nil {
		return err
	}
	log := f.logger(p.stderr)
	if _, set := p.lookupEnv("GOGC"); !set {
		debug.SetGCPercent(400) // checks of gates only produce garbage, and the live heap is small
	}
	if _, set := p.lookupEnv("GOMEMLIMIT"); !set {
		debug.SetMemoryLimit(192 << 20)
	}
	s := &f.server
	s.Log = log
	if f.requiresAuth() {
		s.Guard, err = tester.OpenGuard(f.listenFlags.tokens, f.listenEndpoint.ClientCA != "", func(err error) { log.Warn("tokens", "problem", err.Error()) })
		if err != nil {
			return usage("--tokens: %w", err)
		}
	}
	if f.runs.Dir == "" {
		log.Warn("gates and runs are kept in memory alone, and end with this process: --state DIR keeps them")
	}
	f.runs.Observe, f.runs.Warn = s.ObserveRun, func(err error) { log.Error("history", "problem", err.Error()) }
	if s.Gates, err = gate.Open(gate.Config{Dir: f.runs.Dir}); err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	defer joinCloseError(&err, s.Gates.Close)
	if s.Runs, err = testrun.Open(f.runs); err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	var l *tester.Listener
	s.Tools.Reaper = new(task.Reaper)
	if err = s.Tools.Reaper.Adopt(); err == nil {
		l, err = s.Listen(f.listenEndpoint)
	}
	if err != nil {
		return errors.Join(listenError(err), s.Shutdown(context.WithoutCancel(ctx)))
	}
	ctx, hungUp := p.hangupContext(ctx, log)
	defer hungUp()
	fmt.Fprintf(p.stdout, "serving webhooks at %s\n", l.URL)
	err = l.Serve(ctx)
	log.Info("ended")
	return err
}
