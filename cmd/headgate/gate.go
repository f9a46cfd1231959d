package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/rollout/tester"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
	testrun "github.com/headgate-io/headgate/rollout/tester/run"
)

// gateFlags say which gates a command is about, where they are, and what is
// done to them.
type gateFlags struct {
	serverFlags
	outputFlags
	api.Filter
	state  string
	change api.Change
}

// A gateCall is a running command about gates.
type gateCall struct {
	*program
	*gateFlags
	client *api.Client
}

// A gateVerb is a command about gates, or about rollback switches. Attributes names its flags
// besides the common ones, and its properties: gateOnly if rollback switches do not have it,
// remote if it does not work on files, select if it is about several gates, long if it sends
// requests for an unlimited time.
type gateVerb struct {
	use, short, long, example string
	attributes                string
	run                       func(c *gateCall, ctx context.Context, k api.Key) error
}

var gateVerbs = []gateVerb{
	{"open [NAMESPACE/]NAME", "Open a KIND", `Open opens the KIND of a canary: MEANING.

Modes:
  sticky    open for every revision, until it is closed (the default)
  one-shot  open for the revision whose check comes first; a check of another revision closes it
  checksum  open for the revision with --checksum, by default the one that is waiting now`, `  headgate KIND open prod/web --gate promotion --mode checksum --ttl 2h`, "reason mode checksum ttl", changeGate("open")},
	{"approve [NAMESPACE/]NAME", "Open a KIND for the revision that is waiting now", `Approve opens the KIND of a canary for the revision that is waiting now, and for no other; if the caller sends no
revision, for one check. If nothing is waiting, it names the gates of the canary where something is, and exits with 1.`,
		`  headgate KIND approve prod/web --reason "looks good"`, "reason gateOnly", (*gateCall).approve},
	{"close [NAMESPACE/]NAME", "Close a KIND", "Close closes the KIND of a canary. A KIND that was never opened is closed.", `  headgate KIND close prod/web`, "reason", changeGate("close")},
	{"reject [NAMESPACE/]NAME", "Close a KIND, and roll back the revision that is waiting", `Reject closes the KIND of a canary, and opens its rollback switch for the revision that is waiting, or for the one with
--checksum. If the canary has a rollback webhook, it is rolled back.`, `  headgate KIND reject prod/web --reason "error rate"`, "reason checksum ttl gateOnly", changeGate("reject")},
	{"get [NAMESPACE/]NAME", "Print one KIND", "Get prints the state of one KIND, and which revision is waiting.", `  headgate KIND get prod/web -o json`, "",
		func(c *gateCall, ctx context.Context, k api.Key) error { return c.printGate(c.client.Gate(ctx, k)) }},
	{"list", "Print KINDs", `List prints the KINDs that were opened or closed, or where a revision is waiting. All others are closed.`, `  headgate KIND list --namespace prod`, "select limit", (*gateCall).list},
	{"watch", "Print changes as they happen", `Watch prints the KINDs, and then a line for each change, until it is interrupted. If the connection is lost, it
connects again and prints what changed in the meantime.`, `  headgate KIND watch --namespace prod`, "select remote long", (*gateCall).watch},
	{"wait [NAMESPACE/]NAME", "Wait until a KIND is open", `Wait ends when the KIND is open for the revision with --checksum, by default the one that is waiting, or any if none is.
It changes nothing, and does not count as a check. If the test runner cannot be reached, it tries again. It exits with 1
when --timeout is over.`, `  headgate KIND wait prod/web --timeout 30m`, "checksum remote gateOnly long", (*gateCall).wait},
	{"link [NAMESPACE/]NAME", "Print links that approve or reject the revision that is waiting", `Link prints the URLs of two pages with a button: one approves the revision that is waiting now, the other rejects it.
They need no token, so anyone who has one can decide. Both expire with the next decision, and after --ttl, at most 7 days.`, `  headgate KIND link prod/web --ttl 8h`, "ttl remote gateOnly", (*gateCall).link},
	{"audit [[NAMESPACE/]NAME]", "Print decisions, newest first", "Audit prints the decisions about KINDs, newest first: who, what and why. Openings that were used up or expired are\nthere too.", `  headgate KIND audit prod/web --limit 10`, "select limit before", (*gateCall).audit},
}

// gate returns the command about gates or rollback switches, as kind says.
func (p *program) gate(kind api.Kind) *cobra.Command {
	noun, nouns, meaning := "gate", "gates", "a rollout that is waiting there continues"
	if kind == api.KindRollback {
		noun, nouns, meaning = "rollback switch", "rollback switches", "the canary is rolled back"
	}
	words := strings.NewReplacer("headgate KIND", "headgate "+string(kind), "KINDs", nouns, "KIND", noun, "MEANING", meaning)
	c := group(string(kind), words.Replace("Open, close, list and watch the KINDs of a test runner"))
	c.Long = words.Replace(`A test runner, headgate tester, keeps the KINDs of canaries: see docs/tester.md, Gates and rollback switches.

A canary is named NAMESPACE/NAME, or NAME in the namespace default. If it has several KINDs, name one with
--gate, or as NAMESPACE/NAME/GATE. The command calls the test runner at --server; if none is running, give its
directory with --state.

Exit codes: 0 done, 1 refused or the test runner cannot be reached, 2 usage or an invalid value.`)
	for _, verb := range gateVerbs {
		if kind == api.KindRollback && strings.Contains(verb.attributes, "gateOnly") {
			continue
		}
		f, maxArgs := &gateFlags{Filter: api.Filter{Kind: kind}}, strings.Count(verb.use, " [")
		minArgs := maxArgs - strings.Count(verb.use, "[[")
		sub := &cobra.Command{
			Use: verb.use, Short: words.Replace(verb.short), Long: words.Replace(verb.long), Example: words.Replace(verb.example), Args: rangeArgs(minArgs, maxArgs),
			RunE: func(c *cobra.Command, args []string) error { return p.runGate(c.Context(), verb, f, args) },
		}
		sub.ValidArgsFunction = p.completeGates(f, maxArgs)
		f.register(sub, verb)
		c.AddCommand(sub)
	}
	return c
}

const defaultServer = "http://127.0.0.1:8080"

// register adds the flags that a verb has.
func (f *gateFlags) register(c *cobra.Command, verb gateVerb) {
	f.serverFlags.register(c, "the test runner; default the variable HEADGATE_TESTER, or "+defaultServer)
	fl, has := c.Flags(), func(attribute string) bool { return strings.Contains(verb.attributes, attribute) }
	for _, flag := range []struct {
		there       bool
		value       *string
		name, usage string
	}{
		{!has("remote"), &f.state, "state", "`DIR` with the state of a test runner that is not running, instead of --server"},
		{has("select"), &f.Namespace, "namespace", "only canaries in `NAMESPACE`; default all"},
		{has("select"), &f.Name, "name", "only canaries called `NAME`; default all"},
		{has("select"), &f.Gate, "gate", "only gates called `NAME`; default all"},
		{!has("select"), &f.Gate, "gate", "`NAME` of the gate, if the canary has several; default " + api.DefaultGate},
		{has("before"), &f.Before, "before", "only entries before the one with this `ID`"},
		{has("reason"), &f.change.Reason, "reason", "`TEXT` for the audit trail"},
		{has("reason"), &f.change.Actor, "actor", "your `NAME` for the audit trail, if the server needs no token; default the user name"},
		{has("mode"), (*string)(&f.change.Mode), "mode", "`MODE`: sticky, one-shot or checksum; default sticky, with --checksum checksum"},
		{has("checksum"), &f.change.Checksum, "checksum", "`CHECKSUM` of the revision"},
		{has("ttl"), &f.change.TTL, "ttl", "`TIME` after which an opening (default never) or a link (default 24h) ends: seconds, or a duration such as 2h"},
	} {
		if flag.there {
			fl.StringVar(flag.value, flag.name, "", flag.usage)
		}
	}
	if has("mode") {
		completeFlag(c, "mode", string(api.Sticky), string(api.OneShot), string(api.Bound))
	}
	if has("limit") {
		fl.IntVar(&f.Limit, "limit", 1000, "maximum number to print, up to 1000")
	}
	formats := []string{"table", "json", "yaml"}
	if verb.use == "list" {
		formats = []string{"table", "wide", "json", "yaml", "name"}
	}
	if verb.use == "list" && f.Kind == api.KindGate {
		fl.BoolVar(&f.Waiting, "waiting", false, "only gates where a revision is waiting, with a check within the last two intervals")
	}
	f.registerFormat(c, formats...)
}

// statusHints says what to do about an error of the test runner, by its status.
var statusHints = map[int]string{
	401: "the test runner needs a token that is in its file and has not expired: give one with --token-file or the variable HEADGATE_TOKEN",
	403: "the token does not allow this: give another one with --token-file or the variable HEADGATE_TOKEN, or change its entry in the file of the test runner",
	404: "there are no gates at this address: name a test runner with --server",
}

// runGate runs a command about gates.
func (p *program) runGate(ctx context.Context, verb gateVerb, f *gateFlags, args []string) error {
	if _, err := strconv.ParseUint(cmp.Or(f.Before, "0"), 10, 64); err != nil {
		return usage("--before %q: want the ID of an entry, a number", f.Before)
	}
	k, err := f.key(args)
	if err != nil {
		return err
	}
	f.change.Actor = cmp.Or(f.change.Actor, p.user())
	if !strings.Contains(verb.attributes, "long") {
		var cancel context.CancelFunc
		ctx, cancel = f.requestContext(ctx)
		defer cancel()
	}
	client, done, err := p.gateClient(f)
	if err != nil {
		return err
	}
	err = errors.Join(verb.run(&gateCall{p, f, client}, ctx, k), done())
	refused, is := errors.AsType[*api.Problem](err)
	switch {
	case is && refused.Status == 400:
		return &exitError{exitUsage, err}
	case is && statusHints[refused.Status] != "":
		operation, _ := strings.CutSuffix(err.Error(), refused.Error())
		err = fmt.Errorf("%sstatus %d %s: %s", operation, refused.Status, http.StatusText(refused.Status), statusHints[refused.Status])
	case unreachableHint(err) != "":
		err = fmt.Errorf("%w: no test runner answers there: start one with headgate tester, or name one with --server", err)
	}
	return err
}

// gateClient returns a client of the test runner that the flags name, or of the files of a test
// runner that is not running. The caller must call done when it has finished.
func (p *program) gateClient(f *gateFlags) (client *api.Client, done func() error, err error) {
	if f.state == "" {
		c, err := p.connect(&f.serverFlags, "HEADGATE_TESTER", defaultServer)
		return &api.Client{URL: c.Base, Token: c.Token, HTTP: c.HTTP}, func() error { return nil }, err
	}
	if f.server != "" {
		return nil, nil, usage("--state and --server exclude each other: with --server it is the test runner that has the state")
	}
	if _, err := os.Stat(filepath.Join(f.state, "gates.db")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, usage("--state %s: no test runner has kept gates there: gates.db: %w", f.state, fs.ErrNotExist)
	}
	gates, err := gate.Open(gate.Config{Dir: f.state})
	switch {
	case errors.Is(err, gate.ErrInUse):
		return nil, nil, fmt.Errorf("--state %s: a test runner is running there: use --server with its URL", f.state)
	case err != nil:
		return nil, nil, fmt.Errorf("--state: %w", err)
	}
	runs, err := testrun.Open(testrun.Config{}) // no runs
	s := &tester.Server{Gates: gates, Runs: runs}
	return &api.Client{URL: "http://localhost", HTTP: &http.Client{Transport: handlerTransport{s.Handler()}}}, gates.Close, err
}

// handlerTransport answers requests by a handler.
type handlerTransport struct{ http.Handler }

// RoundTrip implements [http.RoundTripper].
func (h handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// completeGates completes the arguments of commands that take a gate.
func (p *program) completeGates(f *gateFlags, maxArgs int) cobra.CompletionFunc {
	return completeNames(maxArgs, func(ctx context.Context, _ *cobra.Command, _ []string) []string {
		client, done, err := p.gateClient(f)
		if err != nil {
			return nil
		}
		defer done()
		gates, _ := client.Gates(ctx, api.Filter{Kind: f.Kind, Limit: 1000}) // what can be read is offered
		return mapSlice(gates, func(g api.Gate) string { return gatePath(g.Key) })
	})
}

// key returns the gate that an argument names, and makes the filter select it.
func (f *gateFlags) key(args []string) (k api.Key, err error) {
	if len(args) == 0 {
		return k, nil
	}
	parts := strings.Split(args[0], "/")
	switch {
	case len(parts) > 3 || slices.Contains(parts, ""):
		return k, usage("%q: want NAME, NAMESPACE/NAME or NAMESPACE/NAME/GATE", args[0])
	case len(parts) == 1:
		parts = []string{"default", parts[0]}
	}
	flags := []struct {
		value      *string
		name, what string
	}{{&f.Namespace, "namespace", "canaries"}, {&f.Name, "name", "canaries"}, {&f.Gate, "gate", "ones"}}
	for i, part := range parts {
		if flag := flags[i]; *flag.value != "" && *flag.value != part {
			return k, usage("%q and --%s %q name different %s: leave one out", args[0], flag.name, *flag.value, flag.what)
		}
		*flags[i].value = part
	}
	return api.Key{Kind: f.Kind, Namespace: f.Namespace, Name: f.Name, Gate: cmp.Or(f.Gate, api.DefaultGate)}, nil
}

// changeGate returns a function that carries out an action on a gate, and prints the gate.
func changeGate(action string) func(*gateCall, context.Context, api.Key) error {
	return func(c *gateCall, ctx context.Context, k api.Key) error {
		return c.printGate(c.client.Change(ctx, action, k, c.change))
	}
}

func (c *gateCall) printGate(g api.Gate, err error) error {
	if err != nil {
		return err
	}
	return c.printResult(&c.outputFlags, g, nil, gateLines([]api.Gate{g}, nil))
}

func (c *gateCall) approve(ctx context.Context, k api.Key) error {
	gates, err := c.client.Gates(ctx, api.Filter{Kind: k.Kind, Namespace: k.Namespace, Name: k.Name, Waiting: true, Stale: true})
	if err != nil {
		return err
	}
	var names []string
	for _, g := range gates {
		if g.Key == k {
			if c.change.Mode, c.change.Checksum = api.Bound, g.Waiting.Checksum; c.change.Checksum == "" {
				c.change.Mode = api.OneShot
			}
			return changeGate("open")(c, ctx, k)
		}
		if !g.Waiting.Stale {
			names = append(names, gatePath(g.Key))
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("nothing waits at %s, nor at another gate of that canary: gate list --waiting prints the gates that are waited for", k)
	}
	return fmt.Errorf("nothing waits at %s: name the gate of that canary that is waited for: %s", k, strings.Join(names, ", "))
}

func (c *gateCall) list(ctx context.Context, _ api.Key) error {
	gates, err := c.client.Gates(ctx, c.Filter)
	if err != nil {
		return err
	}
	var names []string
	var tests map[api.Key]string // tests of the revisions that wait
	if c.output == "wide" {
		tests = map[api.Key]string{}
	}
	for _, g := range gates {
		names = append(names, gatePath(g.Key))
		if tests == nil || g.Waiting == nil || g.Waiting.Checksum == "" {
			continue
		}
		const latest = 5
		runs, err := c.client.Runs(ctx, api.Filter{Namespace: g.Namespace, Name: g.Name, Checksum: g.Waiting.Checksum, Limit: latest})
		if err != nil {
			return err
		}
		tests[g.Key] = strings.Join(mapSlice(runs, func(r api.Run) string { return r.Type + " " + string(r.State) }), ", ")
	}
	return c.printResult(&c.outputFlags, map[string][]api.Gate{"gates": append([]api.Gate{}, gates...)}, names, gateLines(gates, tests))
}

// gateLines returns a table of gates. If tests is not nil, the table also has the details of
// the canaries that wait, and the tests of their revisions.
func gateLines(gates []api.Gate, tests map[api.Key]string) [][]string {
	lines := [][]string{{"GATE", "STATE", "FOR", "UNTIL", "CHANGED", "BY", "WAITING", "REASON", "REVISION", "WEIGHT", "STEP", "FAILED", "RUNS"}}
	for _, g := range gates {
		var about api.CanaryInfo
		if g.Waiting != nil {
			about = g.Waiting.CanaryInfo
		}
		failed := about.Failures
		if about.Threshold != "" {
			failed += "/" + about.Threshold
		}
		lines = append(lines, []string{gatePath(g.Key), stateOf(g), openRevisions(g), formatTime(g.Expires), formatTime(g.Changed), g.Actor, describeWaiting(g), g.Reason,
			about.Revision, about.Weight, about.Step, failed, tests[g.Key]})
	}
	for i := range lines {
		if tests == nil {
			lines[i] = lines[i][:8]
		}
	}
	return lines
}

func (c *gateCall) audit(ctx context.Context, _ api.Key) error {
	entries, err := c.client.Audit(ctx, c.Filter)
	if err != nil {
		return err
	}
	lines := [][]string{{"ID", "TIME", "GATE", "ACTION", "MODE", "CHECKSUM", "BY", "REASON"}}
	for _, e := range entries {
		lines = append(lines, []string{fmt.Sprint(e.ID), formatTime(e.Time), gatePath(e.Key), e.Action, string(e.Mode), e.Checksum, e.Actor, e.Reason})
	}
	return c.printResult(&c.outputFlags, map[string][]api.Entry{"entries": append([]api.Entry{}, entries...)}, nil, lines)
}

func (c *gateCall) link(ctx context.Context, k api.Key) error {
	link, err := c.client.Link(ctx, k, api.LinkRequest{TTL: c.change.TTL})
	if err != nil {
		return err
	}
	return c.printResult(&c.outputFlags, link, nil, [][]string{{"approve", link.Approve}, {"reject", link.Reject}, {"expires", formatTime(link.Expires)}})
}

// wait polls a gate until it is open.
func (c *gateCall) wait(ctx context.Context, k api.Key) error {
	const look = 500 * time.Millisecond
	for lost := false; ; {
		one, cancel := c.requestContext(ctx)
		g, err := c.client.Gate(one, k)
		cancel()
		refused, is := errors.AsType[*api.Problem](err)
		switch {
		case ctx.Err() != nil:
		case is && !refused.Transient() || err == nil && isOpenFor(g, c.change.Checksum):
			return c.printGate(g, err)
		case lost != (err != nil):
			lost = err != nil
			c.reportConnection(err)
		}
		if err := retry.Sleep(ctx, look); errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("%s is not open after %s", k, c.timeout)
		} else if err != nil {
			return err
		}
	}
}

// isOpenFor reports whether a gate is open for the revision with a checksum. If that is "",
// it is about the revision that waits, or about any if none waits.
func isOpenFor(g api.Gate, checksum string) bool {
	if !g.Open || g.Checksum == "" || g.Checksum == checksum {
		return g.Open
	}
	return checksum == "" && (g.Waiting == nil || g.Waiting.Checksum == g.Checksum)
}

// watch prints the gates, and then changes until it is interrupted.
func (c *gateCall) watch(ctx context.Context, _ api.Key) error {
	printed := map[api.Key]string{}
	c.client.Lost, c.Limit = c.reportConnection, 1000
	return c.client.Watch(ctx, c.Filter, func(n api.Notice) error {
		g := n.Gate
		if g == nil {
			return nil
		}
		if g.Waiting != nil {
			g.Waiting.Last = time.Time{} // it changes with every check
		}
		text, err := json.Marshal(g)
		if err != nil || printed[g.Key] == string(text) {
			return err
		}
		printed[g.Key] = string(text)
		if c.machineReadable() {
			return printItem(c.stdout, c.output, g)
		}
		line := formatTime(time.Now()) + " " + gatePath(g.Key) + " " + stateOf(*g)
		for _, part := range [][2]string{{"for ", openRevisions(*g)}, {"until ", formatTime(g.Expires)}, {"by ", g.Actor}, {"waiting: ", describeWaiting(*g)}, {"reason: ", g.Reason}} {
			if part[1] != "" {
				line += " " + part[0] + part[1]
			}
		}
		_, err = fmt.Fprintln(c.stdout, redact.String(line))
		return err
	})
}

// gatePath returns NAMESPACE/NAME, followed by /GATE if that is not the default gate.
func gatePath(k api.Key) string {
	return strings.TrimSuffix(k.Namespace+"/"+k.Name+"/"+k.Gate, "/"+api.DefaultGate)
}

func stateOf(g api.Gate) string {
	if g.Open {
		return "open"
	}
	return "closed"
}

// openRevisions says for which revisions a gate is open.
func openRevisions(g api.Gate) string {
	switch {
	case !g.Open:
		return ""
	case g.Checksum == "" && g.Mode == api.OneShot:
		return "the next"
	}
	return cmp.Or(g.Checksum, "all")
}

// describeWaiting describes the revision that waits at a gate, if any.
func describeWaiting(g api.Gate) string {
	if g.Waiting == nil {
		return ""
	}
	text := g.Waiting.Checksum + " " + g.Waiting.Phase + " since " + formatTime(g.Waiting.Since)
	if g.Waiting.Stale {
		text += ", asked last " + formatTime(g.Waiting.Last)
	}
	return strings.Join(strings.Fields(text), " ")
}
