package tester

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

// streaming returns a context that also ends with the test runner.
func (s *Server) streaming(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-s.ending():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); <-stopped }
}

// watch streams changes of gates and runs that the caller may see.
func (c *apiCall) watch() error {
	answer.EventHeader(c.w.Header())
	if c.r.Method == http.MethodHead {
		return nil
	}
	ctx, end := c.streaming(c.r.Context())
	defer end()
	gates, runs := c.Gates.Watch(ctx), c.Runs.Watch(ctx)
	idle := c.Keepalive
	if idle <= 0 {
		idle = defaultKeepalive
	}
	ticker := time.NewTicker(idle)
	defer ticker.Stop()
	out := answer.NewStream(c.w)
	defer out.Close()
	for line := []byte(": changes from now on\n\n"); ; {
		if line != nil && out.Send(line) != nil {
			return nil
		}
		var more bool
		if line, more = c.next(ctx, gates, runs, ticker.C); !more {
			return nil
		}
	}
}

// renew reports whether the caller is still known, and sees what it may do now.
func (c *apiCall) renew() bool {
	grant, err := c.Guard.Renew(c.Grant)
	c.Grant = grant
	return err == nil
}

// next returns what is to be written next, nil for nothing, and false when the
// stream ends, as it does when the caller is not known any more.
func (c *apiCall) next(ctx context.Context, gates <-chan api.Gate, runs <-chan api.Run, idle <-chan time.Time) ([]byte, bool) {
	var notice api.Notice
	select {
	case <-ctx.Done():
		return nil, false
	case <-idle:
		return []byte(":\n\n"), c.renew()
	case state, more := <-gates:
		if more = more && c.renew(); !more || c.Check(state.Key) != nil {
			return nil, more
		}
		notice.Gate = &state
	case state, more := <-runs:
		if more = more && c.renew(); !more || c.See(state.Namespace, state.Type) != nil {
			return nil, more
		}
		state.Output, state.URL = "", c.runURL(c.r, state.ID)
		notice.Run = &state
	}
	text, err := json.Marshal(notice)
	if err != nil {
		return nil, false
	}
	return append(append([]byte("data: "), text...), "\n\n"...), true
}
