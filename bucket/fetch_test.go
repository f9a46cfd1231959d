package bucket

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// A sizedStore has objects of any size without using memory.
type sizedStore struct {
	Driver
	latency time.Duration // of each request
	open    func(ctx context.Context, o Object, offset int64) (io.ReadCloser, error)
	opened  atomic.Int64
}

func (s *sizedStore) Open(ctx context.Context, o Object, offset int64) (io.ReadCloser, error) {
	s.opened.Add(1)
	if s.latency > 0 {
		select {
		case <-time.After(s.latency):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if s.open != nil {
		if body, err := s.open(ctx, o, offset); body != nil || err != nil {
			return body, err
		}
	}
	return body(o, offset, o.Size), nil
}

// body returns the content of o from offset to end.
func body(o Object, offset, end int64) io.ReadCloser {
	from := int64(crc32.ChecksumIEEE([]byte(o.Key + " " + o.ETag)))
	return io.NopCloser(io.NewSectionReader(endlessReader{}, from+offset, end-offset))
}

// An endlessReader reader returns noise that repeats itself with a prime period.
type endlessReader struct{}

var noise = func() []byte {
	b := make([]byte, 4_093) // compresses well when repeated
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}()

func (endlessReader) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		n += copy(p[n:], noise[(off+int64(n))%int64(len(noise)):])
	}
	return n, nil
}

// contentOf returns a content of objects of these sizes.
func contentOf(t testing.TB, d Driver, sizes map[string]int64) *content {
	t.Helper()
	var objects []Object
	for key, size := range sizes {
		objects = append(objects, Object{Key: key, ETag: "e", Size: size})
	}
	slices.SortFunc(objects, byKey)
	s := &snapshot{driver: d, access: &Access{}, selection: selection{files: objects}}
	b := &source.Bucket{Spec: source.BucketSpec{BucketName: "apps", Timeout: source.Duration(time.Hour)}}
	b.Kind, b.Metadata.Name = "Bucket", "b"
	return &content{s, New(b, source.Env{}, nil)}
}

func small(n int) map[string]int64 {
	sizes := map[string]int64{}
	for i := range n {
		sizes[fmt.Sprintf("d%03d/o%05d", i%100, i)] = 4 << 10
	}
	return sizes
}

// checked reads archive and compares its files with the store.
func checked(t *testing.T, archive io.Reader, sizes map[string]int64) {
	t.Helper()
	tree, err := artifact.Read(archive, artifact.Limits{})
	must(t, err)
	defer tree.Close()
	for key, size := range sizes {
		got, err := fs.ReadFile(tree, key)
		want := make([]byte, size)
		io.ReadFull(body(Object{Key: key, ETag: "e"}, 0, size), want)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %d bytes, %v", key, len(got), err)
		}
	}
	testenv.Equal(t, tree.Report().Files, len(sizes), "files")
}

func TestFetch(t *testing.T) {
	for name, sizes := range map[string]map[string]int64{
		"nothing":    {},
		"small":      small(3000),
		"edges":      {"a": 0, "b": 1, "c": minShare - 1, "d": minShare, "e": minShare + 1, "g": maxAhead, "h": maxAhead + 1, "i": 0},
		"large":      {"a": 5 << 20, "b": 1, "c": 9 << 20, "d": 5 << 20, "e": 0, "f/a": 7 << 20, "f-a": 3},
		"in between": {"a": 256 << 10, "b": 256<<10 + 1, "c": 300 << 10, "d": 9},
	} {
		t.Run(name, func(t *testing.T) {
			sourcetest.NoLeaks(t, func(ctx context.Context) {
				var out bytes.Buffer
				report, err := contentOf(t, &sizedStore{}, sizes).WriteTo(ctx, &out)
				must(t, err)
				checked(t, &out, sizes)
				testenv.Equal(t, report.Message, fmt.Sprintf("stored artifact with %d fetched files from 'apps' bucket", len(sizes)))
			})
		})
	}
}

// TestFetchLatency checks that requests are concurrent, so that their latencies overlap.
func TestFetchLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, d := time.Now(), &sizedStore{latency: 20 * time.Millisecond}
		_, err := contentOf(t, d, small(3200)).WriteTo(t.Context(), io.Discard)
		must(t, err)
		if took, want := time.Since(start), 3200/maxRequests*20*time.Millisecond; took > want*11/10 {
			t.Errorf("%s of waiting instead of %s", took, want)
		}
	})
}

// TestFetchMemory checks that memory use does not grow with the objects, and that all
// memory is released.
func TestFetchMemory(t *testing.T) {
	d := &sizedStore{open: func(_ context.Context, o Object, offset int64) (io.ReadCloser, error) {
		return io.NopCloser(io.LimitReader(zeros{}, o.Size-offset)), nil
	}}
	for name, sizes := range map[string]map[string]int64{
		"one of 96 MiB": {"a": 96 << 20},
		"many":          {"a": 40 << 20, "b": 9, "c": 7 << 20, "d": 8 << 20, "e": 8 << 20, "f": 7 << 20, "g": 40 << 20},
		"small":         small(5000),
	} {
		f := newFetch(t.Context(), contentOf(t, d, sizes).snapshot, nil, func(int) {})
		used := measure.AllocatedBytes(func() {
			_, err := f.pack(func(ctx context.Context) (artifact.Report, error) { return artifact.Tar(ctx, io.Discard, f.tree) })
			must(t, err)
		})
		if !f.memory.TryAcquire(maxAheadTotal) || len(f.arrivals) != 0 || used > 64<<20 {
			t.Errorf("%s: %d arrivals are left, %d bytes were allocated", name, len(f.arrivals), used)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestFetchFirstError checks that the first error ends the fetch and names its object.
func TestFetchFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after := map[string]time.Duration{"a": 5 * time.Second, "b": time.Second, "c": 9 * time.Second}
		start := time.Now()
		d := &sizedStore{open: func(ctx context.Context, o Object, _ int64) (io.ReadCloser, error) {
			if wait := after[o.Key]; wait > 0 {
				return nil, errors.Join(transport.Sleep(ctx, wait), &StatusError{Doing: "get " + o.Key, Status: 400})
			}
			return nil, nil
		}}
		_, err := contentOf(t, d, map[string]int64{"0": 9, "a": 9, "b": 9, "c": 9, "d": 9}).WriteTo(t.Context(), io.Discard)
		if err == nil || !strings.Contains(err.Error(), `'apps': "b": get b: 400`) || time.Since(start) != time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

// TestFetchEndsSoon checks that after an object fails, later objects are not requested.
func TestFetchEndsSoon(t *testing.T) {
	for size, bound := range map[int64]int64{100: maxAheadTotal / minShare, 1 << 20: maxAheadTotal >> 20} {
		synctest.Test(t, func(t *testing.T) {
			sizes := map[string]int64{}
			for i := range 500 {
				sizes[fmt.Sprintf("o%04d", i)] = size
			}
			d := &sizedStore{latency: time.Millisecond, open: func(ctx context.Context, o Object, _ int64) (io.ReadCloser, error) {
				if o.Key == "o0100" {
					return nil, fmt.Errorf("get: %w", ErrChanged)
				}
				return nil, nil
			}}
			_, err := contentOf(t, d, sizes).WriteTo(t.Context(), io.Discard)
			if err == nil || !strings.Contains(err.Error(), `"o0100"`) || !errors.Is(err, source.ErrMoved) {
				t.Error(err)
			}
			if n := d.opened.Load(); n > 101+bound {
				t.Errorf("%d objects were asked for", n)
			}
		})
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// TestFetchEnded checks that a fetch ends at once with its context or its timeout,
// wherever the store hangs, and that the error says how many objects arrived completely.
func TestFetchEnded(t *testing.T) {
	canceled := errors.New("not wanted any more")
	for _, size := range []int64{1000, maxAhead + 1} {
		for _, cause := range []error{canceled, context.DeadlineExceeded} {
			synctest.Test(t, func(t *testing.T) { // fails if a goroutine is left
				c := contentOf(t, &sizedStore{open: func(ctx context.Context, o Object, _ int64) (io.ReadCloser, error) {
					hang := readFunc(func([]byte) (int, error) { <-ctx.Done(); return 0, context.Cause(ctx) })
					switch o.Key {
					case "b":
						return io.NopCloser(io.MultiReader(io.LimitReader(zeros{}, 100), hang)), nil
					case "c":
						_, err := hang(nil)
						return nil, err
					}
					return nil, nil
				}}, map[string]int64{"a": 9, "b": size, "c": 9})
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if cause == canceled {
					time.AfterFunc(5*time.Second, func() { cancel(canceled) })
				} else {
					c.origin.bucket.Spec.Timeout = source.Duration(5 * time.Second)
				}
				start := time.Now()
				_, err := c.WriteTo(ctx, io.Discard)
				if !errors.Is(err, cause) || !strings.Contains(err.Error(), "1 of 3 objects arrived") || time.Since(start) != 5*time.Second {
					t.Errorf("%d bytes, after %s: %v", size, time.Since(start), err)
				}
				if step, ok := errors.AsType[*source.StepError](err); cause != canceled && (!ok || step.Step != source.StepFetch || step.Reason != "BucketOperationFailed") {
					t.Errorf("%#v", err)
				}
			})
		}
	}
}

// TestFetchStorageFails checks that a full storage is not reported as an error of the
// bucket, and that the fetch ends at once.
func TestFetchStorageFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("no space left")
		d := &sizedStore{open: func(ctx context.Context, o Object, _ int64) (io.ReadCloser, error) {
			if o.Key > "d" {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			return nil, nil
		}}
		sizes := map[string]int64{"a": 10 << 20, "d1": 100, "d2": 100, "e": 1 << 20, "f": 9}
		_, err := contentOf(t, d, sizes).WriteTo(t.Context(), writeFunc(func([]byte) (int, error) { return 0, full }))
		testenv.ErrorIs(t, err, full)
		if step, ok := errors.AsType[*source.StepError](err); ok {
			t.Errorf("the step is %s", step.Step)
		}
	})
}

type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(p []byte) (int, error) { return f(p) }

func TestFetchProgress(t *testing.T) {
	var calls []source.Progress
	sizes := small(1234)
	sizes["empty"] = 0
	c := contentOf(t, &sizedStore{}, sizes)
	c.origin.env.Progress = func(p source.Progress) { calls = append(calls, p) }
	_, err := c.WriteTo(t.Context(), io.Discard)
	must(t, err)
	if n := len(calls); n < 10 || n > maxReports+1 {
		t.Errorf("%d calls", n)
	}
	for i, p := range calls[1:] {
		if p.Done <= calls[i].Done {
			t.Errorf("%d after %d", p.Done, calls[i].Done)
		}
	}
	testenv.Equal(t, calls[len(calls)-1], source.Progress{Object: "bucket/default/b", Phase: "receiving objects", Done: 1235, Total: 1235, Unit: "objects"})
}

// TestExplainAgain checks that Explain returns the files and the ignored objects, except
// those that conflict with files.
func TestExplainAgain(t *testing.T) {
	c := contentOf(t, &sizedStore{}, map[string]int64{"a": 9, "dir/b": 3, "dir-c": 1})
	c.ignored = []Object{{Key: "dir", ETag: "e"}, {Key: "a/b", ETag: "e"}, {Key: "other/x", ETag: "e", Size: 4}}
	first, _, err := c.Explain(t.Context())
	must(t, err)
	var names []string
	if err := fs.WalkDir(first, ".", func(name string, _ fs.DirEntry, err error) error { names = append(names, name); return err }); err != nil {
		t.Error(err)
	}
	testenv.Equal(t, strings.Join(names, " "), ". a dir dir/b dir-c other other/x")
	for _, name := range []string{"a/b", "dir/c", "none"} {
		_, err = first.Open(name)
		testenv.ErrorIs(t, err, fs.ErrNotExist, name)
	}
}

// TestFetchEnds checks that a fetch ends, with random objects, latencies and failures. The
// synctest bubble fails if all its goroutines wait.
func TestFetchEnds(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			sizes := map[string]int64{}
			for i := range 20 + r.IntN(120) {
				size := []int64{0, 1, 4 << 10, minShare, 3 * minShare, 256<<10 + 1, maxAhead + 1}[r.IntN(6+r.IntN(2))]
				sizes[fmt.Sprintf("%c%c%03d", 'a'+r.IntN(4), "/-.0"[r.IntN(4)], i)] = size
			}
			c := contentOf(t, nil, sizes)
			files := c.files
			slow := func(key string) time.Duration { // the same for each call
				return time.Duration(rand.New(rand.NewPCG(seed, uint64(len(key))+uint64(key[len(key)-1])<<8)).IntN(500)) * time.Millisecond
			}
			badKey, refusal := "", errors.New("refused")
			if seed%3 == 1 {
				badKey = files[r.IntN(len(files))].Key
			}
			c.driver = &sizedStore{open: func(ctx context.Context, o Object, offset int64) (io.ReadCloser, error) {
				switch err := transport.Sleep(ctx, slow(o.Key)); {
				case err != nil:
					return nil, err
				case o.Key == badKey:
					return nil, &StatusError{Status: 403, Message: refusal.Error()}
				case offset == 0 && o.Size > 1:
					return cut(o, 0, o.Size/2, syscall.ECONNRESET), nil
				}
				return nil, nil
			}}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if seed%3 == 2 {
				time.AfterFunc(time.Duration(r.IntN(3000))*time.Millisecond, cancel)
			}
			f := newFetch(ctx, c.snapshot, copied(t, c.snapshot, r), func(int) {})
			var out bytes.Buffer
			_, err := f.pack(func(ctx context.Context) (artifact.Report, error) { return artifact.Pack(ctx, &out, f.tree) })
			switch {
			case seed%3 == 0 && err != nil:
				t.Errorf("seed %d: %v", seed, err)
			case err == nil:
				checked(t, &out, sizes)
			}
		})
	}
}

// copied returns a previous artifact from which a random part of the objects of s can be
// copied, or nil.
func copied(t *testing.T, s *snapshot, r *rand.Rand) *previousArtifact {
	share := r.IntN(4)
	if share == 0 {
		return nil
	}
	p := &previousArtifact{unchanged: map[string]bool{}, removeIndex: func() {}}
	all := newTree(s.files, "", func(o Object, _ int) (io.ReadCloser, error) { return body(o, 0, o.Size), nil })
	for _, o := range s.files {
		if r.IntN(3) < share {
			p.unchanged[o.Key] = true
		}
	}
	var archive bytes.Buffer
	_, err := artifact.Pack(t.Context(), &archive, all)
	must(t, err)
	must(t, p.read(io.NopCloser(&archive)))
	return p
}

// cut returns the content of o from offset to end, followed by err, or by io.EOF if err is nil.
func cut(o Object, offset, end int64, err error) io.ReadCloser {
	if err == nil {
		err = io.EOF
	}
	return io.NopCloser(io.MultiReader(body(o, offset, max(end, offset)), readFunc(func([]byte) (int, error) { return 0, err })))
}

// TestResume checks that a broken read continues where it broke, any number of times,
// as long as it makes progress.
func TestResume(t *testing.T) {
	const size = 300_000
	for name, c := range map[string]struct {
		breaks connectionLimits
		opens  int64 // -1: the read fails at the fourth break
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
					d := &sizedStore{open: func(_ context.Context, o Object, offset int64) (io.ReadCloser, error) {
						if end := breaks(offset); end < size {
							return cut(o, offset, end, broken), nil
						}
						return nil, nil
					}}
					sizes := map[string]int64{"a": size}
					var out bytes.Buffer
					_, err := contentOf(t, d, sizes).WriteTo(t.Context(), &out)
					if c.opens < 0 {
						if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(` of %d bytes, 4 times within 64 KiB: `, size)) || errors.Is(err, source.ErrMoved) {
							t.Error(err)
						}
						testenv.Equal(t, d.opened.Load(), maxBreaks, "times it was opened")
						return
					}
					must(t, err)
					testenv.Equal(t, d.opened.Load(), c.opens, "times it was opened")
					checked(t, &out, sizes)
				})
			})
		}
	}
}

// A connectionLimits returns a function that returns where a connection that begins at
// offset ends.
type connectionLimits func() func(offset int64) (end int64)

// always ends each connection after n bytes.
func always(n int64) connectionLimits {
	return func() func(int64) int64 { return func(offset int64) int64 { return offset + n } }
}

// ends ends the connections at places, one after the other.
func ends(places ...int64) connectionLimits {
	return func() func(int64) int64 {
		next := 0
		return func(int64) int64 {
			next++
			return places[next-1]
		}
	}
}

// stuck ends n+1 connections at each of places: the one that reaches the place, and n that
// begin there.
func stuck(n int, places ...int64) connectionLimits {
	var all []int64
	for _, at := range places {
		for range n + 1 {
			all = append(all, at)
		}
	}
	return ends(append(all, 1<<40)...)
}

// TestResumeRefused checks the errors for objects that changed or cannot be read.
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
				d := &sizedStore{open: func(ctx context.Context, o Object, offset int64) (io.ReadCloser, error) {
					if o.Key == "b" {
						opened.Add(1)
						return c.open(ctx, o, offset)
					}
					return nil, nil
				}}
				_, err := contentOf(t, d, map[string]int64{"a": 9, "b": size, "c": 9}).WriteTo(t.Context(), io.Discard)
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
				testenv.Equal(t, opened.Load(), c.opens, "times it was opened")
			})
		})
	}
}

// refuse returns err for offsets of at least at; connections that begin earlier end at at.
func refuse(at int64, err error) func(context.Context, Object, int64) (io.ReadCloser, error) {
	return func(_ context.Context, o Object, offset int64) (io.ReadCloser, error) {
		if offset >= at {
			return nil, err
		}
		return cut(o, offset, at, syscall.ECONNRESET), nil
	}
}

// longer sends one byte more than was listed, after a break at the byte at if that is not 0.
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

// TestResumeStalled checks that a connection without data is closed and replaced.
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
		start, sizes := time.Now(), map[string]int64{"a": 500_000}
		var out bytes.Buffer
		_, err := contentOf(t, &sizedStore{open: stalls(100, 300_000)}, sizes).WriteTo(t.Context(), &out)
		must(t, err)
		testenv.Equal(t, time.Since(start), 2*stallAfter, "it was given up after")
		checked(t, &out, sizes)
	})
	synctest.Test(t, func(t *testing.T) {
		c := contentOf(t, &sizedStore{open: stalls(100, 100, 100, 100, 100)}, map[string]int64{"a": 500_000})
		c.origin.bucket.Spec.Timeout = source.Duration(10 * time.Minute)
		_, err := c.WriteTo(t.Context(), io.Discard)
		testenv.ErrorSays(t, err, "it ends after 100 of 500000 bytes, 4 times within 64 KiB: no data for 20s")
	})
}

// TestIssued checks that a credential is used for four fifths of its lifetime, or until it is
// refused if it has no expiry or a wrong one. No credential is issued after the
// context has ended.
func TestIssued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issued, life := 0, 100*time.Second
		i, err := NewCredentialCache(t.Context(), func(context.Context) (source.Credential, error) {
			issued++
			c := source.Credential{Token: fmt.Sprint(issued)}
			if life != 0 {
				c.Expires = time.Now().Add(life)
			}
			return c, nil
		})
		must(t, err)
		get := func(refused *source.Credential, want string) *source.Credential {
			t.Helper()
			c, err := i.Get(t.Context(), refused)
			if err != nil || c.Token != want {
				t.Fatalf("%v, %v; want %s", c, err, want)
			}
			return c
		}
		first := get(nil, "1")
		time.Sleep(79 * time.Second)
		get(nil, "1")
		time.Sleep(time.Second)
		life = 0
		second := get(nil, "2")
		time.Sleep(1000 * time.Hour)
		get(first, "2") // first was replaced meanwhile
		life = -time.Hour
		third := get(second, "3")
		var all sync.WaitGroup
		for range 32 { // concurrent callers whose credential was refused
			all.Go(func() {
				if c, err := i.Get(t.Context(), third); err != nil || c.Token != "4" {
					t.Errorf("%v, %v", c, err)
				}
			})
		}
		all.Wait()
		get(nil, "4")
		cause := errors.New("the step is over")
		ended, end := context.WithCancelCause(t.Context())
		end(cause)
		if _, err := i.Get(ended, third); err != cause || issued != 4 {
			t.Errorf("%v; %d issued", err, issued)
		}
	})
}

func FuzzXMLPage(f *testing.F) {
	page := XMLPage{Root: "List", Item: "Item", Items: 2, Needs: "More"}
	for _, text := range []string{"<List><More/><Item><Key>a</Key></Item></List>", "<", "</", "<:/>", "<!", "<a:b/ ", "<List/><List>"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := page.Check(&http.Response{}, []byte(text)); err == nil && !strings.Contains(text, "More") {
			t.Errorf("%q is taken for a page", text)
		}
	})
}

var must = testenv.Must
