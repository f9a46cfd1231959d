package bucket

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/source"
)

// cut is the content of o from offset on, which ends with err, or without an
// error if that is nil, before the byte end.
func cut(o Object, offset, end int64, err error) io.ReadCloser {
	if err == nil {
		err = io.EOF
	}
	return io.NopCloser(io.MultiReader(body(o, offset, max(end, offset)), readFunc(func([]byte) (int, error) { return 0, err })))
}

// A read that breaks is continued where it broke, however often it does, as
// long as it gets on.
func TestResume(t *testing.T) {
	const size = 300_000
	for name, c := range map[string]struct {
		breaks breaks
		opens  int64 // -1: it is given up at the fourth
	}{
		"before the first byte": {always(0), -1},
		"after each byte":       {always(1), -1},
		"after each 20,000":     {always(20_000), -1},
		"the fourth time":       {ends(1, 2, 3, minGain), -1},
		"at the first":          {ends(0, size), 2},
		"behind the first":      {ends(1, size), 2},
		"at the end of a piece": {ends(minShare, size), 2},
		"at the last":           {ends(size-1, size), 2},
		"at several places":     {ends(1, 1000, minGain, minGain+1, 100_000, size-1, size), 7},
		"three times":           {ends(1, 2, minGain, minGain+1, minGain+2, size), 6},
		"after each 30,000":     {always(30_000), 10},
		"twice without a byte":  {stuck(2, 5000), 4},
		"twice in two places":   {stuck(2, 5000, 80_000), 7},
	} {
		for how, broken := range map[string]error{"reset": syscall.ECONNRESET, "torn": io.ErrUnexpectedEOF, "short": nil} {
			t.Run(name+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					breaks := c.breaks()
					d := &shop{open: func(_ context.Context, o Object, offset int64) (io.ReadCloser, error) {
						if end := breaks(offset); end < size {
							return cut(o, offset, end, broken), nil
						}
						return nil, nil
					}}
					sizes := map[string]int64{"a": size}
					var out bytes.Buffer
					_, err := holding(t, d, sizes).WriteTo(t.Context(), &out)
					if c.opens < 0 {
						if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(` of %d bytes, 4 times within 64 KiB: `, size)) || errors.Is(err, source.ErrMoved) {
							t.Error(err)
						}
						if n := d.opened.Load(); n != maxBreaks {
							t.Errorf("opened %d times instead of %d", n, maxBreaks)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					if n := d.opened.Load(); n != c.opens {
						t.Errorf("opened %d times instead of %d", n, c.opens)
					}
					checked(t, &out, sizes)
				})
			})
		}
	}
}

// breaks returns what says where a connection that begins at offset ends.
type breaks func() func(offset int64) (end int64)

// always lets connections end after n bytes.
func always(n int64) breaks {
	return func() func(int64) int64 { return func(offset int64) int64 { return offset + n } }
}

// ends lets connections end at each of places, once.
func ends(places ...int64) breaks {
	return func() func(int64) int64 {
		next := 0
		return func(int64) int64 {
			next++
			return places[next-1]
		}
	}
}

// stuck lets connections end at each of places: the one that comes there, and n that begin there.
func stuck(n int, places ...int64) breaks {
	var all []int64
	for _, at := range places {
		for range n + 1 {
			all = append(all, at)
		}
	}
	return ends(append(all, 1<<40)...)
}

// An object that is not what was listed, or cannot be had.
func TestResumeRefused(t *testing.T) {
	const size = 100_000
	changed := &StatusError{Doing: "get object", Status: 412}
	absent := &StatusError{Doing: "get object", Status: 404}
	for name, c := range map[string]struct {
		open   func(ctx context.Context, o Object, offset int64) (io.ReadCloser, error)
		opens  int64
		moved  bool
		want   string
		reason string // default: BucketOperationFailed
	}{
		"changed":              {refuse(0, changed), 1, true, "it has changed since it was listed: the origin changed while it was fetched", ""},
		"changed, as wrapped":  {refuse(0, fmt.Errorf("get: %w", ErrChanged)), 1, true, "it has changed since it was listed", ""},
		"changed in the midst": {refuse(5000, changed), 2, true, "it has changed since it was listed", ""},
		"gone":                 {refuse(0, absent), 1, true, "it has disappeared since it was listed", ""},
		"gone in the midst":    {refuse(70_000, absent), 2, true, "it has disappeared since it was listed", ""},
		"grown":                {longer(0), 1, true, "it has grown since it was listed", ""},
		"grown in the midst":   {longer(5000), 2, true, "it has grown since it was listed", ""},
		"forbidden":            {refuse(0, &StatusError{Doing: "get object", Status: 403, Code: "ExpiredToken"}), 1, false, "get object: 403 Forbidden: ExpiredToken", "AuthenticationFailed"},
		"forbidden midst":      {refuse(5000, &StatusError{Doing: "get object", Status: 403}), 2, false, "get object: 403 Forbidden", "AuthenticationFailed"},
		"busy":                 {refuse(0, &StatusError{Doing: "get object", Status: 503, After: 7 * time.Second}), 1, false, "503 Service Unavailable: try again in 7s", ""},
		"unreachable":          {refuse(0, syscall.ECONNREFUSED), 4, false, "it ends after 0 of 100000 bytes, 4 times within 64 KiB: connection refused", ""},
		"unreachable in midst": {refuse(5000, syscall.ECONNREFUSED), 4, false, "it ends after 5000 of 100000 bytes, 4 times within 64 KiB: connection refused", ""},
		"shorter than listed":  {shorter(9000), 4, false, "it ends after 9000 of 100000 bytes, 4 times within 64 KiB: unexpected EOF", ""},
		"an error after it all": {func(_ context.Context, o Object, offset int64) (io.ReadCloser, error) {
			return cut(o, offset, size, errors.New("checksum mismatch")), nil
		}, 1, false, "checksum mismatch", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var opened atomic.Int64
				d := &shop{open: func(ctx context.Context, o Object, offset int64) (io.ReadCloser, error) {
					if o.Key == "b" {
						opened.Add(1)
						return c.open(ctx, o, offset)
					}
					return nil, nil
				}}
				_, err := holding(t, d, map[string]int64{"a": 9, "b": size, "c": 9}).WriteTo(t.Context(), io.Discard)
				if err == nil || !strings.Contains(err.Error(), `"b": `) || !strings.Contains(err.Error(), c.want) {
					t.Fatal(err)
				}
				if errors.Is(err, source.ErrMoved) != c.moved {
					t.Errorf("moved: %t", !c.moved)
				}
				step, ok := errors.AsType[*source.StepError](err)
				if !ok || step.Step != source.StepFetch || step.Reason != cmp.Or(c.reason, operationFailed) {
					t.Errorf("%#v", step)
				}
				if n := opened.Load(); n != c.opens {
					t.Errorf("opened %d times instead of %d", n, c.opens)
				}
			})
		})
	}
}

// refuse answers with err from the byte at on; what begins before that ends there.
func refuse(at int64, err error) func(context.Context, Object, int64) (io.ReadCloser, error) {
	return func(_ context.Context, o Object, offset int64) (io.ReadCloser, error) {
		if offset >= at {
			return nil, err
		}
		return cut(o, offset, at, syscall.ECONNRESET), nil
	}
}

// longer sends more than was announced, after a break at the byte at if that is not 0.
func longer(at int64) func(context.Context, Object, int64) (io.ReadCloser, error) {
	return func(_ context.Context, o Object, offset int64) (io.ReadCloser, error) {
		if offset < at {
			return cut(o, offset, at, syscall.ECONNRESET), nil
		}
		return body(o, offset, o.Size+1), nil
	}
}

// shorter never sends more than end bytes.
func shorter(end int64) func(context.Context, Object, int64) (io.ReadCloser, error) {
	return func(_ context.Context, o Object, offset int64) (io.ReadCloser, error) {
		return cut(o, offset, end, nil), nil
	}
}

// A connection on which nothing comes any more is given up.
func TestResumeStalled(t *testing.T) {
	stalls := func(places ...int64) func(context.Context, Object, int64) (io.ReadCloser, error) {
		return func(ctx context.Context, o Object, offset int64) (io.ReadCloser, error) {
			if len(places) == 0 {
				return nil, nil
			}
			end := places[0]
			places = places[1:]
			return io.NopCloser(io.MultiReader(body(o, offset, end), readFunc(func([]byte) (int, error) { <-ctx.Done(); return 0, ctx.Err() }))), nil
		}
	}
	synctest.Test(t, func(t *testing.T) {
		begun, sizes := time.Now(), map[string]int64{"a": 500_000}
		var out bytes.Buffer
		if _, err := holding(t, &shop{open: stalls(100, 300_000)}, sizes).WriteTo(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != 2*stallAfter {
			t.Errorf("it was given up after %s", took)
		}
		checked(t, &out, sizes)
	})
	synctest.Test(t, func(t *testing.T) {
		c := holding(t, &shop{open: stalls(100, 100, 100, 100, 100)}, map[string]int64{"a": 500_000})
		c.origin.bucket.Spec.Timeout = source.Duration(10 * time.Minute)
		_, err := c.WriteTo(t.Context(), io.Discard)
		if err == nil || !strings.Contains(err.Error(), "it ends after 100 of 500000 bytes, 4 times within 64 KiB: no data for 20s") {
			t.Error(err)
		}
	})
}

// What a token service answers says nothing about the object that was asked for.
func TestLoginLost(t *testing.T) {
	for _, status := range []int{404, 412, 400} {
		d := &shop{open: func(context.Context, Object, int64) (io.ReadCloser, error) {
			return nil, &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed", Err: &StatusError{Doing: "log in", Status: status}}
		}}
		_, err := holding(t, d, map[string]int64{"a": 9}).WriteTo(t.Context(), io.Discard)
		step, ok := errors.AsType[*source.StepError](err)
		if !ok || step.Reason != "AuthenticationFailed" || errors.Is(err, source.ErrMoved) || d.opened.Load() != 1 {
			t.Errorf("%d: %v, opened %d times", status, err, d.opened.Load())
		}
	}
}
