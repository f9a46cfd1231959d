package artifact_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
)

// This example stores a tree as an artifact, whose bytes depend on the tree alone, and reads it as
// a tree again.
func Example() {
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	ctx := context.Background()
	tree := fstest.MapFS{"app.yaml": {Data: []byte("replicas: 3\n")}, "docs/index.md": {Data: []byte("# App\n")}}
	stored, err := store.Put(ctx, "gitrepository/default/app", "v1.tar.gz", func(w io.Writer) error {
		_, err := artifact.Pack(ctx, w, tree)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}

	archive, err := store.Open(stored)
	if err != nil {
		log.Fatal(err)
	}
	defer archive.Close()
	back, err := artifact.Read(archive, artifact.Limits{})
	if err != nil {
		log.Fatal(err)
	}
	defer back.Close()
	text, err := fs.ReadFile(back, "app.yaml")
	fmt.Printf("%s%v\n", text, err)
	// Output:
	// replicas: 3
	// <nil>
}
