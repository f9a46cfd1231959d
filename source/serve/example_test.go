package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// static is a feed that never changes.
type static serve.Desired

func (s static) Follow(ctx context.Context, set func(serve.Desired)) error {
	set(serve.Desired(s))
	<-ctx.Done()
	return nil
}

// A note is an origin: it has one file, whose content is in the URL.
type note struct{ text string }

func (n note) Resolve(context.Context, source.State) (source.Revision, source.State, error) {
	return source.Revision{ID: "1", File: "note.txt"}, nil, nil
}

func (n note) Open(context.Context, source.Revision) (source.Content, error) { return n, nil }

func (n note) Verify(context.Context) (source.Verification, error) {
	return source.Verification{}, nil
}

func (n note) WriteTo(_ context.Context, w io.Writer) (source.Report, error) {
	_, err := io.WriteString(w, n.text)
	return source.Report{}, err
}

func (n note) Close() error { return nil }

// A program keeps one source of its own up to date, asks for a check, and waits for it.
func ExampleController() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: dir + "/store", BaseURL: "http://localhost"})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	var set source.Set
	if err := set.DecodeFS(os.DirFS("testdata"), "example.yaml"); err != nil {
		panic(err)
	}
	c := &serve.Controller{
		Feed:   static{Objects: set.Objects, Secrets: &set},
		Store:  store,
		Ledger: &source.Ledger{Dir: dir + "/status"},
		Origin: func(obj source.Object, _ source.Env) (source.Origin, error) {
			if g, ok := obj.(*source.GitRepository); ok {
				return note{g.Spec.URL}, nil
			}
			return nil, errors.New("only Git repositories are known here")
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()

	first := make(chan serve.View, 1)
	go c.Watch(ctx, func(v serve.View) {
		if v.Last.Number > 0 {
			select {
			case first <- v:
			default:
			}
		}
	})
	ref := source.ReferenceTo((<-first).Object)
	run, err := c.Request(ref, serve.Request)
	if err != nil {
		panic(err)
	}
	v, err := c.Wait(ctx, ref, run)
	if err != nil {
		panic(err)
	}
	fmt.Println(ref, v.Last.Trigger, v.Last.Result.Outcome, v.Object.Artifact().Size, "bytes")
	cancel()
	fmt.Println(<-ended)
	// Output:
	// GitRepository/default/app request unchanged 27 bytes
	// <nil>
}
