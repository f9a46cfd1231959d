package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/retry"
)

const (
	minInterval  = 100 * time.Millisecond
	patience     = time.Minute // with a server that does not tell how it is going
	minAttempts  = 3
	longestPause = time.Minute // that a server may ask for
)

// An ending is what a state that is not left any more means: words say how it
// failed, "" for success.
type ending struct{ words string }

// A poll asks for the state of something until it has ended.
type poll struct {
	interval time.Duration
	ask      func(ctx context.Context) (state, message string, err error)
	endings  map[string]ending
	out      io.Writer
}

// run returns the state at the end, and what is said about it. The error says that there is none: ctx
// ended, or the server does not tell.
func (p *poll) run(ctx context.Context) (string, string, error) {
	var failing time.Time // since when
	failures, shown, pause := 0, "", p.interval
	for {
		if err := retry.Sleep(ctx, pause); err != nil {
			return "", "", context.Cause(ctx)
		}
		pause = p.interval
		state, message, err := p.ask(ctx)
		switch {
		case ctx.Err() != nil:
			return "", "", context.Cause(ctx)
		case err == nil:
			failures = 0
			if said := strings.TrimSpace(state + " " + message); said != shown {
				fmt.Fprintf(p.out, "state %s\n", said)
				shown = said
			}
			if p.ended(state) {
				return state, message, nil
			}
			continue
		case final(err):
			return "", "", err
		}
		now := time.Now()
		if failures++; failures == 1 {
			failing = now
			fmt.Fprintf(p.out, "%v\n", err)
		}
		if failures >= minAttempts && now.Sub(failing) >= patience {
			return "", "", fmt.Errorf("given up after %d failures in a row: %w", failures, err)
		}
		if r, ok := errors.AsType[*refusal](err); ok {
			pause = max(pause, min(r.after, longestPause))
		}
	}
}

func (p *poll) ended(state string) bool {
	_, ok := p.endings[state]
	return ok
}

// linger returns a context that ends a while after ctx has: what starts something
// is not given up in the middle, or nobody could end it.
func linger(ctx context.Context, while time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(while)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(context.Cause(ctx))
		case <-late.Done():
		}
	})
	return late, func() { stop(); cancel(nil) }
}
