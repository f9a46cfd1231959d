package rollout

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"
)

var errTODO = errors.New("not built")

// Secrets hands out Secrets: an error that wraps fs.ErrNotExist when there is none.
type Secrets func(ctx context.Context, namespace, name string) (map[string][]byte, error)

// A Caller calls webhooks. Its zero value works; it is safe for concurrent use.
// Its owner ends idle connections with Close.
type Caller struct {
	Proxy   func(*http.Request) (*url.URL, error)      // as in [http.Transport]; nil for none
	Secrets Secrets                                    // nil: a webhook that names a Secret is an error
	Wait    func(context.Context, time.Duration) error // between attempts; nil for the clock
}

// Call posts payload to the webhook.
func (c *Caller) Call(ctx context.Context, hook Hook, payload Payload) (Answer, error) {
	return Answer{}, errTODO
}

// Event posts an event to a webhook of type event.
func (c *Caller) Event(ctx context.Context, hook Hook, event Event) error { return errTODO }

// Close ends idle connections.
func (c *Caller) Close() {}
