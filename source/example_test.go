package source_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/headgate-io/headgate/source"
)

// This example decodes documents written for the reference implementation. Each defect is named;
// the set has the valid objects in any case.
func ExampleSet_Decode() {
	var set source.Set
	err := set.Decode("sources.yaml", strings.NewReader(`
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: charts}
spec: {url: "https://charts.example.org"}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: app, namespace: apps}
spec:
  url: git@git.example.org:app.git
  interval: 5 minutes
`))
	fmt.Println(err)
	for _, obj := range set.Objects {
		fmt.Println(obj.Head(), obj.Interval())
	}
	// Output:
	// sources.yaml:11: document 2: GitRepository/apps/app: spec.url: must begin with http:// or https:// or ssh://: write git@HOST:PATH as ssh://git@HOST/PATH
	// sources.yaml:12: document 2: GitRepository/apps/app: spec.interval: "5 minutes" is no duration: write unsigned numbers with the units ms, s, m and h, such as 1m30s
	// HelmRepository/default/charts 1m0s
}

// This example converts an object of an old version to v1 in headgate's group.
func ExampleConvert() {
	var set source.Set
	err := set.Decode("-", strings.NewReader(`
apiVersion: source.toolkit.fluxcd.io/v1beta2
kind: HelmChart
metadata: {name: app}
spec: {chart: app, interval: 5m, sourceRef: {kind: HelmRepository, name: charts}, valuesFile: prod.yaml}
`))
	if err != nil {
		log.Fatal(err)
	}
	obj, warnings, err := source.Convert(set.Objects[0], source.V1, source.Group)
	if err != nil {
		log.Fatal(err, warnings)
	}
	text, err := source.EncodeYAML(obj)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(text))
	// Output:
	// apiVersion: source.headgate.dev/v1
	// kind: PkgChart
	// metadata:
	//   name: app
	//   namespace: default
	// spec:
	//   chart: app
	//   version: '*'
	//   sourceRef:
	//     kind: PkgRepository
	//     name: charts
	//   interval: 5m0s
	//   reconcileStrategy: ChartVersion
	//   valuesFiles:
	//   - prod.yaml
}
