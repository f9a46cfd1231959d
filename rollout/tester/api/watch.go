package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/headgate-io/headgate/internal/call"
)

// Watch yields changes from now on, until ctx ends or the stream breaks. A
// broken stream is the last it yields, as an error: who wants to go on calls
// Watch again, and has missed what was in between: what it looks up when the
// stream is [Client.Connected] misses nothing.
func (c *Client) Watch(ctx context.Context) iter.Seq2[Notice, error] {
	return func(yield func(Notice, error) bool) {
		err := c.watch(ctx, func(n Notice) bool { return yield(n, nil) })
		if err != nil && ctx.Err() == nil && !errors.Is(err, errEnough) {
			yield(Notice{}, c.server().Failed("watch", err))
		}
	}
}

var errEnough = errors.New("the caller has enough")

func (c *Client) watch(ctx context.Context, yield func(Notice) bool) error {
	return c.server().Stream(ctx, call.Request{Path: "watch"}, c.Connected, func(_ string, data []byte) error {
		var n Notice
		if err := json.Unmarshal(data, &n); err != nil {
			return fmt.Errorf("event: %w", err)
		}
		if n.Gate == nil && n.Run == nil {
			return nil // of a later version
		}
		if !yield(n) {
			return errEnough
		}
		return nil
	})
}
