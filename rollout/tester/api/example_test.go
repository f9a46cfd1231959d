package api_test

import (
	"context"
	"fmt"
	"log"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// This example approves all waiting canaries, each for the revision that waits.
func ExampleClient() {
	ctx := context.Background()
	client := &api.Client{URL: "http://127.0.0.1:8080"}
	waiting, err := client.Gates(ctx, api.Filter{Kind: api.KindGate, Waiting: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range waiting {
		opened, err := client.Change(ctx, "open", g.Key, api.Change{Mode: api.Bound, Checksum: g.Waiting.Checksum, Reason: "looks good"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(opened.Key, "is open for", opened.Checksum)
	}
}
