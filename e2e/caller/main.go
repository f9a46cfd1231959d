// Caller calls webhooks by the functions of Flagger itself, so that tests have
// the verdict that a Flagger in a cluster would have. Each line of standard
// input is a call, in JSON; each is answered by a line.
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

// A call says what is called, and about which canary.
type call struct {
	Canary  v1beta1.Canary
	Phase   v1beta1.CanaryPhase
	Webhook v1beta1.CanaryWebhook
	Event   string // the message of an event, whose webhook it is then
	Kind    string // and its type: Normal or Warning
}

// An answer is the verdict: no error is a success.
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
