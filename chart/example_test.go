package chart_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/source"
)

// A chart in a repository gets values from it, and the repository is brought up
// to date first.
func Example() {
	var set source.Set
	if err := set.Decode("charts.yaml", strings.NewReader(`
apiVersion: source.headgate.dev/v1
kind: PkgRepository
metadata: {name: charts}
spec: {url: "https://charts.example.org/stable", interval: 10m}
---
apiVersion: source.headgate.dev/v1
kind: PkgChart
metadata: {name: app}
spec:
  chart: app
  version: ^1.2
  interval: 10m
  sourceRef: {kind: PkgRepository, name: charts}
  valuesFiles: [values.yaml, values-prod.yaml]
`)); err != nil {
		log.Fatal(err)
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: "store"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	env := source.Env{Sources: &source.Inventory{Objects: set.Objects, Store: store}}
	reconciler := source.Reconciler{Store: store}
	charts, app := set.Objects[0].(*source.PkgRepository), set.Objects[1].(*source.PkgChart)
	if _, err := reconciler.Reconcile(context.Background(), charts, chart.NewRepository(charts, env)); err != nil {
		log.Fatal(err)
	}
	if _, err := reconciler.Reconcile(context.Background(), app, chart.New(app, env, nil)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(app.Status.Artifact.Path)
}

// A chart that lies in the tree of another source is packed as it lies there.
func Example_directory() {
	top, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(top)
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: filepath.Join(top, "store")})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	ctx := context.Background()

	// A GitRepository that was fetched.
	deploy := &source.GitRepository{Header: source.Header{Metadata: source.Metadata{Name: "deploy"}}}
	source.Default(deploy)
	packed, err := store.Put(ctx, "gitrepository/default/deploy", "deploy.tar.gz", func(w io.Writer) error {
		_, err := artifact.Pack(ctx, w, fstest.MapFS{
			"charts/app/Chart.yaml":  {Data: []byte("apiVersion: v2\nname: app\nversion: 1.2.3\n")},
			"charts/app/values.yaml": {Data: []byte("replicas: 1\n")},
		})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	packed.Revision = "main@sha1:0123456789abcdef0123456789abcdef01234567"
	deploy.Status.Artifact = &packed

	app := &source.PkgChart{Spec: source.PkgChartSpec{Chart: "charts/app", ReconcileStrategy: source.StrategyRevision}}
	app.Metadata.Name = "app"
	app.Spec.SourceRef.Kind, app.Spec.SourceRef.Name = "GitRepository", "deploy"
	source.Default(app)
	env := source.Env{Sources: &source.Inventory{Objects: []source.Object{deploy, app}, Store: store}}
	reconciler := source.Reconciler{Store: store}
	if _, err := reconciler.Reconcile(ctx, app, chart.New(app, env, nil)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(app.Status.Condition("Ready").Message)
	// Output: packaged 'app' chart with version '1.2.3+0123456789ab'
}
