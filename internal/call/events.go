package call

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
)

const maxEvent = 1 << 20 // bytes of an event of a stream

// Stream makes a request for a stream of events and calls each with their ID,
// the last that there was, and their data, until ctx ends, each returns an
// error, or the stream breaks: the error wraps io.ErrUnexpectedEOF when it
// ended. Begun is called when there is a stream; nil for nothing.
func (s Server) Stream(ctx context.Context, r Request, begun func(), each func(id string, data []byte) error) error {
	r.Method, r.Accept = http.MethodGet, "text/event-stream"
	resp, err := s.Send(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		return fmt.Errorf("%w: is this a %s?", ErrNoStream, s.Name)
	}
	if begun != nil {
		begun()
	}
	return Events(resp.Body, each)
}

// ErrNoStream is an answer that is no stream of events.
var ErrNoStream = errors.New("the answer is no stream of events")

// Events calls each with the ID and the data of each event of a stream (HTML,
// 9.2.6, without carriage returns alone as ends of lines). It returns the first
// error of each, and io.ErrUnexpectedEOF when the stream ends.
func Events(r io.Reader, each func(id string, data []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxEvent)
	var data []byte
	var id string
	for lines.Scan() {
		line := lines.Bytes()
		if value, found := bytes.CutPrefix(line, []byte("id:")); found {
			id = string(bytes.TrimPrefix(value, []byte(" ")))
		}
		if value, found := bytes.CutPrefix(line, []byte("data:")); found {
			data = append(append(data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
			if len(data) > maxEvent {
				return fmt.Errorf("event: %w", bufio.ErrTooLong)
			}
		}
		if len(line) == 0 && len(data) > 0 {
			if err := each(id, data); err != nil {
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
