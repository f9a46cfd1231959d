package main

import (
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/rollout/tester/remote"
	testrun "github.com/headgate-io/headgate/rollout/tester/run"
	"github.com/headgate-io/headgate/rollout/tester/task"
)

// testerRunFlags bound runs and what is kept of them.
type testerRunFlags struct {
	timeout     time.Duration
	concurrency int
	queue       int
	outputLimit int64
	keep        int
	keepFor     time.Duration
	verdictTTL  time.Duration
}

func (f *testerRunFlags) register(c *cobra.Command) {
	fl := c.Flags()
	spanVar(c, &f.timeout, "timeout", time.Hour, "bound of a run; metadata may set a lower one")
	fl.IntVar(&f.concurrency, "concurrency", 100, "runs at a time")
	fl.IntVar(&f.queue, "queue", 1000, "requests that wait for a place; beyond, the answer is 429")
	bytesVar(c, &f.outputLimit, "output-limit", 256<<10, 1, "`BYTES` of output that are kept of a run, half from its beginning and half from its end")
	fl.IntVar(&f.keep, "history", 1000, "finished runs that are kept")
	spanVar(c, &f.keepFor, "history-for", 7*24*time.Hour, "how long they are kept")
	spanVar(c, &f.verdictTTL, "verdict-ttl", 5*time.Minute, "how long a verdict that was not delivered waits for an equal request with the same checksum")
}

func (f *testerRunFlags) config(dir string) (testrun.Config, error) {
	c := testrun.Config{Dir: dir, Timeout: f.timeout, Concurrency: f.concurrency, Queue: f.queue, Keep: f.keep, KeepFor: f.keepFor, Verdict: f.verdictTTL}
	for _, positive := range []struct {
		flag   string
		number int64
	}{
		{"timeout", int64(f.timeout)}, {"concurrency", int64(f.concurrency)}, {"queue", int64(f.queue)},
		{"history", int64(f.keep)}, {"history-for", int64(f.keepFor)}, {"verdict-ttl", int64(f.verdictTTL)},
	} {
		if positive.number <= 0 {
			return c, usage("--%s: want more than 0", positive.flag)
		}
	}
	if f.outputLimit > 64<<20 {
		return c, usage("--output-limit: want 64Mi or less")
	}
	c.OutputLimit = int(f.outputLimit)
	return c, nil
}

// testerToolFlags say which programs may run, and with what.
type testerToolFlags struct {
	allow     []string
	noShell   bool
	commands  []string
	onlyNamed bool
	env       []string
	passEnv   []string
	dir       string
	noPipe    bool
	privilege bool
}

func (f *testerToolFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringSliceVar(&f.allow, "allow", nil, "`PROGRAM`s that may be run, by name or absolute path, separated by commas; no shell is used then; repeatable")
	fl.BoolVar(&f.noShell, "no-shell", false, "run commands without a shell: words and quotes, nothing else")
	fl.StringArrayVar(&f.commands, "command", nil, "`NAME=LINE` of a command that metadata cmd: \"@NAME\" runs; repeatable")
	fl.BoolVar(&f.onlyNamed, "only-named", false, "run nothing but the commands of --command")
	fl.StringArrayVar(&f.env, "env", nil, "`NAME[=VALUE]` in the environment of programs, which is PATH and little more otherwise; without a value that of this process; repeatable")
	fl.StringSliceVar(&f.passEnv, "pass-env", nil, "`NAME,…` that metadata may set as env.NAME")
	fl.StringVar(&f.dir, "dir", "", "`DIR` where programs run; default one of its own for each run, removed afterwards")
	fl.BoolVar(&f.noPipe, "no-pipefail", false, "bash runs without pipefail unless metadata asks for it, as that of the reference")
	fl.BoolVar(&f.privilege, "allow-privileges", false, "programs may gain privileges, as sudo does")
}

// inherited are the variables of this process that every program gets. HOME and
// TMPDIR are of the run.
var inherited = []string{"PATH", "TZ", "LANG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}

func (f *testerToolFlags) tools(lookup func(string) (string, bool)) (task.Tools, error) {
	t := task.Tools{Dir: f.dir, Allow: f.allow, NoShell: f.noShell, OnlyNamed: f.onlyNamed, PassEnv: f.passEnv,
		NoPipefail: f.noPipe, Privileges: f.privilege, Commands: map[string]string{}}
	for _, name := range inherited {
		if value, set := lookup(name); set {
			t.Env = append(t.Env, name+"="+value)
		}
	}
	for _, entry := range f.env {
		name, _, given := strings.Cut(entry, "=")
		value, set := lookup(name)
		switch {
		case name == "":
			return t, usage("--env %q: want NAME or NAME=VALUE", entry)
		case given:
			t.Env = append(t.Env, entry)
		case set:
			t.Env = append(t.Env, name+"="+value)
		default:
			return t, usage("--env %s: this process has no such variable: write %s=VALUE", name, name)
		}
	}
	for _, entry := range f.commands {
		name, line, found := strings.Cut(entry, "=")
		if !found || name == "" || strings.TrimSpace(line) == "" {
			return t, usage("--command %q: want NAME=LINE", entry)
		}
		if _, twice := t.Commands[name]; twice {
			return t, usage("--command %s: given twice", name)
		}
		t.Commands[name] = line
	}
	if f.onlyNamed && len(t.Commands) == 0 {
		return t, usage("--only-named: give the commands with --command NAME=LINE")
	}
	if err := checkDir("dir", f.dir, "a directory where programs run"); err != nil {
		return t, err
	}
	return t, nil
}

// testerRemoteFlags say which servers may be asked.
type testerRemoteFlags struct {
	hosts      []string
	keys       string
	loadURL    string
	processURL string
}

func (f *testerRemoteFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringSliceVar(&f.hosts, "hosts", nil, "`HOST[:PORT],…` of nGrinder and Concord that metadata may name; *.DOMAIN for all below it")
	fl.StringVar(&f.keys, "keys", "", "`DIR` of API keys and passwords for them, one file each")
	fl.StringVar(&f.loadURL, "ngrinder-url", "", "`URL` of nGrinder when metadata names none")
	fl.StringVar(&f.processURL, "concord-url", "", "`URL` of Concord when metadata names none")
}

func (f *testerRemoteFlags) servers() (remote.Servers, error) {
	for flag, text := range map[string]string{"ngrinder-url": f.loadURL, "concord-url": f.processURL} {
		if text == "" {
			continue
		}
		if err := checkWebURL(text); err != nil {
			return remote.Servers{}, usage("--%s: %w", flag, err)
		}
	}
	for _, host := range f.hosts {
		if host == "" || strings.ContainsAny(host, " /@?#") {
			return remote.Servers{}, usage("--hosts %q: want HOST, HOST:PORT or *.DOMAIN", host)
		}
	}
	if err := checkDir("keys", f.keys, "a directory of keys"); err != nil {
		return remote.Servers{}, err
	}
	return remote.Servers{Hosts: f.hosts, LoadURL: f.loadURL, ProcessURL: f.processURL, Keys: f.keys, Proxy: http.ProxyFromEnvironment}, nil
}
