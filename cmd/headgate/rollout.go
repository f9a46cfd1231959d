package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	cmdline "github.com/headgate-io/headgate/internal/command"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/drive"
	"github.com/headgate-io/headgate/rollout/metric"
	"github.com/headgate-io/headgate/rollout/notify"
	"github.com/headgate-io/headgate/rollout/traffic"
)

func (p *program) rollout() *cobra.Command {
	c := &cobra.Command{
		Use:   "rollout",
		Short: "Roll out a canary by webhooks, metrics and thresholds",
		Long: `A rollout is driven by the spec.analysis of a Canary object: see docs/rollout.md. Simulate tells what would
happen, run does it; status, abort and promote are for what is under way.`,
		Args: noCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(p.simulateRollout(), p.runRollout(), p.statusRollout(), p.abortRollout(), p.promoteRollout())
	return c
}

// The exit codes of rollout run; 2 is for errors of every kind.
const (
	exitPromoted   = 0
	exitRolledBack = 1
	exitNotOver    = 3
)

var outcomes = map[drive.Outcome]int{
	drive.Promoted: exitPromoted, drive.RolledBack: exitRolledBack, drive.Failed: exitUsage, drive.NotOver: exitNotOver,
}

// runFlags say what is rolled out, and how.
type runFlags struct {
	manifestFlags
	stateFlags
	drive.Options
	proxy                          drive.Proxy
	keep, none                     bool
	exec, request, headers, bodies []string
	tokenFile                      string
	metrics                        metric.Querier
	commands                       bool
	quiet                          bool
	output                         string
	asked                          func() bool // whether -o was given
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
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.checkRun(); err != nil {
				return err
			}
			canary, b, err := p.chosenCanary(&f.manifestFlags, f.named(args))
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
			file, err := drive.Open(path, canary.Metadata)
			if err != nil {
				return asUsage(err)
			}
			defer file.Close()
			return p.drive(c.Context(), f, canary, b, file)
		},
	}
	f.manifestFlags.register(c)
	f.registerDrive(c)
	fl := c.Flags()
	fl.StringVar(&f.Revision, "revision", "", "`TEXT` that names what is rolled out, and differs from what was before")
	fl.BoolVar(&f.Again, "again", false, "roll out a revision whose rollout has ended, once more")
	fl.BoolVar(&f.Once, "once", false, "do one step if it is due, or almost, and exit with 3 when the rollout is not over")
	fl.BoolVar(&f.none, "no-traffic", false, "divide no traffic: something else does, or there is none")
	fl.StringVar(&f.proxy.Listen, "proxy", "", "`HOST:PORT` of a reverse proxy that divides the traffic while this runs; port 0 takes a free one")
	fl.StringVar(&f.proxy.Primary, "primary", "", "`URL` of the primary, for --proxy")
	fl.StringVar(&f.proxy.Canary, "canary", "", "`URL` of the canary, for --proxy")
	fl.BoolVar(&f.keep, "proxy-keep", false, "when the rollout is over let the proxy serve on, until it is interrupted; otherwise it ends with the run")
	fl.BoolVar(&f.proxy.Swap, "swap", false, "when the URL of --canary was promoted last, let --primary and --canary change roles; both have to answer")
	spanVar(c, &f.proxy.Drain, "proxy-drain", 30*time.Second, "how long the proxy may take to answer the requests that it has when it ends")
	fl.StringVar(&f.metrics.Server, "metrics-server", "", "`URL` of the Prometheus for canaries without spec.metricsServer")
	fl.StringVar(&f.metrics.Provider, "metrics-provider", "", "`NAME` of what the traffic is measured by, such as istio, for canaries without spec.provider")
	fl.BoolVar(&f.commands, "allow-commands", false, "run the commands of MetricTemplate objects of type exec")
	c.ValidArgsFunction = completeCanaries(&f.manifestFlags)
	return c
}

// registerDrive registers what whatever drives a rollout has.
func (f *runFlags) registerDrive(c *cobra.Command) {
	fl := c.Flags()
	f.stateFlags.register(c)
	spanVar(c, &f.Interval, "interval", 0, "wait so long between steps, instead of spec.analysis.interval")
	fl.StringVar(&f.EventURL, "event-url", "", "`URL` that is told all events when the canary has no webhook of type event")
	fl.StringVar(&f.Cluster, "cluster", "", "`NAME` that alerts show as where this happens")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print errors, why it was rolled back, and the result only with -o")
	fl.StringVarP(&f.output, "output", "o", "text", "what to print: text, or json with one event a line and the result at last")
	f.asked = func() bool { return fl.Changed("output") }
	complete(c, "output", "text", "json")
	fl.StringArrayVar(&f.exec, "exec", nil, "`OPERATION=COMMAND` that does it, a template of a program and its arguments; repeatable")
	fl.StringArrayVar(&f.request, "request", nil, "`OPERATION=[METHOD ]URL` that does it, a template; repeatable")
	fl.StringArrayVar(&f.bodies, "request-body", nil, "`OPERATION=TEXT` of the body of its request, a template; repeatable")
	fl.StringArrayVar(&f.headers, "request-header", nil, "`NAME: VALUE` of all requests, a template; repeatable")
	fl.StringVar(&f.tokenFile, "request-token-file", "", "`FILE` of a bearer token of all requests, which then go to one origin")
	spanVar(c, &f.Timeout, "operation-timeout", time.Minute, "bound of one operation")
}

// check refuses what no command that drives a rollout can do, and reads the
// flags of operations.
func (f *runFlags) check() (err error) {
	switch {
	case f.output != "text" && f.output != "json":
		return usage("-o %q: want text or json", f.output)
	case f.Interval < 0:
		return usage("--interval %s: want a positive time", f.Interval)
	}
	f.Actions, err = f.actions()
	return err
}

func (f *runFlags) checkRun() error {
	err := f.check()
	has := func(op traffic.Operation) bool { return f.Actions[op] != nil }
	ways := 0
	for _, given := range []bool{f.proxy.Listen != "", has(traffic.SetRoutes), f.none} {
		if given {
			ways++
		}
	}
	proxied := f.proxy.Listen != ""
	switch {
	case err != nil:
		return err
	case f.Revision == "" && !has(traffic.Revision):
		return usage("give what is rolled out with --revision, or with an operation revision")
	case f.Revision != "" && has(traffic.Revision):
		return usage("--revision and an operation revision exclude each other")
	case ways == 0:
		return usage("say how traffic is divided: with --proxy, with an operation set-routes of --exec or --request, or with --no-traffic")
	case ways > 1:
		return usage("--proxy, an operation set-routes and --no-traffic exclude each other")
	case has(traffic.ReadRoutes) && !has(traffic.SetRoutes):
		return usage("an operation routes goes with an operation set-routes")
	case !proxied && (f.proxy.Primary != "" || f.proxy.Canary != "" || f.keep || f.proxy.Swap):
		return usage("--primary, --canary, --swap and --proxy-keep go with --proxy")
	case proxied && (f.proxy.Primary == "" || f.proxy.Canary == ""):
		return usage("--proxy needs the URLs of both sides: --primary and --canary")
	case proxied && f.Once:
		return usage("--once and --proxy exclude each other: the proxy ends with the step")
	case f.proxy.Drain < 0:
		return usage("--proxy-drain %s: want a positive time", f.proxy.Drain)
	}
	return nil
}

// drive drives a rollout to its end, and prints what became of it.
func (p *program) drive(ctx context.Context, f *runFlags, canary *rollout.Canary, b *book, file *drive.File) error {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE) // a reader of the output may leave: the rollout goes on
	defer signal.Stop(broken)
	o := &f.Options
	o.Canary, o.File, o.Querier = canary, file, &f.metrics
	if f.proxy.Listen != "" {
		o.Proxy = &f.proxy
	}
	secrets, err := p.secretsOf(f.secrets, b.documents)
	if err != nil {
		return err
	}
	o.Caller = &rollout.Caller{Secrets: secrets, Proxy: http.ProxyFromEnvironment}
	o.Querier.Secrets, o.Querier.Proxy = secrets, http.ProxyFromEnvironment
	if f.commands {
		o.Querier.Commands = &metric.Commands{Env: commandEnv()}
	}
	if o.Querier.Templates, err = collect(b, metric.Decode); err == nil {
		o.Providers, err = collect(b, notify.Decode)
	}
	if err != nil {
		return asUsage(err)
	}
	view := p.newView(canary, f)
	defer view.end()
	o.View = view
	r, err := drive.Begin(ctx, *o)
	if err != nil {
		return asUsage(err)
	}
	if s := r.Status(); s.Phase != "" && !s.Ended() {
		view.Say("going on: " + progressOf(canary, s, time.Now()))
	}
	view.Show(r.Status())
	if o.Proxy != nil && !f.keep {
		view.Say("the proxy ends with this run, without --proxy-keep")
	}
	result := r.Run()
	view.end()
	if result.Settled && result.Outcome == drive.Promoted {
		view.Say("nothing to do: the primary has revision " + result.Revision)
	} else if result.Settled {
		view.Say("nothing to do: the rollout of revision " + result.Revision + " has ended: --again starts it once more")
	}
	result.Reason = redact.String(result.Reason)
	err = p.printResult(f, result, view)
	if revision, at := r.PromotedAt(); at != "" {
		at = redact.String(at)
		view.Say(fmt.Sprintf("revision %s is at %s: give the next run --primary %s, or --swap", redact.String(revision), at, at))
	}
	if f.keep && result.Outcome != drive.Failed && result.Outcome != drive.NotOver {
		err = errors.Join(err, r.Wait())
	}
	r.Close()
	if result.Outcome == drive.Failed {
		err = errors.Join(errors.New(result.Reason), err)
	}
	if err != nil {
		return asUsage(err)
	}
	if code := outcomes[result.Outcome]; code != exitPromoted {
		return &exitError{code, nil}
	}
	return nil
}

// printResult prints what became of a rollout, and how to go on.
func (p *program) printResult(f *runFlags, r drive.Result, v *view) error {
	if f.output == "json" {
		return v.events.Encode(r)
	}
	text := r.Namespace + "/" + r.Name + " " + string(r.Outcome)
	if r.Revision != "" {
		text += ": revision " + redact.String(r.Revision)
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	switch {
	case r.Outcome == drive.Failed: // which is told with the exit code
		return nil
	case f.quiet && !f.asked():
		if r.Outcome == drive.RolledBack {
			fmt.Fprintln(p.stderr, text)
		}
		return nil
	}
	_, err := fmt.Fprintln(p.stdout, text)
	if err == nil && r.Outcome == drive.NotOver && !f.quiet {
		_, err = fmt.Fprintf(p.stderr, "%s; run the same command again to go on (status: %s)\n", progressOf(f.Canary, r.Status, time.Now()), f.File.Path)
	}
	return err
}

// actions returns what does the operations.
func (f *runFlags) actions() (map[traffic.Operation]traffic.Action, error) {
	commands, err1 := operations("exec", f.exec)
	requests, err2 := operations("request", f.request)
	bodies, err3 := operations("request-body", f.bodies)
	header, err4 := f.header()
	if err := errors.Join(err1, err2, err3, err4, f.oneOrigin()); err != nil {
		return nil, asUsage(err)
	}
	all := map[traffic.Operation]traffic.Action{}
	for op, line := range commands {
		words, err := cmdline.Words(line)
		if err != nil {
			return nil, usage("--exec %s: %w", op, err)
		}
		all[op] = &traffic.Command{Args: words, Env: commandEnv()}
	}
	for op, text := range requests {
		if all[op] != nil {
			return nil, usage("operation %s: --exec and --request exclude each other", op)
		}
		method, url := splitRequest(text)
		all[op] = &traffic.Request{Method: method, URL: url, Header: header, Body: bodies[op]}
		delete(bodies, op)
	}
	for op := range bodies {
		return nil, usage("--request-body %s: there is no --request for it", op)
	}
	return all, nil
}

// operations parses the values OPERATION=TEXT of a flag.
func operations(flag string, values []string) (map[traffic.Operation]string, error) {
	all := map[traffic.Operation]string{}
	for _, value := range values {
		name, text, found := strings.Cut(value, "=")
		op := traffic.Operation(name)
		switch {
		case !found || !slices.Contains(traffic.Operations(), op):
			return nil, usage("--%s: want OPERATION=…, where OPERATION is one of %s", flag, strings.ReplaceAll(strings.Trim(fmt.Sprint(traffic.Operations()), "[]"), " ", ", "))
		case strings.TrimSpace(text) == "":
			return nil, usage("--%s %s: is empty", flag, op)
		case all[op] != "":
			return nil, usage("--%s %s: is given twice", flag, op)
		}
		all[op] = text
	}
	return all, nil
}

// splitRequest splits [METHOD ]URL. Templates in the URL may have spaces.
func splitRequest(text string) (method, url string) {
	method, url, found := strings.Cut(text, " ")
	if !found || strings.ContainsAny(method, ":/{") {
		return "", text
	}
	return method, strings.TrimSpace(url)
}

// header is that of all requests.
func (f *runFlags) header() (map[string]string, error) {
	header := map[string]string{}
	for _, text := range f.headers {
		name, value, found := strings.Cut(text, ":")
		if !found || strings.TrimSpace(name) == "" {
			return nil, usage("--request-header: want NAME: VALUE")
		}
		header[http.CanonicalHeaderKey(strings.TrimSpace(name))] = strings.TrimSpace(value)
	}
	token := map[string][]byte{}
	if err := readKeys(token, []keyFile{{"request-token-file", f.tokenFile, "token", true}}); err != nil {
		return nil, err
	}
	if text := string(token["token"]); strings.Contains(text, "{{") {
		return nil, usage("--request-token-file: the token is a template")
	} else if text != "" {
		header["Authorization"] = "Bearer " + text
	}
	return header, nil
}

// oneOrigin refuses credentials for requests to several origins.
func (f *runFlags) oneOrigin() error {
	flag := ""
	for _, text := range f.headers {
		name, _, _ := strings.Cut(text, ":")
		if name = http.CanonicalHeaderKey(strings.TrimSpace(name)); slices.Contains([]string{"Authorization", "Proxy-Authorization", "Cookie"}, name) {
			flag = "--request-header " + name
		}
	}
	if f.tokenFile != "" {
		flag = "--request-token-file"
	}
	first := ""
	for _, text := range f.request {
		_, text, _ = strings.Cut(text, "=")
		_, url := splitRequest(text)
		parts := strings.SplitN(url, "/", 4) // scheme, nothing, and the host
		origin, _, _ := strings.Cut(strings.ToLower(strings.Join(parts[:min(3, len(parts))], "/")), "?")
		switch {
		case flag == "":
		case strings.Contains(origin, "{{"):
			return usage("%s: it is for one origin, and that of a --request is a template", flag)
		case first != "" && origin != first:
			return usage("%s: it is for one origin, and each --request gets it: theirs are several; use --exec for the others", flag)
		}
		first = origin
	}
	return nil
}

// commandEnv is the environment of commands: all but the Secrets in it.
func commandEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "HEADGATE_SECRET_") })
}

// stateFlags name the status of a rollout.
type stateFlags struct{ state, namespace string }

func (f *stateFlags) register(c *cobra.Command) {
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "", "`NAMESPACE` of the canary that is named without one; default default")
	c.Flags().StringVar(&f.state, "state", "", "`FILE` of the status; default .headgate/.rollout/NAMESPACE/NAME.json")
}

// named returns the canary that the argument names, with its namespace where flags have it.
func (f *stateFlags) named(args []string) string {
	name := strings.Join(args, "")
	if f.namespace != "" && name != "" && !strings.Contains(name, "/") {
		name = f.namespace + "/" + name
	}
	return name
}

// statePath is where the status of a canary is kept.
func (f *stateFlags) statePath(c *rollout.Canary) (string, error) {
	if f.state != "" {
		return f.state, nil
	}
	name := filepath.Join(c.Namespace(), c.Metadata.Name+".json") // names of objects have no separators
	if !filepath.IsLocal(name) {
		return "", usage("canary %s: no file can have that name: give one with --state", nameOf(c))
	}
	return filepath.Join(".headgate", ".rollout", name), nil
}
