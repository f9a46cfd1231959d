package ledger_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/ledger"
)

// The status of a rollout is there for the next process.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	canary := rollout.Metadata{Namespace: "shop", Name: "checkout"}
	for range 2 {
		file, err := ledger.Open(filepath.Join(dir, "checkout.json"), canary)
		if err != nil {
			log.Fatal(err)
		}
		status, err := file.Load()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(status.CanaryWeight)
		status.CanaryWeight += 20
		if err := file.Save(status); err != nil {
			log.Fatal(err)
		}
		if err := file.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 0
	// 20
}
