package call

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"time"

	"github.com/headgate-io/headgate/internal/retry"
)

const maxEvent = 1 << 20 // bytes of an event of a stream

// stream requests a stream of events and calls each with the data of every event, until ctx ends, each returns an
// error, or the stream breaks. It calls onStart when the stream is established; an error of onStart ends the stream.
// The error wraps io.ErrUnexpectedEOF if the server ended the stream.
func (s Server) stream(ctx context.Context, r Request, onStart func() error, each func(data []byte) error) error {
	r.Accept = "text/event-stream"
	resp, err := s.Send(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		return fmt.Errorf("%w: is this a %s?", errNoStream, s.Name)
	}
	if err := onStart(); err != nil {
		return err
	}
	return readEvents(resp.Body, each)
}

// First and maximum delay between two attempts to connect. The actual delay varies by half of it at random.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 15 * time.Second
)

// A FollowConfig configures a stream that is reconnected when it breaks.
type FollowConfig struct {
	Operation string                   // prefix of errors
	Request   func(again bool) Request // returns the request; again is true once there was a stream
	Connected func() error             // called when a stream is established; an error breaks the stream; nil for none
	Each      func(data []byte) error  // called with the data of each event
	Lost      func(error)              // called when a stream breaks, and with nil when it is established again; nil for none
}

// Follow reads a stream, and reconnects when it breaks. It returns nil when ctx ends, and the error of Each if that
// fails. It also fails if the first attempt to connect fails, if the server refuses the request with a [Refusal]
// that is not transient, or if the answer is not a stream of events.
func (s Server) Follow(ctx context.Context, f FollowConfig) error {
	ever, lost := false, false
	tell := func(err error) {
		if lost = err != nil; f.Lost != nil {
			f.Lost(err)
		}
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		var eachErr error
		err := s.stream(ctx, f.Request(ever), func() error {
			if f.Connected != nil {
				if err := f.Connected(); err != nil {
					return err
				}
			}
			if ever, pause = true, firstPause/2; lost {
				tell(nil)
			}
			return nil
		}, func(data []byte) error {
			eachErr = f.Each(data)
			return eachErr
		})
		err = s.WrapError(f.Operation, err)
		var refused Refusal
		switch {
		case ctx.Err() != nil:
			return nil
		case eachErr != nil:
			return eachErr
		case !ever || errors.As(err, &refused) && !refused.Transient() || errors.Is(err, errNoStream):
			return err
		case !lost:
			tell(err)
		}
		if retry.Sleep(ctx, pause/2+rand.N(pause)) != nil {
			return nil
		}
	}
}

// A Refusal is the error for an error answer. If it is transient, the same request may succeed later.
type Refusal interface {
	error
	Transient() bool // not named Temporary, which errors of package net have
}

// errNoStream is the error for an answer that is not a stream of events.
var errNoStream = errors.New("the answer is no stream of events")

// readEvents calls each with the data of every event of a stream (HTML, 9.2.6, except that a carriage return alone does
// not end a line). It returns the first error of each, and an error that wraps io.ErrUnexpectedEOF when the stream ends.
func readEvents(r io.Reader, each func(data []byte) error) error {
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
			if err := each(data); err != nil {
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
