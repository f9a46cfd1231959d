package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

// gateFlags say which gates a command is about, where they are, and what is
// done to them.
type gateFlags struct {
	boardFlags
	kind      api.Kind
	gate      string
	gateGiven bool // --gate is there
	namespace string
	name      string
	waiting   bool
	limit     int
	before    string
	change    api.Change
	timeout   time.Duration
	output    string
	formats   []string // that the output may have
}

// A gateVerb is a command about gates, or about rollback switches.
type gateVerb struct {
	use, short, long, example string
	local                     bool // it works on files too
	gateOnly                  bool
	flags                     func(f *gateFlags, c *cobra.Command)
	run                       func(p *program, ctx context.Context, f *gateFlags, args []string) error
}

var gateVerbs = []gateVerb{
	{"open [NAMESPACE/]NAME", "Open a KIND", `Open opens the KIND of a canary: MEANING.

Its mode says for whom, and until when:
  sticky    for every revision, until it is closed (the default)
  one-shot  for the revision whose check passes first; that of another closes it
  checksum  for the revision with --checksum, or without it for the one that waits now`, `  headgate KIND open prod/web --reason "CHG-1234"
  headgate KIND open prod/web --gate promotion --mode checksum --ttl 2h`, true, false, openFlags, changeGate("open")},
	{"approve [NAMESPACE/]NAME", "Open a KIND for the revision that waits there now", `Approve opens the KIND of a canary for the revision that waits there now, and for no other. When its caller says
nothing of revisions, it opens for one check. When nothing waits there it
names the gates of the canary that are waited for, and exits with 1.`, `  headgate KIND approve prod/web --reason "looks good"`, true, true, reasonFlags, approveGate},
	{"close [NAMESPACE/]NAME", "Close a KIND", "Close closes the KIND of a canary. Closed is what it is when nobody ever opened it.", `  headgate KIND close prod/web`, true, false, reasonFlags, changeGate("close")},
	{"reject [NAMESPACE/]NAME", "Close a KIND, and have what waits there rolled back", `Reject closes the KIND of a canary, and opens its rollback switch for the revision that waits at the KIND, or for the one
with --checksum. A canary with a rollback webhook is rolled back then.`, `  headgate KIND reject prod/web --reason "error rate"`, true, true, rejectFlags, changeGate("reject")},
	{"get [NAMESPACE/]NAME", "Print one KIND", "Get prints the state of one KIND, and who waits there.", `  headgate KIND get prod/web -o json`, true, false, printFlags, getGate},
	{"list", "Print the KINDs that somebody waits at or decided about", `List prints the KINDs that somebody waits at or decided about. Those that it does not know are closed.`, `  headgate KIND list --namespace prod`, true, false, listFlags, listGates},
	{"watch", "Print changes as they happen", `Watch prints what there is, and then a line for each change, until it is interrupted. When the connection is lost it
tries again, and prints what changed in the meantime.`, `  headgate KIND watch --namespace prod`, false, false, watchFlags, watchGates},
	{"wait [NAMESPACE/]NAME", "Wait until a KIND is open", `Wait ends when the KIND is open for the revision with --checksum, or without it for the one that waits there; for any
when nobody waits. It changes nothing: it is no check. While the test runner is not reached it goes on, and says so.
Exit code 1 when --for is over.`, `  headgate KIND wait prod/web --for 30m`, false, true, waitFlags, waitGate},
	{"link [NAMESPACE/]NAME", "Make links that approve or reject what waits", `Link prints two URLs of pages with a button: one approves the revision that waits now, one rejects it. They need no
token, so whoever has one can decide. Both end when one is used or somebody decides otherwise, and after --ttl, at most 7 days.`, `  headgate KIND link prod/web --ttl 8h`, false, true, linkFlags, linkGate},
	{"audit [[NAMESPACE/]NAME]", "Print who decided what, the newest first", "Audit prints the decisions about KINDs, the newest first, by whom and why; also what was used up, and what expired.", `  headgate KIND audit prod/web --limit 10`, true, false, auditFlags, auditGates},
}

// gate is the command about gates, and the one about rollback switches.
func (p *program) gate(kind api.Kind) *cobra.Command {
	noun, nouns, meaning := "gate", "gates", "what waits for it goes on"
	if kind == api.KindRollback {
		noun, nouns, meaning = "rollback switch", "rollback switches", "the canary is rolled back"
	}
	words := strings.NewReplacer("headgate KIND", "headgate "+string(kind), "KINDs", nouns, "KIND", noun, "MEANING", meaning)
	c := &cobra.Command{
		Use:   string(kind),
		Short: words.Replace("Open, close, list and watch the KINDs of a test runner"),
		Long: words.Replace(`The KINDs of canaries are kept by a test runner, headgate tester: see docs/tester.md, Gates and rollback switches.

A canary is named NAMESPACE/NAME, or NAME in namespace default; --gate names one of several of its own,
or NAMESPACE/NAME/GATE, as list prints it. They are those of the test runner at --server, or with --state those in its directory while it does not run.

Exit codes: 0 done, 1 it was refused or the test runner was not reached, 2 usage or something invalid.`),
		Args: noCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	for _, verb := range gateVerbs {
		if kind == api.KindRollback && verb.gateOnly {
			continue
		}
		f := &gateFlags{kind: kind}
		args := arguments(0, 0)
		switch {
		case strings.Contains(verb.use, "[["):
			args = arguments(0, 1)
		case strings.Contains(verb.use, "["):
			args = arguments(1, 1)
		}
		sub := &cobra.Command{
			Use: verb.use, Short: words.Replace(verb.short), Long: words.Replace(verb.long), Example: words.Replace(verb.example), Args: args,
			RunE: func(c *cobra.Command, args []string) error {
				f.gateGiven = c.Flags().Changed("gate")
				return p.runGate(c.Context(), verb, f, args)
			},
		}
		sub.ValidArgsFunction = p.completeGates(f, strings.Contains(verb.use, "["))
		f.boardFlags.register(sub, verb.local)
		verb.flags(f, sub)
		c.AddCommand(sub)
	}
	return c
}

// helps is what to do about answers of a test runner, by their status.
var helps = map[int]string{
	401: "the test runner does not know who calls: give a token of its file that has not expired by --token-file or the variable HEADGATE_TOKEN",
	403: "the token does not allow this: give another by --token-file or the variable HEADGATE_TOKEN, or have its entry in the file of the test runner changed",
	404: "there are no gates at this address: name a test runner by --server",
}

// runGate runs a command about gates.
func (p *program) runGate(ctx context.Context, verb gateVerb, f *gateFlags, args []string) error {
	if !slices.Contains(f.formats, f.output) {
		return usage("-o %q: want %s", f.output, either(f.formats))
	}
	if f.change.Actor == "" {
		f.change.Actor = p.user()
	}
	err := verb.run(p, ctx, f, args)
	var refused *api.Problem
	var code *exitError
	switch {
	case err == nil || errors.As(err, &code):
		return err
	case errors.Is(err, gate.ErrInvalid), errors.As(err, &refused) && refused.Status == 400:
		return &exitError{exitUsage, err}
	case errors.Is(err, syscall.ECONNREFUSED):
		err = fmt.Errorf("%w: there is no test runner; start one by headgate tester, or name it by --server", err)
	case refused != nil && helps[refused.Status] != "":
		operation, _ := strings.CutSuffix(err.Error(), refused.Error())
		err = fmt.Errorf("%sstatus %d %s: %s", operation, refused.Status, http.StatusText(refused.Status), helps[refused.Status])
	}
	return failed(err)
}

// key returns the gate that an argument is about.
func (f *gateFlags) key(argument string) (api.Key, error) {
	parts := strings.Split(argument, "/")
	if len(parts) > 3 || slices.Contains(parts, "") {
		return api.Key{}, usage("%q: want NAME, NAMESPACE/NAME or NAMESPACE/NAME/GATE", argument)
	}
	k := api.Key{Kind: f.kind, Namespace: "default", Name: parts[0], Gate: f.gate}
	if len(parts) > 1 {
		k.Namespace, k.Name = parts[0], parts[1]
	}
	if len(parts) == 3 {
		if f.gateGiven && f.gate != parts[2] {
			return api.Key{}, usage("%q and --gate %q name different ones: leave one out", argument, f.gate)
		}
		k.Gate = parts[2]
	}
	return k, nil
}

// changeGate does an action to a gate.
func changeGate(action string) func(*program, context.Context, *gateFlags, []string) error {
	return func(p *program, ctx context.Context, f *gateFlags, args []string) error {
		return p.showGate(ctx, f, args, func(ctx context.Context, b board, k api.Key) (api.Gate, error) {
			return b.change(ctx, action, k, f.change)
		})
	}
}

func getGate(p *program, ctx context.Context, f *gateFlags, args []string) error {
	return p.showGate(ctx, f, args, func(ctx context.Context, b board, k api.Key) (api.Gate, error) { return b.gate(ctx, k) })
}

func approveGate(p *program, ctx context.Context, f *gateFlags, args []string) error {
	return p.showGate(ctx, f, args, func(ctx context.Context, b board, k api.Key) (api.Gate, error) {
		g, err := b.gate(ctx, k)
		if err != nil {
			return g, err
		}
		if g.Waiting == nil {
			return g, nothingWaits(ctx, b, k)
		}
		f.change.Mode, f.change.Checksum = api.Bound, g.Waiting.Checksum
		if f.change.Checksum == "" {
			f.change.Mode = api.OneShot
		}
		return b.change(ctx, "open", k, f.change)
	})
}

// nothingWaits says which gates of the canary a rollout waits at, when it is not
// the one that was to be approved.
func nothingWaits(ctx context.Context, b board, k api.Key) error {
	gates, err := b.gates(ctx, api.Filter{Kind: k.Kind, Namespace: k.Namespace, Name: k.Name, Waiting: true})
	if err != nil {
		return fmt.Errorf("nothing waits at %s: %w", k, err)
	}
	if len(gates) == 0 {
		return fmt.Errorf("nothing waits at %s, nor at another gate of that canary: gate list --waiting prints the gates that are waited for", k)
	}
	var names []string
	for _, g := range gates {
		names = append(names, pathOf(g.Key))
	}
	return fmt.Errorf("nothing waits at %s: name the gate of that canary that is waited for: %s", k, strings.Join(names, ", "))
}

// showGate does something with the gate of the argument and prints what it is then.
func (p *program) showGate(ctx context.Context, f *gateFlags, args []string, do func(context.Context, board, api.Key) (api.Gate, error)) error {
	return p.withGate(ctx, f, args, func(ctx context.Context, b board, k api.Key) error {
		g, err := do(ctx, b, k)
		if err != nil {
			return err
		}
		return p.printGates(f.output, g)
	})
}

// withGate calls do with the gate of the argument and where it is.
func (p *program) withGate(ctx context.Context, f *gateFlags, args []string, do func(context.Context, board, api.Key) error) error {
	k, err := f.key(args[0])
	if err != nil {
		return err
	}
	b, err := p.openBoard(&f.boardFlags)
	if err != nil {
		return err
	}
	ctx, cancel := f.bounded(ctx)
	defer cancel()
	return errors.Join(do(ctx, b, k), b.close())
}

func listGates(p *program, ctx context.Context, f *gateFlags, _ []string) error {
	b, err := p.openBoard(&f.boardFlags)
	if err != nil {
		return err
	}
	ctx, cancel := f.bounded(ctx)
	defer cancel()
	gates, err := b.gates(ctx, f.filter())
	var tests map[api.Key]string
	if err == nil && f.output == "wide" {
		tests, err = testsOf(ctx, b, gates)
	}
	if err := errors.Join(err, b.close()); err != nil {
		return err
	}
	if f.output == "wide" {
		return p.printWideGates(gates, tests)
	}
	return p.printGateList(f.output, gates)
}

func auditGates(p *program, ctx context.Context, f *gateFlags, args []string) error {
	if err := f.selectAudit(args); err != nil {
		return err
	}
	b, err := p.openBoard(&f.boardFlags)
	if err != nil {
		return err
	}
	ctx, cancel := f.bounded(ctx)
	defer cancel()
	entries, err := b.audit(ctx, f.filter())
	if err := errors.Join(err, b.close()); err != nil {
		return err
	}
	return p.printAudit(f.output, entries)
}

// selectAudit checks which entries the flags and the argument, if there is one, select.
func (f *gateFlags) selectAudit(args []string) error {
	if _, err := strconv.ParseUint(f.before, 10, 64); err != nil && f.before != "" {
		return usage("--before %q: want the ID of an entry, a number", f.before)
	}
	if len(args) == 0 {
		return nil
	}
	k, err := f.key(args[0])
	switch {
	case err != nil:
		return err
	case f.namespace != "" && f.namespace != k.Namespace:
		return usage("%q and --namespace %q name different canaries: leave one out", args[0], f.namespace)
	case f.name != "" && f.name != k.Name:
		return usage("%q and --name %q name different canaries: leave one out", args[0], f.name)
	}
	f.namespace, f.name, f.gate = k.Namespace, k.Name, k.Gate
	return nil
}

func linkGate(p *program, ctx context.Context, f *gateFlags, args []string) error {
	return p.withGate(ctx, f, args, func(ctx context.Context, b board, k api.Key) error {
		link, err := b.(*runner).client.Link(ctx, k, api.LinkRequest{TTL: f.change.TTL})
		if err != nil {
			return err
		}
		if f.output != "table" {
			return printValue(p.stdout, f.output, link)
		}
		_, err = fmt.Fprintf(p.stdout, "approve  %s\nreject   %s\nexpires  %s\n", link.Approve, link.Reject, link.Expires.UTC().Format(time.RFC3339))
		return err
	})
}
