package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// testerFlags say how the test runner is reached, what it may run, and what it keeps.
type testerFlags struct {
	listenFlags
	logFlags
	state         string
	types         []string
	failureStatus int
	strict        bool
	maxBody       int64
	runFlags      testerRunFlags
	toolFlags     testerToolFlags
	remoteFlags   testerRemoteFlags
}

func (p *program) tester() *cobra.Command { return p.testerCommand(new(testerFlags)) }

// testerCommand returns the command that sets f.
func (p *program) testerCommand(f *testerFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "tester",
		Short: "Serve the webhooks of rollouts: tests, loads, gates and rollback switches",
		Long: `Tester is the service that the webhooks of a canary rollout call: see docs/tester.md. It runs tests and loads,
and keeps gates and rollback switches. It does what it is asked to on this machine, so it listens on loopback unless
callers have to say who they are.

With --state the gates, the audit trail and the history of runs are kept in a directory, which one test runner has at
a time. Without it they end with the process.

It prints one line that says where it listens; its log goes to standard error. An interrupt or SIGTERM has it refuse
new work, end the runs under way and record them; a second one ends it at once.

Exit codes: 0 it was told to end, and all is recorded; 1 it cannot listen or keep its state, or runs did not end
within --shutdown-grace; 2 usage.`,
		Example: `  headgate tester --state ./tester
  headgate tester --addr 127.0.0.1:8080 --types cmd,bash --concurrency 4 --timeout 10m
  headgate tester --addr :8080 --state ./tester --tokens tokens.yaml --tls-cert tls.crt --tls-key tls.key
  headgate tester --state ./tester --command smoke="./smoke.sh --fast" --only-named`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return asFailure(p.runTester(c.Context(), f)) },
	}
	f.listenFlags.register(c, listenWords{
		addr: "127.0.0.1:8080", baseURL: "that people reach it by, for links in answers; default that of the request", open: "runs commands here",
		grace: 20 * time.Second, ending: "runs have to end, and answers to be read,",
	})
	f.logFlags.register(c)
	f.register(c)
	f.runFlags.register(c)
	f.toolFlags.register(c)
	f.remoteFlags.register(c)
	return c
}

func (f *testerFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.state, "state", "", "`DIR` of gates, audit trail and history, which survive the process; it is made")
	fl.StringSliceVar(&f.types, "types", nil, "`TYPE,…` of tests that may be asked for; default all")
	fl.IntVar(&f.failureStatus, "failure-status", 422, "`STATUS` of the answer when a test failed: 400 to 599, but not 408, 425, 429 or 503")
	fl.BoolVar(&f.strict, "strict", false, "tests are asked for at / alone; other unknown paths are not found")
	bytesVar(c, &f.maxBody, "max-body", 1<<20, 1, "most `BYTES` of a request")
	complete(c, "types", api.Types()...)
}

// runTester serves until ctx ends.
func (p *program) runTester(ctx context.Context, f *testerFlags) error {
	log, err := f.log(p.stderr)
	if err != nil {
		return err
	}
	s, err := p.openTester(f, log)
	if err != nil {
		return err
	}
	return p.serveTester(ctx, f, s)
}
