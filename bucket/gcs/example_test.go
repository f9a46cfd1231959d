package gcs_test

import (
	"context"
	"fmt"
	"log"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/gcs"
	"github.com/headgate-io/headgate/source"
	login "github.com/headgate-io/headgate/source/login/gcp"
)

// A bucket of Google is read with the identity of the program.
func Example() {
	app := &source.Bucket{Spec: source.BucketSpec{Provider: "gcp", Endpoint: "storage.googleapis.com", BucketName: "app"}}
	origin := bucket.New(app, source.Env{Login: login.New(nil, nil).Login}, map[string]bucket.Provider{"gcp": gcs.Connect})
	revision, _, err := origin.Resolve(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(revision.ID)
}
