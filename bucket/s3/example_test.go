package s3_test

import (
	"context"
	"fmt"
	"log"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/s3"
	"github.com/headgate-io/headgate/source"
)

// A bucket of an S3-compatible server is read without credentials.
func Example() {
	app := &source.Bucket{Spec: source.BucketSpec{Endpoint: "minio.example.org", BucketName: "app"}}
	origin := bucket.New(app, source.Env{}, map[string]bucket.Provider{"generic": s3.Connect})
	revision, _, err := origin.Resolve(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(revision.ID)
}
