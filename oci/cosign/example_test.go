package cosign_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
)

// An artifact is fetched if one of the keys in a Secret has signed it.
func Example() {
	var set source.Set
	if err := set.Decode("sources.yaml", strings.NewReader(`
apiVersion: source.headgate.dev/v1
kind: OCIRepository
metadata: {name: app}
spec: {url: "oci://registry.example.org/app", interval: 5m, verify: {provider: cosign, secretRef: {name: cosign}}}
`)); err != nil {
		panic(err)
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: "store"})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	app := set.Objects[0].(*source.OCIRepository)
	origin := oci.New(app, source.Env{Secrets: source.DirSecrets("secrets")}, map[string]oci.Technology{"cosign": cosign.New(cosign.Config{})})
	reconciler := source.Reconciler{Store: store}
	if _, err := reconciler.Reconcile(context.Background(), app, origin); err != nil {
		panic(err)
	}
	fmt.Println(app.Status.Artifact.Revision)
}
