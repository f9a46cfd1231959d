package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// A shop is a store with objects of any size that costs no memory.
type shop struct {
	Driver
	latency time.Duration // of each request
	open    func(ctx context.Context, o Object, offset int64) (io.ReadCloser, error)
	opened  atomic.Int64
}

func (s *shop) Open(ctx context.Context, o Object, offset int64) (io.ReadCloser, error) {
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

// body is the content of o from offset to end.
func body(o Object, offset, end int64) io.ReadCloser {
	var seed [32]byte
	copy(seed[:], o.Key+o.ETag)
	return io.NopCloser(io.NewSectionReader(noise{seed}, offset, end-offset))
}

// A noise is endless content that depends on a seed.
type noise struct{ seed [32]byte }

func (n noise) ReadAt(p []byte, off int64) (int, error) {
	for i := range p {
		at := off + int64(i)
		p[i] = n.seed[at%31] ^ byte(at>>8) ^ byte(at*7)
	}
	return len(p), nil
}

// holding returns a content of objects of these sizes.
func holding(t testing.TB, d Driver, sizes map[string]int64) *content {
	t.Helper()
	var objects []Object
	for key, size := range sizes {
		objects = append(objects, Object{Key: key, ETag: "e", Size: size})
	}
	s := &snapshot{list: listingOf(objects, nil), driver: d, access: &Access{}}
	b := &source.Bucket{Spec: source.BucketSpec{BucketName: "apps", Timeout: source.Duration(time.Minute)}}
	b.Kind, b.Metadata.Name = "Bucket", "b"
	return newContent(New(b, source.Env{}, nil), source.Revision{}, s)
}

func small(n int) map[string]int64 {
	sizes := map[string]int64{}
	for i := range n {
		sizes[fmt.Sprintf("d%03d/o%05d", i%100, i)] = 4 << 10
	}
	return sizes
}

// checked reads what was written back and compares it with the store.
func checked(t *testing.T, archive io.Reader, sizes map[string]int64) {
	t.Helper()
	tree, err := artifact.Read(archive, artifact.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	for key, size := range sizes {
		got, err := fs.ReadFile(tree, key)
		want, _ := io.ReadAll(body(Object{Key: key, ETag: "e"}, 0, size))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %d bytes, %v", key, len(got), err)
		}
	}
	if n := tree.Report().Files; n != len(sizes) {
		t.Errorf("%d files instead of %d", n, len(sizes))
	}
}

func TestFetch(t *testing.T) {
	for name, sizes := range map[string]map[string]int64{
		"nothing":    {},
		"small":      small(3000),
		"edges":      {"a": 0, "b": 1, "c": pieceSize - 1, "d": pieceSize, "e": pieceSize + 1, "f": 2 * pieceSize, "g": maxPieces * pieceSize, "h": maxPieces*pieceSize + 1, "i": 0},
		"large":      {"a": 20 << 20, "b": 1, "c": 30 << 20, "d": 5 << 20, "e": 0, "f/a": 17 << 20, "f-a": 3},
		"in between": {"a": 256 << 10, "b": 256<<10 + 1, "c": 300 << 10, "d": 9},
	} {
		t.Run(name, func(t *testing.T) {
			sourcetest.NoLeaks(t, func(ctx context.Context) {
				var out bytes.Buffer
				report, err := holding(t, &shop{}, sizes).WriteTo(ctx, &out)
				if err != nil {
					t.Fatal(err)
				}
				checked(t, &out, sizes)
				if want := fmt.Sprintf("stored artifact with %d fetched files from 'apps' bucket", len(sizes)); report.Message != want {
					t.Error(report.Message)
				}
			})
		})
	}
}

// What a store takes to answer is waited for many times at once.
func TestFetchLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, d := time.Now(), &shop{latency: 20 * time.Millisecond}
		if _, err := holding(t, d, small(3200)).WriteTo(t.Context(), io.Discard); err != nil {
			t.Fatal(err)
		}
		if took, want := time.Since(begun), 3200/requests*20*time.Millisecond; took > want*11/10 {
			t.Errorf("%s of waiting instead of %s", took, want)
		}
	})
}

var (
	_ = errors.Is
	_ = rand.N[int]
	_ = os.Stdout
	_ = strings.Cut
	_ sync.Mutex
)

func BenchmarkFetch(b *testing.B) {
	for _, latency := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond} {
		b.Run(latency.String(), func(b *testing.B) {
			for b.Loop() {
				if _, err := holding(b, &shop{latency: latency}, small(10_000)).WriteTo(b.Context(), io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
