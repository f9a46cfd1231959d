package journal_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/journal"
)

// Events are read back, by this process or by another.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	j, err := journal.Open(journal.Config{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	j.Append(source.Event{InvolvedObject: source.ObjectReference{Kind: "GitRepository", Namespace: "shop", Name: "app"}, Severity: "error", Reason: "GitOperationFailed", Message: "no answer"})
	if err := j.Close(); err != nil {
		log.Fatal(err)
	}
	found, err := journal.Read(context.Background(), dir, journal.Query{Severity: "error"})
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range found {
		fmt.Println(e.InvolvedObject.Name, e.Reason, e.Message)
	}
	// Output:
	// app GitOperationFailed no answer
}
