package server_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/api"
	"github.com/headgate-io/headgate/source/serve/feed"
	"github.com/headgate-io/headgate/source/serve/server"
)

// A program keeps the sources of a directory, serves them, and follows how they are by
// its API. A directory stands in for the repository.
func Example() {
	top, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(top)
	if err := os.CopyFS(top, fstest.MapFS{
		"app/app.yaml": {Data: []byte("replicas: 3\n")},
		"sources/app.yaml": {Data: []byte(`
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: app}
spec: {url: "https://git.example.org/app", interval: 5m}
`)},
	}); err != nil {
		log.Fatal(err)
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: filepath.Join(top, "store")})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	c := &serve.Controller{
		Feed:   &feed.Files{Paths: []string{filepath.Join(top, "sources")}},
		Store:  store,
		Ledger: &source.Ledger{Dir: filepath.Join(top, "status")},
		Env:    source.Env{Local: map[string]string{"https://git.example.org/app": filepath.Join(top, "app")}},
		Origin: func(obj source.Object, env source.Env) (source.Origin, error) {
			return git.New(obj.(*source.GitRepository), env), nil
		},
	}
	s := &server.Server{Controller: c, Store: store}
	c.Observe = s.ObserveRun
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()

	client := &api.Client{Base: web.URL}
	done := errors.New("ready")
	if err := client.Watch(ctx, api.Filter{Kind: "GitRepository"}, func(n api.Notice) error {
		if n.Source == nil || n.Source.Ready != "True" {
			return nil
		}
		fmt.Println(n.Source.Kind, n.Source.Name, n.Source.Ready, n.Source.Artifact.Size > 0)
		return done
	}); err != done {
		log.Fatal(err)
	}
	stop()
	fmt.Println(<-ended)
	// Output:
	// GitRepository app True true
	// <nil>
}
