package exchange

import (
	"context"
	"net/http"
)

// Until returns client for requests that end with ctx, for libraries that go on
// asking when their caller is gone.
func Until(ctx context.Context, client *http.Client) *http.Client {
	c := *client
	c.Transport = &until{client.Transport, ctx}
	return &c
}

type until struct {
	http.RoundTripper
	ctx context.Context
}

func (u *until) RoundTrip(req *http.Request) (*http.Response, error) {
	if u.ctx.Err() != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, context.Cause(u.ctx)
	}
	return u.RoundTripper.RoundTrip(req.WithContext(u.ctx))
}
