package source_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/source"
)

// This example brings a source up to date with its origin twice; the second time nothing has
// changed. A directory replaces the repository.
func ExampleReconciler() {
	top, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(top)
	if err := os.CopyFS(filepath.Join(top, "app"), fstest.MapFS{"app.yaml": {Data: []byte("replicas: 3\n")}}); err != nil {
		log.Fatal(err)
	}
	var set source.Set
	if err := set.Decode("sources.yaml", strings.NewReader(`
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: app}
spec: {url: "https://git.example.org/app", interval: 5m}
`)); err != nil {
		log.Fatal(err)
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: filepath.Join(top, "store")})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	env := source.Env{Secrets: &set, Local: map[string]string{"https://git.example.org/app": filepath.Join(top, "app")}}
	ledger := &source.Ledger{Dir: filepath.Join(top, "status")}
	r := &source.Reconciler{Store: store, Load: ledger.Load, Save: ledger.Save}
	app := set.Objects[0].(*source.GitRepository)
	for range 2 {
		result, err := r.Reconcile(context.Background(), app, git.New(app, env))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(result.Outcome)
	}
	fmt.Println(app.Status.Artifact.Size > 0, store.Check(*app.Status.Artifact))
	// Output:
	// stored
	// unchanged
	// true <nil>
}
