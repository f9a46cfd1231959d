package gcs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate-io/headgate/internal/transport"
)

const userAgent = "headgate"

// A query is a request for the objects of the bucket, or for one of them.
type query struct {
	doing  string // for messages
	key    string // "" for the bucket
	values url.Values
	header map[string]string
}

// do sends q, and returns the answer when that is a success. A token that is
// refused is replaced by another, once.
func (d *driver) do(ctx context.Context, q query) (*http.Response, error) {
	for try := 1; ; try++ {
		l, err := d.tokens.get(ctx)
		if err != nil { // which is fit to be shown
			return nil, fmt.Errorf("%s: %w", q.doing, err)
		}
		req, err := d.request(ctx, q, l)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", q.doing, err)
		}
		resp, err := d.client.Do(req)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", q.doing, cause(err, d.vault))
		case resp.StatusCode/100 == 2:
			return resp, nil
		case resp.StatusCode != http.StatusUnauthorized || l.Token == "" || try > 1:
			return nil, d.refusal(q.doing, resp, l)
		}
		d.tokens.refused(l)
		transport.Finish(resp)
	}
}

// request returns q as it is sent with a token: to the endpoint, always.
func (d *driver) request(ctx context.Context, q query, l *lease) (*http.Request, error) {
	at := d.objects
	if q.key != "" {
		at += "/" + segment(q.key)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"?"+q.values.Encode(), nil)
	if err != nil {
		return nil, errors.New("the address of the bucket is none: check spec.endpoint")
	}
	for name, value := range q.header {
		req.Header.Set(name, value)
	}
	if l.Token != "" {
		req.Header.Set("Authorization", "Bearer "+l.Token)
	}
	return req, nil
}

// segment returns s as one segment of a path, in which all is escaped that may
// mean something.
func segment(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
