package api_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// A job that has pushed waits until what it pushed is an artifact.
func ExampleClient() {
	ctx := context.Background()
	client := &api.Client{Base: "http://127.0.0.1:9090"}
	ref, err := source.ParseReference("gitrepository/shop/checkout")
	if err != nil {
		log.Fatal(err)
	}
	checked, _, err := client.Reconcile(ctx, ref, api.Change{By: "ci"}, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(checked.Ready, checked.Artifact.URL, checked.Artifact.Digest)
}
