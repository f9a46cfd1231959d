package notation_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/notation"
	"github.com/headgate-io/headgate/source"
)

// An artifact is fetched if the trust policy in a Secret is content with its signature.
func Example() {
	var set source.Set
	if err := set.Decode("sources.yaml", strings.NewReader(`
apiVersion: source.headgate.dev/v1
kind: OCIRepository
metadata: {name: app}
spec: {url: "oci://registry.example.org/app", interval: 5m, verify: {provider: notation, secretRef: {name: notation}}}
`)); err != nil {
		log.Fatal(err)
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: "store"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	app := set.Objects[0].(*source.OCIRepository)
	origin := oci.New(app, source.Env{Secrets: source.DirSecrets("secrets")}, map[string]oci.Technology{"notation": notation.New})
	reconciler := source.Reconciler{Store: store}
	if _, err := reconciler.Reconcile(context.Background(), app, origin); err != nil {
		log.Fatal(err)
	}
	fmt.Println(app.Status.Artifact.Revision)
}
