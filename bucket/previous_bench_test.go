package bucket_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/source"
)

// A bulk is a bucket of 1 GB that costs no memory: 10,000 objects of 4 KB and
// 200 of 5 MB, half of these compressible. It takes its time to answer.
type bulk struct {
	latency time.Duration
	version atomic.Int64 // of the object that changes
	opened  atomic.Int64
}

var bulkNoise, bulkText = func() (noise, text []byte) {
	noise = make([]byte, 4<<20+7)
	rand.NewChaCha8([32]byte{}).Read(noise)
	words := strings.Fields("image replicas memory limits requests metadata labels container port protocol volume claim secret config")
	r := rand.New(rand.NewPCG(1, 1))
	for len(text) < len(noise) {
		text = fmt.Appendf(text, "%*s%s: %q\n", 2*r.IntN(6), "", words[r.IntN(len(words))], fmt.Sprintf("%s/%05x", words[r.IntN(len(words))], r.IntN(1<<20)))
	}
	return noise, text
}()

func (d *bulk) List(context.Context, string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		for i := range 10_000 {
			o := bucket.Object{Key: fmt.Sprintf("apps/%03d/config-%05d.yaml", i%100, i), ETag: fmt.Sprintf("%032x", i), Size: 4 << 10}
			if i == 4321 {
				o.ETag = fmt.Sprintf("%032x", 1_000_000+d.version.Load())
			}
			if !yield(o, nil) {
				return
			}
		}
		for i := range 200 {
			if !yield(bucket.Object{Key: fmt.Sprintf("models/%03d.bin", i), ETag: fmt.Sprintf("%032x", 20_000+i), Size: 5 << 20}, nil) {
				return
			}
		}
	}
}

func (d *bulk) Open(_ context.Context, o bucket.Object, offset int64) (io.ReadCloser, error) {
	d.opened.Add(1)
	<-time.After(d.latency)
	var i int64
	fmt.Sscanf(o.ETag, "%x", &i)
	table := bulkText
	if o.Size > 1<<20 && i%2 == 0 {
		table = bulkNoise
	}
	return io.NopCloser(io.NewSectionReader(excerpt{table, i * 7919}, offset, o.Size-offset)), nil
}

// An excerpt is a part of a text that repeats itself.
type excerpt struct {
	of   []byte
	from int64
}

func (t excerpt) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		n += copy(p[n:], t.of[(t.from+off+int64(n))%int64(len(t.of)):])
	}
	return n, nil
}

// BenchmarkReconcile fetches all of it, and then what has changed: one object.
func BenchmarkReconcile(b *testing.B) {
	d := &bulk{latency: time.Millisecond}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: b.TempDir(), MaxBytes: 8 << 30})
	if err != nil {
		b.Fatal(err)
	}
	env := source.Env{Cache: cache, Sources: &source.Inventory{Store: store}}
	obj := newBucket(func(s *source.BucketSpec) { s.Timeout = source.Duration(10 * time.Minute) })
	rec := &source.Reconciler{Store: store}
	run := func(b *testing.B) {
		d.version.Add(1)
		provide := func(context.Context, *bucket.Access) (bucket.Driver, error) { return d, nil }
		if _, err := rec.Reconcile(b.Context(), obj, bucket.New(obj, env, map[string]bucket.Provider{"generic": provide})); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(d.opened.Swap(0)), "GETs")
	}
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			obj.Status.Artifact = nil
			env.Cache = nil
			run(b)
		}
	})
	b.Run("all, into a cache", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			if env.Cache, err = artifact.OpenCache(artifact.CacheConfig{Dir: b.TempDir(), MaxBytes: 8 << 30}); err != nil {
				b.Fatal(err)
			}
			obj.Status.Artifact = nil
			b.StartTimer()
			run(b)
		}
	})
	b.Run("one changed", func(b *testing.B) {
		for b.Loop() {
			run(b)
		}
	})
}
