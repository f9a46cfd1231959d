package bucket_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/s3"
	"github.com/headgate-io/headgate/source"
)

// The objects below a prefix become an artifact. A program imports the providers
// that it needs, and no others.
func Example() {
	var set source.Set
	if err := set.Decode("sources.yaml", strings.NewReader(`
apiVersion: source.headgate.dev/v1
kind: Bucket
metadata: {name: assets}
spec: {endpoint: minio.example.org, bucketName: assets, prefix: app/, interval: 5m}
`)); err != nil {
		log.Fatal(err)
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: "store"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	assets := set.Objects[0].(*source.Bucket)
	origin := bucket.New(assets, source.Env{}, map[string]bucket.Provider{"generic": s3.Connect, "aws": s3.Connect})
	reconciler := source.Reconciler{Store: store}
	if _, err := reconciler.Reconcile(context.Background(), assets, origin); err != nil {
		log.Fatal(err)
	}
	fmt.Println(assets.Status.Artifact.Revision)
}
