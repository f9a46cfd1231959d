package serve_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	files "github.com/headgate-io/headgate/source/serve/feed"
)

// shelved writes n documents to dir/docs and their statuses to dir/ledger, as
// an earlier controller would have left them.
func shelved(b *testing.B, dir string, n int) {
	b.Helper()
	for i := range n {
		g := repo(fmt.Sprintf("app-%d", i), fmt.Sprintf("https://host-%d.example/app-%d.git", i%20, i%100), 1000*time.Hour) // so that none is due
		doc, err := source.EncodeYAML(g)
		if err != nil {
			b.Fatal(err)
		}
		hex := fmt.Sprintf("%064x", i)
		since := time.Date(2026, 7, 22, 10, 0, 0, 0, time.UTC)
		g.Metadata.Generation, g.Status.ObservedGeneration = 1, 1
		g.Status.Artifact = &artifact.Artifact{
			Path: "gitrepository/default/" + g.Metadata.Name + "/" + hex + "/x.tar.gz", URL: "http://localhost/gitrepository/default/" + g.Metadata.Name + "/" + hex + "/x.tar.gz",
			Revision: "main@sha1:" + hex[:40], Digest: "sha256:" + hex, Size: 1000, LastUpdateTime: since,
		}
		for _, kind := range []string{"Ready", "ArtifactInStorage"} {
			g.Status.Conditions = append(g.Status.Conditions, source.Condition{
				Type: kind, Status: "True", ObservedGeneration: 1, Reason: "Succeeded", LastTransitionTime: since,
				Message: "stored artifact for revision 'main@sha1:" + hex[:40] + "'",
			})
		}
		status, err := source.EncodeYAML(g)
		if err != nil {
			b.Fatal(err)
		}
		saved := filepath.Join(dir, "ledger", "gitrepository", "default")
		if i == 0 {
			if err := errors.Join(os.MkdirAll(saved, 0o700), os.Mkdir(filepath.Join(dir, "docs"), 0o700)); err != nil {
				b.Fatal(err)
			}
		}
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "docs", g.Metadata.Name+".yaml"), doc, 0o600),
			os.WriteFile(filepath.Join(saved, g.Metadata.Name+".yaml"), status, 0o600),
			os.WriteFile(filepath.Join(saved, g.Metadata.Name+".state"), []byte(`{"etag":"abc"}`), 0o600)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStart measures the time from the start until 10,000 objects are
// there, from as many documents and saved statuses, and asks no origin.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	shelved(b, dir, 10_000)
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: filepath.Join(dir, "store"), BaseURL: "http://localhost"})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	b.ReportAllocs()
	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		ready := make(chan struct{})
		c := newServer(b, serve.Config{
			Feed: announced{&files.Files{Paths: []string{filepath.Join(dir, "docs")}}, func() { close(ready) }}, Store: store, Statuses: &source.Ledger{Dir: filepath.Join(dir, "ledger")}, Scrub: -1,
			Origin: func(source.Object, source.Env) (source.Origin, error) { return nil, errors.New("no origin is asked") },
		})
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		<-ready
		views := c.Views()
		if !c.Ready() || len(views) != 10_000 || views[0].Object.Artifact() == nil {
			b.Errorf("%d views", len(views))
		}
		b.StopTimer()
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
		b.StartTimer()
	}
}

// An announced feed tells when it has said what there is for the first time.
type announced struct {
	serve.Feed
	said func()
}

func (a announced) Follow(ctx context.Context, set func(serve.Desired)) error {
	first := true
	return a.Feed.Follow(ctx, func(d serve.Desired) {
		set(d)
		if first {
			first = false
			a.said()
		}
	})
}
