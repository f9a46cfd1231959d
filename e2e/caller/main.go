// Caller calls webhooks with Flagger's own functions, so that tests get the
// verdict of a Flagger in a cluster. Each line of standard input is a call in
// JSON. Each call is answered with one line.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/fluxcd/flagger/pkg/apis/flagger/v1beta1"
	"github.com/fluxcd/flagger/pkg/controller"
)

// A call is a webhook call about a canary.
type call struct {
	Canary  v1beta1.Canary
	Phase   v1beta1.CanaryPhase
	Webhook v1beta1.CanaryWebhook
	Event   string // message of an event; if set, the event webhook is called
	Kind    string // type of the event: Normal or Warning
}

// An answer is the verdict. An empty Error is a success.
type answer struct {
	Error string
	Took  time.Duration
}

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "caller:", err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer) error {
	calls, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var c call
		switch err := calls.Decode(&c); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		start := time.Now()
		var a answer
		if err := c.do(); err != nil {
			a.Error = err.Error()
			if a.Error == "" {
				a.Error = "(no text)"
			}
		}
		a.Took = time.Since(start)
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

func (c *call) do() error {
	if c.Event != "" {
		c.Canary.Status.Phase = c.Phase
		return controller.CallEventWebhook(&c.Canary, c.Webhook, c.Event, c.Kind)
	}
	return controller.CallWebhook(c.Canary, c.Phase, c.Webhook)
}
