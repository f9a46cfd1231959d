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

// stream makes a request for a stream of events and calls each with their data, until ctx ends, each returns an
// error, or the stream breaks: the error wraps io.ErrUnexpectedEOF when it ended. Begun is called when there is a
// stream; its error ends the stream.
func (s Server) stream(ctx context.Context, r Request, begun func() error, each func(data []byte) error) error {
	r.Accept = "text/event-stream"
	resp, err := s.Send(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		return fmt.Errorf("%w: is this a %s?", errNoStream, s.Name)
	}
	if err := begun(); err != nil {
		return err
	}
	return events(resp.Body, each)
}

// Times between two attempts to connect, of which half is left to chance.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 15 * time.Second
)

// A Following is a stream that is connected again when it breaks.
type Following struct {
	Operation string                   // begins errors
	Request   func(again bool) Request // what is asked for; again says that there was a stream before
	Begun     func() error             // is called when there is a stream, which its error breaks; nil for nothing
	Each      func(data []byte) error  // is called with the data of an event
	Lost      func(error)              // is told why a stream is lost, and with nil that there is one again; nil for nothing
}

// Follow reads a stream until ctx ends, which is no error, Each returns an
// error, or the server refuses it with a [Refusal] that stays. A server that
// cannot be reached in the first place ends it as well.
func (s Server) Follow(ctx context.Context, f Following) error {
	ever, lost := false, false
	tell := func(err error) {
		if lost = err != nil; f.Lost != nil {
			f.Lost(err)
		}
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		var own error
		err := s.stream(ctx, f.Request(ever), func() error {
			if f.Begun != nil {
				if err := f.Begun(); err != nil {
					return err
				}
			}
			if ever, pause = true, firstPause/2; lost {
				tell(nil)
			}
			return nil
		}, func(data []byte) error {
			own = f.Each(data)
			return own
		})
		err = s.Failed(f.Operation, err)
		var refused Refusal
		switch {
		case ctx.Err() != nil:
			return nil
		case own != nil:
			return own
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

// A Refusal is the error of an answer. A transient one may be another next time.
type Refusal interface {
	error
	Transient() bool // not Temporary, which errors of package net have
}

// errNoStream is an answer that is no stream of events.
var errNoStream = errors.New("the answer is no stream of events")

// events calls each with the data of each event of a stream (HTML, 9.2.6, without carriage returns alone as ends of
// lines). It returns the first error of each, and io.ErrUnexpectedEOF when the stream ends.
func events(r io.Reader, each func(data []byte) error) error {
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
