package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

// wait looks at a gate until it is open.
func (c *gateCall) wait(ctx context.Context, k api.Key) error {
	const look = 500 * time.Millisecond
	told := "" // the trouble that was printed last
	for {
		one, cancel := c.bounded(ctx)
		g, err := c.client.Gate(one, k)
		cancel()
		var refused *api.Problem
		switch {
		case ctx.Err() == nil && errors.As(err, &refused) && !retry.Status(refused.Status):
			return err
		case ctx.Err() == nil && err == nil && opensFor(g, c.change.Checksum):
			return c.printGate(g)
		}
		if ctx.Err() == nil {
			told = c.tellTrouble(told, err)
		}
		if err := retry.Sleep(ctx, look); err != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = fmt.Errorf("%s is not open after %s", k, c.timeout)
			}
			return err
		}
	}
}

// opensFor reports whether a check of the revision would pass: of that with the
// checksum, or of the one that waits, or of any when none waits.
func opensFor(g api.Gate, checksum string) bool {
	if !g.Open || g.Checksum == "" || g.Checksum == checksum {
		return g.Open
	}
	return checksum == "" && (g.Waiting == nil || g.Waiting.Checksum == g.Checksum)
}

// tellTrouble prints an error unless one of that cause was printed last, and
// returns the cause, in which there is no port that changes with each try: "" when there
// is no trouble (any more).
func (p *program) tellTrouble(told string, err error) string {
	cause := ""
	for next := err; next != nil; next = errors.Unwrap(next) {
		cause = next.Error()
	}
	switch {
	case cause == told:
	case cause == "":
		fmt.Fprintln(p.stderr, "headgate: the test runner answers again")
	default:
		fmt.Fprintf(p.stderr, "headgate: %s; trying again\n", redact.String(err.Error()))
	}
	return cause
}

const (
	firstPause = 500 * time.Millisecond
	lastPause  = 30 * time.Second
)

// watch prints changes until it is interrupted.
func (c *gateCall) watch(ctx context.Context, _ api.Key) error {
	told := map[api.Key]string{} // what was printed last
	ever := false                // it was connected
	pause := firstPause
	for {
		err := c.follow(ctx, told, &pause, &ever)
		var refused *api.Problem
		switch {
		case ctx.Err() != nil:
			return nil
		case !ever, errors.As(err, &refused) && !retry.Status(refused.Status), errors.Is(err, errPrint):
			return err
		}
		fmt.Fprintf(c.stderr, "headgate: %s; trying again in %s\n", redact.String(err.Error()), pause)
		if retry.Sleep(ctx, pause) != nil {
			return nil
		}
		pause = min(2*pause, lastPause)
	}
}

// errPrint is an error of what is printed.
var errPrint = errors.New("print")

// follow prints what is not as it was printed last when the stream of changes begins, and
// then the changes, and returns how the stream ended.
func (c *gateCall) follow(ctx context.Context, told map[api.Key]string, pause *time.Duration, ever *bool) (ended error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	tell := func(g api.Gate) {
		if !c.Selects(g.Key) || ctx.Err() != nil {
			return
		}
		if err := c.tell(told, g); err != nil {
			cancel(fmt.Errorf("%w: %w", errPrint, err))
		}
	}
	c.client.Connected = func() {
		one, done := c.bounded(ctx)
		defer done()
		f := c.Filter
		f.Limit = 1000
		gates, err := c.client.Gates(one, f)
		if err != nil {
			cancel(err)
			return
		}
		*ever, *pause = true, firstPause
		for _, g := range gates {
			tell(g)
		}
	}
	for n, err := range c.client.Watch(ctx) {
		if err != nil {
			return err
		}
		if n.Gate != nil {
			tell(*n.Gate)
		}
	}
	return context.Cause(ctx)
}

// tell prints a gate unless it is as it was printed last.
func (c *gateCall) tell(told map[api.Key]string, g api.Gate) error {
	if g.Waiting != nil {
		g.Waiting.Last = time.Time{} // which changes with every check
	}
	text, err := json.Marshal(g)
	if err != nil || told[g.Key] == string(text) {
		return err
	}
	const most = 10000
	if len(told) >= most {
		clear(told)
	}
	told[g.Key] = string(text)
	switch c.output {
	case "json":
		_, err = fmt.Fprintf(c.stdout, "%s\n", text)
		return err
	case "yaml":
		text, err := yaml.JSONToYAML(text)
		if err == nil {
			_, err = fmt.Fprintf(c.stdout, "---\n%s", text)
		}
		return err
	}
	line := []string{instant(time.Now()), pathOf(g.Key), stateOf(g)}
	for _, part := range []struct{ label, text string }{
		{"for ", openFor(g)}, {"until ", instant(g.Expires)}, {"by ", g.Actor}, {"waiting: ", waiting(g)}, {"reason: ", g.Reason},
	} {
		if part.text != "" {
			line = append(line, part.label+part.text)
		}
	}
	_, err = fmt.Fprintln(c.stdout, redact.String(strings.Join(line, " ")))
	return err
}
