package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
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
	"github.com/headgate-io/headgate/rollout/simulate"
	"github.com/headgate-io/headgate/rollout/traffic"
)

func (p *program) rollout() *cobra.Command {
	return group("rollout", "Roll out a canary by webhooks, metrics and thresholds",
		p.simulateRollout(), p.runRollout(), p.statusRollout(), p.abortRollout(), p.promoteRollout())
}

// The exit codes of rollout run; 2 is for errors of every kind.
const (
	exitPromoted   = 0
	exitRolledBack = 1
	exitNotOver    = 3
)

// runFlags are the flags of rollout run; rollout abort has some of them.
type runFlags struct {
	manifestFlags
	stateFlags
	outputFlags
	drive.Options
	proxy                           drive.Proxy
	keepProxy, noTraffic            bool
	exec, requests, headers, bodies []string
	tokenFile                       string
	metrics                         metric.Querier
	allowCommands                   bool
}

func (p *program) runRollout() *cobra.Command {
	f := new(runFlags)
	c := &cobra.Command{
		Use:   "run -f FILE|DIR|- [[NAMESPACE/]CANARY] --revision TEXT {--proxy HOST:PORT … | --exec set-routes=… | --request set-routes=…}",
		Short: "Roll out a revision, or roll it back if it fails",
		Long: `Run rolls out a revision until the canary is promoted or rolled back: see docs/rollout.md.

Traffic is divided by a reverse proxy in this process (--proxy, with --primary and --canary), or by the operation
set-routes: a command or a request of yours (--exec, --request) that gets {{.Primary}} and {{.Canary}} in percent, and
{{.Mirrored}}. Other operations: routes prints the weights, such as "90 10"; revision prints the new revision;
primary-ready and canary-ready succeed when it is ready, and end with exit code 100 or status 410 if it never will be;
scale-up, scale-down and promote do what they say. An operation that is not given does nothing and counts as ready;
without promote, the proxy takes the canary as the new primary.

Metrics come from Prometheus, from MetricTemplate objects of -f, or from the proxy. Alerts go to AlertProvider objects of
-f. The status is saved to a file (--state) after each step: start the same command again to continue a run that was
interrupted or killed. An interrupt leaves the traffic as it is, but ends the proxy.

Exit codes: 0 promoted, 1 rolled back, 2 error, usage or an invalid object, 3 not finished: interrupted, --timeout, or
--once. A revision whose rollout has ended is not rolled out again; the exit code is the same.`,
		Example: `  headgate rollout run -f canary.yaml --revision v2 --proxy 127.0.0.1:8000 --primary http://127.0.0.1:9001 --canary http://127.0.0.1:9002
  headgate rollout run -f canary.yaml --revision "$GIT_COMMIT" --exec "set-routes=./weight.sh {{.Canary}}" --exec promote=./deploy.sh
  headgate rollout run -f canary.yaml --revision v2 --request "set-routes=PUT https://lb.example.org/weights?canary={{.Canary}}" -o json`,
		Args: rangeArgs(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.checkRun(); err != nil {
				return err
			}
			canary, b, err := p.readCanary(&f.manifestFlags, f.canaryArgument(args))
			if err != nil {
				return err
			}
			if canary.Spec.Suspend {
				return usage("canary %s has spec.suspend: nothing would be done", canaryName(canary))
			}
			path, err := f.statePath(canary)
			if err != nil {
				return err
			}
			file, err := drive.Open(path, canary.Metadata)
			if err != nil {
				return err
			}
			defer file.Close()
			return p.drive(c.Context(), f, canary, b, file)
		},
	}
	f.register(c, "do not divide traffic: something else does, or there is none")
	fl := c.Flags()
	fl.StringVar(&f.Revision, "revision", "", "`TEXT` that names the new revision")
	fl.BoolVar(&f.Again, "again", false, "roll out again a revision whose rollout has ended")
	fl.BoolVar(&f.Once, "once", false, "do one step if it is due; exit with 3 if the rollout is not finished")
	fl.StringVar(&f.proxy.Listen, "proxy", "", "`HOST:PORT` of a reverse proxy that divides the traffic during the run; port 0 takes a free one")
	fl.StringVar(&f.proxy.Primary, "primary", "", "`URL` of the primary, for --proxy")
	fl.StringVar(&f.proxy.Canary, "canary", "", "`URL` of the canary, for --proxy")
	fl.BoolVar(&f.keepProxy, "proxy-keep", false, "keep the proxy running after the rollout, until it is interrupted")
	fl.BoolVar(&f.proxy.Swap, "swap", false, "if the URL of --canary was promoted last, exchange --primary and --canary; both must answer")
	spanVar(c, &f.proxy.Drain, "proxy-drain", 30*time.Second, "time limit for open requests when the proxy ends")
	fl.StringVar(&f.metrics.Server, "metrics-server", "", "`URL` of Prometheus, for canaries without spec.metricsServer")
	fl.StringVar(&f.metrics.Provider, "metrics-provider", "", "`NAME` of the provider whose metrics are queried, such as istio, for canaries without spec.provider")
	fl.BoolVar(&f.allowCommands, "allow-commands", false, "run the commands of MetricTemplate objects of type exec")
	return c
}

// register adds the flags of every command that drives a rollout; none is the usage
// text of --no-traffic.
func (f *runFlags) register(c *cobra.Command, none string) {
	fl := c.Flags()
	f.manifestFlags.register(c)
	f.stateFlags.register(c)
	f.outputFlags.register(c, "text", "json")
	spanVar(c, &f.Interval, "interval", 0, "time between steps, instead of spec.analysis.interval")
	fl.StringVar(&f.EventURL, "event-url", "", "`URL` that gets all events, if the canary has no webhook of type event")
	fl.StringVar(&f.Cluster, "cluster", "", "`NAME` of the place that alerts show")
	fl.BoolVar(&f.noTraffic, "no-traffic", false, none)
	fl.StringArrayVar(&f.exec, "exec", nil, "`OPERATION=COMMAND`: run a program for an operation; its arguments are templates; repeatable")
	fl.StringArrayVar(&f.requests, "request", nil, "`OPERATION=[METHOD ]URL`: send a request for an operation; the URL is a template; repeatable")
	fl.StringArrayVar(&f.bodies, "request-body", nil, "`OPERATION=TEXT` of the body of its --request, a template; repeatable")
	fl.StringArrayVar(&f.headers, "request-header", nil, "`NAME: VALUE` of a header of every --request, a template; repeatable")
	fl.StringVar(&f.tokenFile, "request-token-file", "", "`FILE` with a bearer token for every --request; all must go to one origin")
	spanVar(c, &f.Timeout, "operation-timeout", time.Minute, "time limit of one operation")
	c.ValidArgsFunction = completeCanaries(&f.manifestFlags)
}

// check validates the flags that every command that drives a rollout has, and
// parses the flags of operations.
func (f *runFlags) check() (err error) {
	if f.Interval < 0 {
		return usage("--interval %s: want a positive time", f.Interval)
	}
	f.Actions, err = f.actions()
	return err
}

func (f *runFlags) checkRun() error {
	if err := f.check(); err != nil {
		return err
	}
	has := func(op traffic.Operation) bool { return f.Actions[op] != nil }
	proxied, routed := f.proxy.Listen != "", has(traffic.SetRoutes)
	return checkRules([]flagRule{
		{f.Revision == "" && !has(traffic.Revision), "give what is rolled out with --revision, or with an operation revision"},
		{f.Revision != "" && has(traffic.Revision), "--revision and an operation revision exclude each other"},
		{!proxied && !routed && !f.noTraffic, "say how traffic is divided: with --proxy, with an operation set-routes of --exec or --request, or with --no-traffic"},
		{proxied && routed || proxied && f.noTraffic || routed && f.noTraffic, "--proxy, an operation set-routes and --no-traffic exclude each other"},
		{has(traffic.ReadRoutes) && !routed, "an operation routes requires an operation set-routes"},
		{!proxied && (f.proxy.Primary != "" || f.proxy.Canary != "" || f.keepProxy || f.proxy.Swap), "--primary, --canary, --swap and --proxy-keep go with --proxy"},
		{proxied && (f.proxy.Primary == "" || f.proxy.Canary == ""), "--proxy needs the URLs of both sides: --primary and --canary"},
		{proxied && f.Once, "--once and --proxy exclude each other: the proxy ends with the step"},
		{f.proxy.Drain < 0, "--proxy-drain: want a positive time"},
	})
}

// A flagRule is a rule about a combination of flags, and whether the flags break it.
type flagRule struct {
	broken bool
	text   string
}

// checkRules returns a usage error for the first broken rule.
func checkRules(all []flagRule) error {
	for _, rule := range all {
		if rule.broken {
			return usage("%s", rule.text)
		}
	}
	return nil
}

// drive runs a rollout to its end and prints the result.
func (p *program) drive(ctx context.Context, f *runFlags, canary *rollout.Canary, b *rolloutDocuments, file *drive.File) error {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE) // the rollout continues if the reader of the output exits
	defer signal.Stop(broken)
	secrets, err := p.rolloutSecrets(f.secrets, b.secrets)
	if err != nil {
		return err
	}
	v, o := newView(p, f), &f.Options
	o.Canary, o.File, o.View, o.Querier = canary, file, v, &f.metrics
	o.Caller = &rollout.Caller{Secrets: secrets, Proxy: http.ProxyFromEnvironment}
	o.Querier.Secrets, o.Querier.Proxy = secrets, http.ProxyFromEnvironment
	if f.proxy.Listen != "" {
		o.Proxy = &f.proxy
	}
	if f.allowCommands {
		o.Querier.Commands = &metric.Commands{Env: commandEnv()}
	}
	if o.Querier.Templates, err = decodeAll(b, metric.Decode); err == nil {
		o.Providers, err = decodeAll(b, notify.Decode)
	}
	if err != nil {
		return err
	}
	defer v.end()
	r, err := drive.Begin(ctx, *o)
	if err != nil {
		return err
	}
	if s := r.Status(); s.Phase != "" && !s.Ended() {
		v.Say("going on: " + progressOf(canary, s))
	}
	v.Show(r.Status())
	if o.Proxy != nil && !f.keepProxy {
		v.Say("the proxy ends with this run, without --proxy-keep")
	}
	result := r.Run()
	result.Reason = redact.String(result.Reason)
	v.end()
	err = v.printOutcome(result)
	if revision, at := r.PromotedAt(); at != "" {
		v.Say(fmt.Sprintf("revision %s is at %s: give the next run --primary %[2]s, or --swap", revision, at))
	}
	ended := result.Outcome == drive.Promoted || result.Outcome == drive.RolledBack
	if f.keepProxy && ended {
		err = errors.Join(err, r.Wait())
	}
	r.Close()
	switch {
	case result.Outcome == drive.Failed:
		return errors.Join(errors.New(result.Reason), err)
	case err != nil:
		return err
	case !ended:
		return &exitError{exitNotOver, nil}
	case result.Outcome == drive.RolledBack:
		return &exitError{exitRolledBack, nil}
	}
	return nil
}

// originForm matches the origin of a URL that may be a template.
var originForm = regexp.MustCompile(`^[^/]*(//[^/?]*)?`)

// actions returns the actions that do the operations. It refuses to send
// credentials to more than one origin.
func (f *runFlags) actions() (map[traffic.Operation]traffic.Action, error) {
	header, credential, err := f.header()
	commands, err1 := operations("exec", f.exec)
	requests, err2 := operations("request", f.requests)
	bodies, err3 := operations("request-body", f.bodies)
	if err := errors.Join(err, err1, err2, err3); err != nil {
		return nil, err
	}
	all, origins := map[traffic.Operation]traffic.Action{}, map[string]bool{}
	for op, line := range commands {
		words, err := cmdline.Words(line)
		if err != nil {
			return nil, usage("--exec %s: %w", op, err)
		}
		all[op] = &traffic.Command{Args: words, Env: commandEnv()}
	}
	for op, text := range requests {
		method, url, found := strings.Cut(text, " ")
		if !found || strings.ContainsAny(method, ":/{") { // templates in a URL may have spaces
			method, url = "", text
		}
		origin := strings.ToLower(originForm.FindString(strings.TrimSpace(url)))
		origins[origin] = true
		switch {
		case all[op] != nil:
			return nil, usage("operation %s: --exec and --request exclude each other", op)
		case credential != "" && strings.Contains(origin, "{{"):
			return nil, usage("%s: it is for one origin, and that of a --request is a template", credential)
		case credential != "" && len(origins) > 1:
			return nil, usage("%s: it is for one origin, and each --request gets it: theirs are several; use --exec for the others", credential)
		}
		all[op] = &traffic.Request{Method: method, URL: strings.TrimSpace(url), Header: header, Body: bodies[op]}
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
			return nil, usage("--%s: want OPERATION=…, where OPERATION is one of %s", flag, strings.Join(textsOf(traffic.Operations()), ", "))
		case strings.TrimSpace(text) == "":
			return nil, usage("--%s %s: is empty", flag, op)
		case all[op] != "":
			return nil, usage("--%s %s: is given twice", flag, op)
		}
		all[op] = text
	}
	return all, nil
}

// header returns the header of all requests, and the flag that sets a credential in
// it, "" for none.
func (f *runFlags) header() (header map[string]string, credential string, err error) {
	header = map[string]string{}
	for _, text := range f.headers {
		name, value, found := strings.Cut(text, ":")
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		if !found || name == "" {
			return nil, "", usage("--request-header: want NAME: VALUE")
		}
		header[name] = strings.TrimSpace(value)
		if slices.Contains([]string{"Authorization", "Proxy-Authorization", "Cookie"}, name) {
			credential = "--request-header " + name
		}
	}
	data, err := readKeys(keyFile{"request-token-file", f.tokenFile, "token"})
	if token := string(data["token"]); token != "" {
		header["Authorization"], credential = "Bearer "+token, "--request-token-file"
		if strings.Contains(token, "{{") {
			err = usage("--request-token-file: the token is a template")
		}
	}
	return header, credential, err
}

// commandEnv returns the environment of commands: that of this process without the
// Secrets in it.
func commandEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "HEADGATE_SECRET_") })
}

// stateFlags select the status file of a rollout.
type stateFlags struct{ state, namespace string }

func (f *stateFlags) register(c *cobra.Command) {
	c.Flags().StringVarP(&f.namespace, "namespace", "n", "", "`NAMESPACE` of a canary that is named without one; default default")
	c.Flags().StringVar(&f.state, "state", "", "`FILE` with the status; default .headgate/.rollout/NAMESPACE/NAME.json")
}

// canaryArgument returns the name of the canary in args, with the namespace of the flag if
// the name has none.
func (f *stateFlags) canaryArgument(args []string) string {
	name := strings.Join(args, "")
	if f.namespace != "" && name != "" && !strings.Contains(name, "/") {
		name = f.namespace + "/" + name
	}
	return name
}

// statePath returns the path of the status file of a canary.
func (f *stateFlags) statePath(c *rollout.Canary) (string, error) {
	if f.state != "" {
		return f.state, nil
	}
	name := filepath.Join(c.Namespace(), c.Metadata.Name+".json") // names of objects contain no separators
	if !filepath.IsLocal(name) {
		return "", usage("canary %s: no file can have that name: give one with --state", canaryName(c))
	}
	return filepath.Join(".headgate", ".rollout", name), nil
}

// outcomeFlags are the flags that set the outcomes of a simulation.
var outcomeFlags = []struct {
	subject simulate.Subject
	usage   string
}{
	{simulate.Hook, "`NAME|TYPE=VALUE[@TICKS],…`: what webhooks answer: a status, timeout or refused; repeatable"},
	{simulate.Metric, "`NAME=VALUE[@TICKS],…` of a metric: a number, none or error; repeatable"},
	{simulate.Target, "`METHOD=VALUE[@TICKS],…`: the result of scale-up, scale-down, promote or revision: ok or error; repeatable"},
	{simulate.Canary, "`VALUE[@TICKS],…`: the canary is ready, not-ready or stuck"},
	{simulate.Primary, "`VALUE[@TICKS],…`: the primary is ready, not-ready or stuck"},
	{simulate.Traffic, "`VALUE[@TICKS],…`: routes are ok, error, or set-error (reading works)"},
	{simulate.Revision, "`TEXT[@TICKS],…`: the revision of the target, from that tick on"},
	{simulate.Suspend, "`VALUE[@TICKS],…`: spec.suspend is on or off"},
}

// simulateFlags are the flags of rollout simulate.
type simulateFlags struct {
	manifestFlags
	outputFlags
	outcomes [][]string // values of each of outcomeFlags
	ticks    int
}

func (p *program) simulateRollout() *cobra.Command {
	f := &simulateFlags{outcomes: make([][]string, len(outcomeFlags))}
	c := &cobra.Command{
		Use:   "simulate -f FILE|DIR|- [[NAMESPACE/]CANARY]",
		Short: "Print tick by tick what a rollout would do",
		Long: `Simulate runs the analysis of a Canary with a clock of its own, and calls nothing. The canary appears at tick 0, and gets
a new revision at tick 1. Each tick is printed with what a rollout would call. Everything succeeds unless a flag says
otherwise. A value can be limited to ticks: 403@4 is for tick 4, 403@1-4 for ticks 1 to 4, 403@4- from tick 4 on; without
ticks it is for all others. If a tick has several values, the last one counts.

Exit codes: 0 the simulation was printed, however the rollout ends, 2 usage or an invalid object.`,
		Example: `  headgate rollout simulate -f canary.yaml --hook load-test=500@3-5
  headgate rollout simulate -f canary.yaml --revision v3@6 --canary not-ready@2-3 -o json`,
		Args: rangeArgs(0, 1),
		RunE: func(c *cobra.Command, args []string) error { return p.simulate(c.Context(), f, strings.Join(args, "")) },
	}
	f.manifestFlags.register(c)
	f.registerFormat(c, "text", "json")
	for i, o := range outcomeFlags {
		c.Flags().StringArrayVar(&f.outcomes[i], string(o.subject), nil, o.usage)
	}
	c.Flags().IntVar(&f.ticks, "ticks", 0, "maximum `NUMBER` of ticks; default 1000")
	c.ValidArgsFunction = completeCanaries(&f.manifestFlags)
	return c
}

func (p *program) simulate(ctx context.Context, f *simulateFlags, name string) error {
	if f.ticks < 0 {
		return usage("--ticks %d: want a positive number", f.ticks)
	}
	var script simulate.Script
	var errs []error
	for i, texts := range f.outcomes {
		for _, text := range texts {
			outcome, err := simulate.ParseOutcome(outcomeFlags[i].subject, text)
			script, errs = append(script, outcome), append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	canary, _, err := p.readCanary(&f.manifestFlags, name)
	if err != nil {
		return err
	}
	all := (&simulate.Simulation{Canary: canary, Script: script, Ticks: f.ticks}).Run(ctx)
	if !f.machineReadable() {
		return simulate.WriteTrace(p.stdout, all)
	}
	for tick, err := range all {
		if err == nil {
			err = printItem(p.stdout, f.output, tick)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
