package git_test

import (
	"context"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/source"
)

// The newest release of a repository is fetched and stored, with the login of a Secret.
func Example() {
	var set source.Set
	if err := set.Decode("sources.yaml", strings.NewReader(`
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: app}
spec:
  url: https://git.example.org/app
  ref: {semver: ^1.2}
  interval: 5m
  secretRef: {name: login}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {username: ci, password: topsecret}
`)); err != nil {
		log.Fatal(err)
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: "store"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	app := set.Objects[0].(*source.GitRepository)
	reconciler := source.Reconciler{Store: store}
	if _, err := reconciler.Reconcile(context.Background(), app, git.New(app, source.Env{Secrets: &set})); err != nil {
		log.Fatal(err)
	}
	fmt.Println(app.Status.Artifact.Revision)
}

// Two sources, one of which includes a folder of the other: what is included is
// brought up to date first. Local directories stand in for the repositories.
func Example_include() {
	top, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(top)
	local := map[string]string{}
	for name, tree := range map[string]fstest.MapFS{
		"app": {"app.yaml": {Data: []byte("kind: Deployment\n")}},
		"lib": {"charts/web/Chart.yaml": {Data: []byte("name: web\n")}, "README.md": {Data: []byte("# Charts\n")}},
	} {
		local["https://git.example.org/"+name] = filepath.Join(top, name)
		if err := os.CopyFS(filepath.Join(top, name), tree); err != nil {
			log.Fatal(err)
		}
	}

	var set source.Set
	if err := set.Decode("sources.yaml", strings.NewReader(`
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: app}
spec:
  url: https://git.example.org/app
  interval: 5m
  include:
  - {repository: {name: lib}, fromPath: charts, toPath: vendor/charts}
---
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: lib}
spec: {url: "https://git.example.org/lib", interval: 5m}
`)); err != nil {
		log.Fatal(err)
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: filepath.Join(top, "store")})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	env := source.Env{Sources: &source.Inventory{Objects: set.Objects, Store: store}, Local: local}

	app, lib := set.Objects[0].(*source.GitRepository), set.Objects[1].(*source.GitRepository)
	for _, g := range []*source.GitRepository{lib, app} { // the order of source.Order
		r := source.Reconciler{Store: store}
		if _, err := r.Reconcile(context.Background(), g, git.New(g, env)); err != nil {
			log.Fatal(err)
		}
	}

	archive, err := store.Open(*app.Artifact())
	if err != nil {
		log.Fatal(err)
	}
	defer archive.Close()
	tree, err := artifact.Read(archive, artifact.Limits{})
	if err != nil {
		log.Fatal(err)
	}
	defer tree.Close()
	fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			fmt.Println(name)
		}
		return err
	})
	// Output:
	// app.yaml
	// vendor/charts/web/Chart.yaml
}
