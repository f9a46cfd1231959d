package rollout

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/headgate-io/headgate/internal/origin"
)

const (
	maxRedirects = 10
	maxDiscard   = 4 << 10 // bytes of the body of a redirect; with more the connection is given up
)

// follow posts to the URL of the webhook and where redirects of that origin
// lead. The answer is the first that is not such a redirect, or the one after
// maxRedirects.
func (c *call) follow(ctx context.Context) (*http.Response, error) {
	at := c.url
	for hops := 0; ; hops++ {
		resp, err := c.post(ctx, at)
		if err != nil {
			return nil, err
		}
		next := replay(at, resp)
		if next == nil || hops == maxRedirects {
			return resp, nil
		}
		io.CopyN(io.Discard, resp.Body, maxDiscard)
		resp.Body.Close()
		at = next
	}
}

// replay returns where the request is to be repeated, nil for nowhere.
func replay(at *url.URL, resp *http.Response) *url.URL {
	if resp.StatusCode != http.StatusTemporaryRedirect && resp.StatusCode != http.StatusPermanentRedirect {
		return nil
	}
	location := resp.Header.Get("Location")
	if location == "" {
		return nil
	}
	next, err := at.Parse(location)
	if err != nil || origin.Of(next) != origin.Of(at) {
		return nil
	}
	return next
}
