package main

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/rollout"
)

func (p *program) hook() *cobra.Command {
	c := &cobra.Command{
		Use:   "hook",
		Short: "Call the webhooks of a rollout",
		Args:  noCommand,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(p.callHook())
	return c
}

// hookFlags say which webhook is called, and with what.
type hookFlags struct {
	manifestFlags
	adhocFlags
	payloadFlags
	output  string
	timeout time.Duration
}

func (p *program) callHook() *cobra.Command {
	f := new(hookFlags)
	c := &cobra.Command{
		Use:   "call {-f FILE|DIR|- [[NAMESPACE/]CANARY] WEBHOOK | URL}",
		Short: "Call one webhook and print what it answers, and what that decides",
		Long: `Call posts what a rollout would to one webhook: one of those of a Canary, by its name, or the one at a URL,
which flags describe as the fields of a manifest do. It tries as often as the webhook has retries, and follows
the same rules: see docs/rollout.md, Webhooks.

Phase, checksum and metadata of the payload are those of the flags; metadata is added to that of the manifest.
Metadata headgate.trial: "true" marks it as a trial, so that headgate tester does not show it as a canary that waits;
--metadata headgate.trial=false sends what a rollout would.
A webhook of type event gets an event: with --event-message its text, with --event-warning one of type Warning.

The body of the answer is printed with control characters replaced; -o body writes it as it came, and nothing else.

Exit codes: 0 the type of the webhook accepts the answer (for type rollback: it asks for a rollback), 1 it
does not, or there was none, 2 usage or an invalid object.`,
		Example: `  headgate hook call -f canary.yaml load-test
  headgate hook call -f canary.yaml approve --phase Waiting -o json
  headgate hook call https://gate.example.org/gate/check --type confirm-promotion --name app --namespace prod
  headgate hook call http://127.0.0.1:8080/ --metadata type=bash --metadata "cmd=curl -sf http://127.0.0.1:9898/" --timeout 1m
  headgate hook call https://events.example.org/ --type event --name app --event-message "New revision" --hmac-key-file key`,
		Args: arguments(1, 2),
		RunE: func(c *cobra.Command, args []string) error { return p.runCallHook(c.Context(), f, args) },
	}
	f.manifestFlags.register(c)
	f.adhocFlags.register(c)
	f.payloadFlags.register(c)
	spanVar(c, &f.timeout, "timeout", 0, "bound of each attempt; default that of the manifest, or 10s")
	c.Flags().StringVarP(&f.output, "output", "o", "text", "what to print: text, json or body")
	complete(c, "output", "text", "json", "body")
	c.ValidArgsFunction = completeHooks(&f.manifestFlags)
	return c
}

func (p *program) runCallHook(ctx context.Context, f *hookFlags, args []string) error {
	if !slices.Contains([]string{"text", "json", "body"}, f.output) {
		return usage("-o %q: want text, json or body", f.output)
	}
	call, err := p.prepareCall(ctx, f, args)
	if err != nil {
		return err
	}
	defer call.caller.Close()
	call.make(ctx)
	switch {
	case ctx.Err() != nil:
		return failed(context.Cause(ctx))
	case call.err != nil && call.answer.Attempts == 0:
		return &exitError{exitUsage, call.err} // nobody was called
	}
	if err := p.printCall(f.output, call); err != nil {
		return failed(err)
	}
	if !call.accepted() {
		return &exitError{exitFailed, nil}
	}
	return nil
}

// A call is one call of a webhook, and what came of it.
type call struct {
	caller  *rollout.Caller
	hook    rollout.Hook
	payload rollout.Payload
	event   *rollout.Event // of type event
	answer  rollout.Answer
	err     error
	took    time.Duration
}

func (p *program) prepareCall(ctx context.Context, f *hookFlags, args []string) (*call, error) {
	c := &call{caller: &rollout.Caller{Proxy: http.ProxyFromEnvironment}}
	var err error
	if len(f.files) > 0 {
		err = p.declaredCall(ctx, c, f, args)
	} else {
		err = p.adhocCall(c, f, args)
	}
	if err != nil {
		return nil, err
	}
	if f.timeout < 0 {
		return nil, usage("--timeout %s: want a positive time", f.timeout)
	}
	if f.timeout > 0 {
		c.hook.Timeout = rollout.Duration(f.timeout)
	}
	return c, c.fill(&f.payloadFlags)
}

// declaredCall makes c that of a webhook in a manifest.
func (p *program) declaredCall(ctx context.Context, c *call, f *hookFlags, args []string) error {
	if err := f.adhocFlags.unused(); err != nil {
		return err
	}
	b, err := p.readBook(ctx, &f.manifestFlags)
	if err != nil {
		return err
	}
	p.tellWarnings(b)
	canary, err := b.find(strings.Join(args[:len(args)-1], ""))
	if err != nil {
		return err
	}
	if c.caller.Secrets, err = p.secretsOf(f.secrets, b.documents); err != nil {
		return err
	}
	name := args[len(args)-1]
	var names []string
	for _, hook := range canary.Spec.Analysis.Webhooks {
		if hook.Name == name {
			c.hook = hook
			c.payload.Name, c.payload.Namespace = canary.Metadata.Name, canary.Namespace()
			return nil
		}
		names = append(names, hook.Name)
	}
	if len(names) == 0 {
		return usage("canary %s has no webhooks", nameOf(canary))
	}
	return usage("canary %s has no webhook %q; there are %s", nameOf(canary), name, strings.Join(names, ", "))
}

func (c *call) make(ctx context.Context) {
	start := time.Now()
	if c.event != nil {
		c.answer, c.err = c.caller.Event(ctx, c.hook, *c.event)
	} else {
		c.answer, c.err = c.caller.Call(ctx, c.hook, c.payload)
	}
	c.took = time.Since(start)
}

// accepted reports whether the type of the webhook accepts the answer.
func (c *call) accepted() bool { return c.err == nil }

// typeOf is the type of a webhook, of those that have none as well.
func typeOf(h rollout.Hook) rollout.HookType {
	if h.Type == "" {
		return rollout.HookRollout
	}
	return h.Type
}

// completeHooks offers the webhooks of the canaries in the files of -f.
func completeHooks(f *manifestFlags) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var names []string
		canaries := f.offered()
		for _, canary := range canaries {
			if len(args) == 0 && len(canaries) > 1 {
				names = append(names, nameOf(canary))
				continue
			}
			if len(args) > 0 && args[0] != nameOf(canary) && args[0] != canary.Metadata.Name || len(args) > 1 {
				continue
			}
			for _, hook := range canary.Spec.Analysis.Webhooks {
				names = append(names, hook.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
