package tester_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/headgate-io/headgate/rollout/tester"
	"github.com/headgate-io/headgate/rollout/tester/gate"
	"github.com/headgate-io/headgate/rollout/tester/run"
	"github.com/headgate-io/headgate/rollout/tester/task"
)

// A program serves the webhooks of canaries below one of its paths. Gates and runs
// survive the process if their Config has a directory.
func Example() {
	gates, err := gate.Open(gate.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer gates.Close()
	runs, err := run.Open(run.Config{})
	if err != nil {
		log.Fatal(err)
	}
	server := &tester.Server{Gates: gates, Runs: runs, Tools: task.Tools{
		Env:      []string{"PATH=" + os.Getenv("PATH")},
		Commands: map[string]string{"smoke": "go version"}, OnlyNamed: true,
	}}
	defer server.Shutdown(context.Background())
	mux := http.NewServeMux()
	mux.Handle("/canary/", http.StripPrefix("/canary", server.Handler()))
	web := httptest.NewServer(mux)
	defer web.Close()

	call := func(path, payload string) {
		answer, err := http.Post(web.URL+"/canary"+path, "application/json", strings.NewReader(payload))
		if err != nil {
			log.Fatal(err)
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		fmt.Printf("%s %d %q\n", path, answer.StatusCode, text)
	}
	call("/gate/check", `{"namespace": "shop", "name": "checkout"}`)
	call("/gate/open", `{"namespace": "shop", "name": "checkout"}`)
	call("/gate/check", `{"namespace": "shop", "name": "checkout"}`)
	call("/", `{"namespace": "shop", "name": "checkout", "metadata": {"type": "bash", "cmd": "@smoke"}}`)
	// Output:
	// /gate/check 403 "Forbidden"
	// /gate/open 202 ""
	// /gate/check 200 "Approved"
	// / 200 ""
}
