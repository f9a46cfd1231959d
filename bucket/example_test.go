package bucket_test

import (
	"context"
	"fmt"
	"log"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/s3"
	"github.com/headgate-io/headgate/source"
)

// This example makes an artifact from the objects below a prefix. A program imports only
// the providers that it needs.
func Example() {
	assets := &source.Bucket{Spec: source.BucketSpec{Endpoint: "minio.example.org", BucketName: "assets", Prefix: "app/"}}
	assets.Metadata.Name = "assets"
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: "store"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	origin := bucket.New(assets, source.Env{}, map[string]bucket.Provider{"generic": s3.Connect, "aws": s3.Connect})
	reconciler := source.Reconciler{Store: store}
	if _, err := reconciler.Reconcile(context.Background(), assets, origin); err != nil {
		log.Fatal(err)
	}
	fmt.Println(assets.Status.Artifact.Revision)
}
