package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

// waitGate looks at a gate until it is open.
func waitGate(p *program, ctx context.Context, f *gateFlags, args []string) error {
	k, err := f.key(args[0])
	if err != nil {
		return err
	}
	b, err := p.openBoard(&f.boardFlags)
	if err != nil {
		return err
	}
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("%s is not open after %s", k, f.timeout))
		defer cancel()
	}
	const look = 500 * time.Millisecond
	told := "" // the trouble that was printed last
	for {
		one, cancel := f.bounded(ctx)
		g, err := b.gate(one, k)
		cancel()
		var refused *api.Problem
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &refused) && !retry.Status(refused.Status):
			return err
		case err == nil && opensFor(g, f.change.Checksum):
			return p.printGates(f.output, g)
		}
		told = p.tellTrouble(told, err)
		if err := retry.Sleep(ctx, look); err != nil {
			return context.Cause(ctx)
		}
	}
}

// opensFor reports whether a check of the revision would pass: of that with the
// checksum, or of the one that waits, or of any when nobody does.
func opensFor(g api.Gate, checksum string) bool {
	if !g.Open || g.Checksum == "" || g.Checksum == checksum {
		return g.Open
	}
	return checksum == "" && (g.Waiting == nil || g.Waiting.Checksum == g.Checksum)
}

// tellTrouble prints an error unless one of that cause was printed last, and
// returns the cause: "" when there is no trouble (any more).
func (p *program) tellTrouble(told string, err error) string {
	cause := rootOf(err)
	switch {
	case cause == told:
	case cause == "":
		fmt.Fprintln(p.stderr, "headgate: the test runner answers again")
	default:
		fmt.Fprintf(p.stderr, "headgate: %s; trying again\n", redact.String(err.Error()))
	}
	return cause
}

// rootOf returns the text of what an error wraps in the end, in which there is
// no port that changes with each try.
func rootOf(err error) string {
	if err == nil {
		return ""
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return err.Error()
}
