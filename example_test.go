package headgate_test

import (
	"bytes"
	"context"
	"fmt"
	"log"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/source"
)

// This example fetches a repository without a store and without documents. A directory replaces the
// repository.
func ExampleOrigins_Write() {
	env := source.Env{Local: map[string]string{"https://git.example.org/app": "testdata/canaries"}}
	repo := new(source.GitRepository)
	repo.Spec.URL = "https://git.example.org/app"

	var archive bytes.Buffer
	revision, report, err := headgate.Origins{}.Write(context.Background(), &archive, repo, env)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(revision.ID[:12], report.Files > 0, archive.Len() > 0)
	// Output: local@sha256 true true
}
