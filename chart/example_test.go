package chart_test

import (
	"context"
	"fmt"
	"log"
	"strings"

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
