package notify_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/notify"
)

// A webhook is told of a failure, and not of what it does not want to know.
func ExampleDispatcher() {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e source.Event
		err := json.NewDecoder(r.Body).Decode(&e)
		fmt.Println(e.InvolvedObject.Name, e.Reason, err)
	}))
	defer server.Close()
	receiver, err := notify.ParseReceiver("error=" + server.URL)
	if err != nil {
		log.Fatal(err)
	}
	d, err := notify.Start(notify.Config{Receivers: []notify.Receiver{receiver}})
	if err != nil {
		log.Fatal(err)
	}
	app := source.ObjectReference{Kind: "GitRepository", Namespace: "shop", Name: "app"}
	d.Emit(source.Event{InvolvedObject: app, Severity: "info", Reason: "NewArtifact", Message: "stored artifact"})
	d.Emit(source.Event{InvolvedObject: app, Severity: "error", Reason: "GitOperationFailed", Message: "no answer"})
	fmt.Println(d.Close(context.Background()))
	// Output:
	// app GitOperationFailed <nil>
	// <nil>
}
