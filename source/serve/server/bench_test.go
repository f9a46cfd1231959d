package server_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/server"
)

// still is a feed that does not change.
type still []source.Object

func (s still) Follow(ctx context.Context, set func(serve.Desired)) error {
	set(serve.Desired{Objects: s})
	<-ctx.Done()
	return nil
}

// BenchmarkScrape asks for the metrics, and BenchmarkList for the list, of 10,000 objects.
func BenchmarkScrape(b *testing.B) { benchmarkPath(b, "/metrics") }
func BenchmarkList(b *testing.B)   { benchmarkPath(b, "/api/v1/sources") }

func benchmarkPath(b *testing.B, path string) {
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: filepath.Join(b.TempDir(), "store"), BaseURL: "http://localhost"})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	var feed still
	for i := range 10_000 {
		feed = append(feed, &source.GitRepository{
			Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "GitRepository",
				Metadata: source.Metadata{Namespace: fmt.Sprintf("team-%d", i%100), Name: fmt.Sprintf("app-%d", i)}},
			Spec: source.GitRepositorySpec{URL: "https://git.example.org/app.git", Interval: source.Duration(time.Hour)},
		})
	}
	c := &serve.Controller{Feed: feed, Store: store, Ledger: &source.Ledger{Dir: b.TempDir()}, Scrub: -1,
		Origin: func(source.Object, source.Env) (source.Origin, error) { return nil, source.ErrInvalid }}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	for _, obj := range feed { // each is stalled then
		for err := error(source.ErrWaiting); err != nil; {
			_, err = c.Wait(ctx, source.ReferenceTo(obj), 1)
		}
	}
	handler := (&server.Server{Controller: c, Store: store}).Handler()
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != 200 {
			b.Fatal(w.Code)
		}
		b.ReportMetric(float64(w.Body.Len()), "bytes")
	}
	cancel()
	<-ended
}
