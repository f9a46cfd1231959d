package artifact_test

import (
	"context"
	"fmt"
	"log"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
)

// This example compares two trees as their archives would be compared.
func ExampleDiff() {
	before := fstest.MapFS{
		"app.yaml": {Data: []byte("replicas: 3\n"), Mode: 0o644},
		"run.sh":   {Data: []byte("#!/bin/sh\n"), Mode: 0o644},
		"old":      {Data: []byte("old\n"), Mode: 0o644},
	}
	after := fstest.MapFS{
		"app.yaml": {Data: []byte("replicas: 5\n"), Mode: 0o600},
		"run.sh":   {Data: []byte("#!/bin/sh\n"), Mode: 0o755},
	}
	for change, err := range artifact.Diff(context.Background(), before, after) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(change.Path, change.Old.Mode, change.New.Mode, change.Content)
	}
	// Output:
	// app.yaml -rw-r--r-- -rw-r--r-- true
	// old -rw-r--r-- ---------- false
	// run.sh -rw-r--r-- -rwxr-xr-x false
}
