package run_test

import (
	"context"
	"fmt"
	"io"
	"log"

	"github.com/headgate-io/headgate/rollout/tester/run"
)

// A greeting is a task in Go.
type greeting string

func (g greeting) Run(_ context.Context, out io.Writer) error {
	_, err := fmt.Fprintf(out, "hello %s\n", g)
	return err
}

func Example() {
	desk, err := run.Open(run.Config{}) // with Dir, the history survives the process
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer desk.Shutdown(ctx)
	r, err := desk.Wait(ctx, run.Request{Namespace: "shop", Name: "checkout", Type: "greeting"}, greeting("world"))
	if err != nil {
		log.Fatal(err)
	}
	desk.Deliver(r.ID) // the verdict was received: the next equal request is a new run
	fmt.Printf("%s: %s", r.State, r.Output)
	// Output:
	// succeeded: hello world
}
