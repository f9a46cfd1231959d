package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/ledger"
)

// The exit codes of rollout run; 2 is for errors of every kind.
const (
	exitPromoted   = 0
	exitRolledBack = 1
	exitNotOver    = 3
)

// runFlags say what is rolled out, and how.
type runFlags struct {
	manifestFlags
	frontFlags
	adapterFlags
	metricFlags
	revision string
	state    string
	again    bool
	once     bool
	interval time.Duration
	timeout  time.Duration
	eventURL string
	cluster  string
	quiet    bool
	output   string
	asked    func() bool // whether -o was given
}

func (p *program) runRollout() *cobra.Command {
	f := new(runFlags)
	c := &cobra.Command{
		Use:   "run -f FILE|DIR|- [[NAMESPACE/]CANARY] --revision TEXT {--proxy HOST:PORT … | --exec set-routes=… | --request set-routes=…}",
		Short: "Roll a revision out, or back",
		Long: `Run drives the rollout of a Canary until it is promoted or rolled back: see docs/rollout.md.

Traffic is divided by a reverse proxy in this process (--proxy, between --primary and --canary), or by a command
or a request for the operation set-routes (--exec, --request). Commands and requests may do the other operations
too; one that is not given does nothing, and what no operation asks about is ready:

  routes         answers with the routes as they are: "90 10"
  set-routes     changes them to {{.Primary}} and {{.Canary}} percent; {{.Mirrored}} wants copies
  revision       answers with what is to be rolled out, instead of --revision
  primary-ready, canary-ready   succeed when it is ready; exit code 100 or status 410: it never will be
  scale-up, scale-down          start and stop the canary
  promote        makes {{.Revision}} the primary's

Commands run without a shell, with the values as HEADGATE_CANARY and so on in their environment. With --proxy
and no operation promote, the canary becomes the primary of the proxy when it is promoted: the next run then has
its URL as --primary, or --swap. Without --proxy-keep the proxy ends with the run.

Metrics are answered by --metrics-server or spec.metricsServer (Prometheus), by the MetricTemplate objects of -f,
and with --proxy and no such server by what the proxy measures. Alerts go to the AlertProvider objects of -f.

The status is kept in a file (--state) after each step. A run that was interrupted or killed goes on from there
when it is started again, once the interval since the last step has passed; where the rollout of a revision has ended, nothing is done and the exit code is the same
once more, unless --again is given. Only one run at a time has the file. An interrupt leaves the traffic as it
is, but with --proxy: that stops listening, answers the requests that it has, and is gone.

Exit codes: 0 promoted, 1 rolled back, 2 error, usage or an invalid object, 3 not over: it was interrupted or
its --timeout is over, or --once. A run that exits with 2 or 3 can be started again.`,
		Example: `  headgate rollout run -f canary.yaml --revision v2 --proxy 127.0.0.1:8000 --primary http://127.0.0.1:9001 --canary http://127.0.0.1:9002
  headgate rollout run -f canary.yaml --revision "$GIT_COMMIT" --exec "set-routes=./weight.sh {{.Canary}}" --exec promote=./deploy.sh
  headgate rollout run -f canary.yaml --revision v2 --request "set-routes=PUT https://lb.example.org/weights?canary={{.Canary}}" -o json
  headgate rollout run -f canary.yaml --revision v2 --exec "set-routes=./weight.sh {{.Canary}}" --once     # one step, from cron`,
		Args: arguments(0, 1),
		RunE: func(c *cobra.Command, args []string) error { return p.runRun(c.Context(), f, args) },
	}
	f.manifestFlags.register(c)
	f.frontFlags.register(c)
	f.adapterFlags.register(c)
	f.metricFlags.register(c)
	f.register(c)
	c.ValidArgsFunction = completeCanaries(&f.manifestFlags)
	return c
}

func (f *runFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.revision, "revision", "", "`TEXT` that names what is rolled out, and differs from what was before")
	fl.BoolVar(&f.again, "again", false, "roll out a revision whose rollout has ended, once more")
	fl.BoolVar(&f.once, "once", false, "do one step if it is due, or almost, and exit with 3 when the rollout is not over")
	f.registerDrive(c)
}

func stateVar(c *cobra.Command, state *string) {
	c.Flags().StringVar(state, "state", "", "`FILE` of the status; default .headgate/.rollout/NAMESPACE/NAME.json")
}

// registerDrive registers what whatever drives a rollout has.
func (f *runFlags) registerDrive(c *cobra.Command) {
	fl := c.Flags()
	stateVar(c, &f.state)
	spanVar(c, &f.interval, "interval", 0, "wait so long between steps, instead of spec.analysis.interval")
	spanVar(c, &f.timeout, "timeout", 0, "bound of the whole command")
	fl.StringVar(&f.eventURL, "event-url", "", "`URL` that is told all events when the canary has no webhook of type event")
	fl.StringVar(&f.cluster, "cluster", "", "`NAME` that alerts show as where this happens")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print errors, why it was rolled back, and the result only with -o")
	fl.StringVarP(&f.output, "output", "o", "text", "what to print: text, or json with one event a line and the result at last")
	f.asked = func() bool { return fl.Changed("output") }
	complete(c, "output", "text", "json")
}

// checkOutput refuses what no command about a rollout can do.
func (f *runFlags) checkOutput() error {
	switch {
	case f.output != "text" && f.output != "json":
		return usage("-o %q: want text or json", f.output)
	case f.interval < 0:
		return usage("--interval %s: want a positive time", f.interval)
	case f.timeout < 0:
		return usage("--timeout %s: want a positive time", f.timeout)
	}
	return nil
}

func (f *runFlags) check() error {
	if err := f.checkOutput(); err != nil {
		return err
	}
	switch {
	case f.revision == "" && !f.adapterFlags.has("revision"):
		return usage("give what is rolled out with --revision, or with an operation revision")
	case f.revision != "" && f.adapterFlags.has("revision"):
		return usage("--revision and an operation revision exclude each other")
	case f.once && f.listen != "":
		return usage("--once and --proxy exclude each other: the proxy ends with the step")
	}
	return errors.Join(f.frontFlags.check(&f.adapterFlags))
}

func (p *program) runRun(ctx context.Context, f *runFlags, args []string) error {
	if err := f.check(); err != nil {
		return err
	}
	canary, b, err := p.chosenCanary(ctx, &f.manifestFlags, args)
	if err != nil {
		return err
	}
	if canary.Spec.Suspend {
		return usage("canary %s has spec.suspend: nothing would be done", nameOf(canary))
	}
	path, err := f.statePath(canary)
	if err != nil {
		return err
	}
	file, err := ledger.Open(path, canary.Metadata)
	if err != nil {
		return asUsage(err)
	}
	defer file.Close()
	status, err := file.Load()
	if err != nil {
		return asUsage(err)
	}
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE) // who reads the output may leave: the rollout goes on
	defer signal.Stop(broken)
	ctx, stop := f.bound(ctx)
	defer stop(nil)
	d := &drive{program: p, flags: f, canary: canary, book: b, file: file, stop: stop}
	return d.run(ctx, status)
}

// bound ends ctx with --timeout, or with stop.
func (f *runFlags) bound(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, stop := context.WithCancelCause(ctx)
	if f.timeout <= 0 {
		return ctx, stop
	}
	timer := time.AfterFunc(f.timeout, func() { stop(notOverError(fmt.Sprintf("--timeout %s has passed", f.timeout))) })
	return ctx, func(cause error) { timer.Stop(); stop(cause) }
}

// A notOverError is why a run ends before its rollout; "" when nothing else was asked for.
type notOverError string

func (e notOverError) Error() string { return strings.TrimSuffix("not over: "+string(e), ": ") }

// statePath is where the status of a canary is kept.
func (f *runFlags) statePath(c *rollout.Canary) (string, error) {
	if f.state != "" {
		return f.state, nil
	}
	name := filepath.Join(c.Namespace(), c.Metadata.Name+".json") // names of objects have no separators
	if !filepath.IsLocal(name) {
		return "", usage("canary %s: no file can have that name: give one with --state", nameOf(c))
	}
	return filepath.Join(".headgate", ".rollout", name), nil
}
