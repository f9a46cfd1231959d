package exchange

import (
	"context"
	"io"
	"net/http"
)

// Until returns client for requests that end with ctx at the latest, for
// libraries that go on asking when their caller is gone.
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
	ctx, cancel := context.WithCancel(req.Context())
	stop := context.AfterFunc(u.ctx, cancel)
	resp, err := u.RoundTripper.RoundTrip(req.WithContext(ctx))
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	resp.Body = &closing{resp.Body, func() { stop(); cancel() }}
	return resp, nil
}

// A closing body does something when it is closed.
type closing struct {
	io.ReadCloser
	done func()
}

func (c *closing) Close() error {
	defer c.done()
	return c.ReadCloser.Close()
}
