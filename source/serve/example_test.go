package serve_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	files "github.com/headgate-io/headgate/source/serve/feed"
)

// This program keeps the sources of a file up to date and serves them. A local directory replaces the repository.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: filepath.Join(dir, "store"), BaseURL: "https://sources.example.org"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	s, err := serve.New(serve.Config{
		Feed: &files.Files{Paths: []string{"testdata/example.yaml"}}, Statuses: &source.Ledger{Dir: filepath.Join(dir, "status")}, Store: store,
		Env: source.Env{Local: map[string]string{"https://git.example.org/app": "testdata"}},
		Origin: func(obj source.Object, env source.Env) (source.Origin, error) {
			return git.New(obj.(*source.GitRepository), env), nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	web := httptest.NewServer(s.Handler()) // or ListenAndServe of net/http
	defer web.Close()
	ctx, stop := context.WithCancel(context.Background())
	go s.Watch(ctx, func(views []serve.View) {
		if v := views[0]; v.Last.Number > 0 {
			fmt.Println(source.ReferenceTo(v.Object), v.Last.Result.Outcome)
			stop()
		}
	})
	fmt.Println(s.Run(ctx))
	// Output:
	// GitRepository/default/app stored
	// <nil>
}
