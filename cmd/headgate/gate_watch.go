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

const (
	firstPause = 500 * time.Millisecond
	lastPause  = 30 * time.Second
)

// A lookout prints changes of gates.
type lookout struct {
	*program
	flags  *gateFlags
	client *api.Client
	told   map[api.Key]string // what was printed last
	since  bool               // it was connected since the last failure
	ever   bool
	err    error // of what it printed, or looked up
}

// watchGates prints changes until it is interrupted.
func watchGates(p *program, ctx context.Context, f *gateFlags, _ []string) error {
	r, err := p.runner(&f.boardFlags)
	if err != nil {
		return err
	}
	l := &lookout{program: p, flags: f, client: r.client, told: map[api.Key]string{}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.client.Connected = func() { l.connected(ctx, cancel) }
	pause := firstPause
	for {
		err := l.watch(ctx)
		var refused *api.Problem
		switch {
		case l.err != nil:
			return l.err
		case ctx.Err() != nil:
			return nil
		case !l.ever, errors.As(err, &refused) && !retry.Status(refused.Status):
			return err
		case l.since:
			pause = firstPause
		}
		l.since = false
		fmt.Fprintf(p.stderr, "headgate: %s; trying again in %s\n", redact.String(err.Error()), pause)
		if retry.Sleep(ctx, pause) != nil {
			return nil
		}
		pause = min(2*pause, lastPause)
	}
}

// watch prints the changes of one stream, and returns how it ended.
func (l *lookout) watch(ctx context.Context) error {
	for n, err := range l.client.Watch(ctx) {
		if err != nil {
			return err
		}
		if n.Gate != nil && l.selects(n.Gate.Key) {
			l.tell(*n.Gate)
		}
		if l.err != nil {
			return l.err
		}
	}
	return nil
}

// connected prints what is not as it was last.
func (l *lookout) connected(ctx context.Context, cancel context.CancelFunc) {
	one, done := l.flags.bounded(ctx)
	defer done()
	f := l.flags.filter()
	f.Limit = 1000
	gates, err := l.client.Gates(one, f)
	if err != nil {
		if !l.ever {
			l.err = err
			cancel()
		}
		return // the stream tells, or breaks as well
	}
	l.since, l.ever = true, true
	for _, g := range gates {
		if l.selects(g.Key) {
			l.tell(g)
		}
	}
}

func (l *lookout) selects(k api.Key) bool {
	f := l.flags
	return k.Kind == f.kind && (f.namespace == "" || f.namespace == k.Namespace) && (f.name == "" || f.name == k.Name) && (f.gate == "" || f.gate == k.Gate)
}

// tell prints a gate unless it is as it was printed last.
func (l *lookout) tell(g api.Gate) {
	if g.Waiting != nil {
		g.Waiting.Last = time.Time{} // which changes with every check
	}
	text, err := json.Marshal(g)
	if err == nil && l.told[g.Key] != string(text) {
		const most = 10000
		if len(l.told) >= most {
			clear(l.told)
		}
		l.told[g.Key] = string(text)
		err = l.print(g, text)
	}
	if err != nil && l.err == nil {
		l.err = err
	}
}

func (l *lookout) print(g api.Gate, text []byte) error {
	switch l.flags.output {
	case "json":
		_, err := fmt.Fprintf(l.stdout, "%s\n", text)
		return err
	case "yaml":
		text, err := yaml.JSONToYAML(text)
		if err == nil {
			_, err = fmt.Fprintf(l.stdout, "---\n%s", text)
		}
		return err
	}
	parts := []string{instant(time.Now()), pathOf(g.Key), stateOf(g)}
	for _, part := range []struct{ label, text string }{
		{"for ", openFor(g)}, {"until ", instant(g.Expires)}, {"by ", g.Actor}, {"waiting: ", waiting(g)}, {"reason: ", g.Reason},
	} {
		if part.text != "" {
			parts = append(parts, part.label+part.text)
		}
	}
	_, err := fmt.Fprintln(l.stdout, redact.String(strings.Join(parts, " ")))
	return err
}
