package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
)

const maxEvent = 1 << 20 // bytes of an event of a stream

// Watch yields changes from now on, until ctx ends or the stream breaks. A
// broken stream is the last it yields, as an error: who wants to go on calls
// Watch again, and has missed what was in between: what it looks up when the
// stream is [Client.Connected] misses nothing.
func (c *Client) Watch(ctx context.Context) iter.Seq2[Notice, error] {
	return func(yield func(Notice, error) bool) {
		err := c.watch(ctx, func(n Notice) bool { return yield(n, nil) })
		if err != nil && ctx.Err() == nil && !errors.Is(err, errEnough) {
			yield(Notice{}, c.failed("watch", err))
		}
	}
}

var errEnough = errors.New("the caller has enough")

func (c *Client) watch(ctx context.Context, yield func(Notice) bool) error {
	resp, err := c.send(ctx, request{method: http.MethodGet, path: "watch", accept: "text/event-stream"})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		return errors.New("the answer is no stream of events: is this a test runner?")
	}
	if c.Connected != nil {
		c.Connected()
	}
	return readEvents(resp.Body, func(data []byte) error {
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

// readEvents calls do with the data of each event of a stream (HTML, 9.2.6,
// without carriage returns alone as ends of lines). It returns the first error of do, and io.ErrUnexpectedEOF when
// the stream ends.
func readEvents(r io.Reader, do func(data []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxEvent)
	var data []byte
	for lines.Scan() {
		line := lines.Bytes()
		if value, found := bytes.CutPrefix(line, []byte("data:")); found {
			data = append(append(data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
			if len(data) > maxEvent {
				return fmt.Errorf("event: %w", bufio.ErrTooLong)
			}
		}
		if len(line) == 0 && len(data) > 0 {
			if err := do(data); err != nil {
				return err
			}
			data = data[:0]
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return fmt.Errorf("the stream ended: %w", io.ErrUnexpectedEOF)
}
