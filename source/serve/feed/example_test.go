package feed_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"testing/fstest"

	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/feed"
)

// A file that is wrong is a defect, and keeps nobody from the others.
func ExampleFiles() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, fstest.MapFS{
		"app.yaml": {Data: []byte("{apiVersion: source.headgate.dev/v1, kind: GitRepository, metadata: {name: app}, spec: {url: https://git.example.org/app, interval: 5m}}")},
		"bad.yaml": {Data: []byte("{apiVersion: source.headgate.dev/v1, kind: GitRepository, metadata: {name: bad}, spec: {url: https://git.example.org/bad}}")},
	}); err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	files := &feed.Files{Paths: []string{dir}}
	err = files.Follow(ctx, func(d serve.Desired) {
		fmt.Println(d.Objects[0].Head(), d.Objects[0].Interval())
		fmt.Println(filepath.Base(d.Defects[0].Error()))
		stop() // a controller goes on
	})
	fmt.Println(err)
	// Output:
	// GitRepository/default/app 5m0s
	// bad: spec.interval: is required
	// <nil>
}
