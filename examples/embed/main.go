// Embed applies each new revision of its sources, as a controller does. Run it in this directory.
package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/signal"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/feed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run keeps the objects of sources.yaml up to date until ctx ends.
func run(ctx context.Context, out io.Writer) error {
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: "work"})
	if err != nil {
		return err
	}
	defer store.Close()
	server, err := serve.New(serve.Config{
		Feed:     &feed.Files{Paths: []string{"sources.yaml"}, Warn: func(err error) { log.Print(err) }},
		Statuses: &source.Ledger{Dir: "work/.status"},
		Store:    store,
		Origin:   headgate.Origins{}.New,
		Env:      source.Env{Local: map[string]string{"https://git.example.org/team/app.git": "app"}},
	})
	if err != nil {
		return err
	}
	applied := map[source.Reference]string{} // revisions
	go server.Watch(ctx, func(views []serve.View) {
		for _, v := range views {
			ref, a := source.ReferenceTo(v.Object), v.Object.Artifact()
			if a == nil || a.Revision == applied[ref] {
				continue
			}
			fmt.Fprintln(out, "applying", ref, a.Revision)
			if err := apply(store, *a, out); err != nil {
				log.Print(err) // retried after the next check
				continue
			}
			applied[ref] = a.Revision
		}
	})
	return server.Run(ctx)
}

// apply prints a file of an artifact. The archive is not extracted.
func apply(store *artifact.Store, a artifact.Artifact, out io.Writer) error {
	archive, err := store.Open(a)
	if err != nil {
		return err
	}
	defer archive.Close()
	tree, err := artifact.Read(archive, artifact.Limits{})
	if err != nil {
		return err
	}
	defer tree.Close()
	text, err := fs.ReadFile(tree, "deploy.yaml")
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}
