package serve_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// BenchmarkUnchanged is what a run costs that finds nothing new, among as many
// objects as there are, without what its origin costs.
func BenchmarkUnchanged(b *testing.B) {
	const n = 100
	dir := b.TempDir()
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: filepath.Join(dir, "store")})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	f := &feed{news: make(chan struct{}, 1)}
	for i := range n {
		f.now.Objects = append(f.now.Objects, repo(fmt.Sprint("r", i), fmt.Sprintf("https://h%d.example/r", i%20), time.Hour))
	}
	up := &upstream{rev: "main@sha1:1111111111111111111111111111111111111111"}
	c := newServer(b, serve.Config{
		Feed: f, Store: store, Statuses: &source.Ledger{Dir: filepath.Join(dir, "ledger")}, Scrub: -1,
		Origin: func(obj source.Object, env source.Env) (source.Origin, error) { return &origin{up, obj, env}, nil },
	})
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	for !c.Ready() {
		time.Sleep(time.Millisecond)
	}
	for i := range n {
		if _, err := c.Wait(ctx, named(fmt.Sprint("r", i)), 1); err != nil {
			b.Fatal(err)
		}
	}
	time.Sleep(3 * time.Second) // what was changed lately is read again
	for i := range n {
		run, _ := c.Request(named(fmt.Sprint("r", i)), serve.Request)
		if _, err := c.Wait(ctx, named(fmt.Sprint("r", i)), run); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		ref := named(fmt.Sprint("r", i%n))
		run, err := c.Request(ref, serve.Hook)
		if err != nil {
			b.Fatal(err)
		}
		if v, err := c.Wait(ctx, ref, run); err != nil || v.Last.Result.Outcome != source.Unchanged {
			b.Fatal(v.Last, err)
		}
	}
	b.StopTimer()
	cancel()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}
