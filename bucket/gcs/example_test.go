package gcs_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/gcs"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/gcp"
)

// A bucket of Google is fetched with the identity of the program.
func Example() {
	var set source.Set
	if err := set.Decode("sources.yaml", strings.NewReader(`
apiVersion: source.headgate.dev/v1
kind: Bucket
metadata: {name: app}
spec: {provider: gcp, endpoint: storage.googleapis.com, bucketName: app, interval: 5m}
`)); err != nil {
		log.Fatal(err)
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: "store"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	app := set.Objects[0].(*source.Bucket)
	origin := bucket.New(app, source.Env{Login: gcp.New(time.Now, os.LookupEnv).Login}, map[string]bucket.Provider{"gcp": gcs.Connect})
	reconciler := source.Reconciler{Store: store}
	if _, err := reconciler.Reconcile(context.Background(), app, origin); err != nil {
		log.Fatal(err)
	}
	fmt.Println(app.Status.Artifact.Revision)
}
