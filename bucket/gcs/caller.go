package gcs

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/headgate-io/headgate/internal/transport"
)

const (
	userAgent = "headgate"
	maxPage   = 16 << 20 // bytes of a page of a listing, and of a refusal
)

// A caller sends the requests of the library with a token, to the endpoint only.
type caller struct {
	next   http.RoundTripper
	origin *url.URL
	tokens *tokens
}

// RoundTrip implements [http.RoundTripper].
func (c *caller) RoundTrip(req *http.Request) (*http.Response, error) {
	for try := 1; ; try++ {
		l, err := c.tokens.get(req.Context())
		if err != nil {
			return nil, err
		}
		resp, err := c.next.RoundTrip(c.dress(req, l))
		if err != nil {
			return nil, err
		}
		if resp.StatusCode != http.StatusUnauthorized || l.Token == "" || try > 1 {
			if resp.StatusCode/100 != 2 || !media(req) {
				resp.Body = &bounded{resp.Body, maxPage}
			}
			return resp, nil
		}
		c.tokens.refused(l)
		transport.Finish(resp)
	}
}

// dress returns req as it is sent.
func (c *caller) dress(req *http.Request, l *lease) *http.Request {
	out := req.Clone(req.Context())
	out.Header.Del("X-Goog-Api-Client")               // the versions of this program
	out.Header.Set("User-Agent", userAgent+" (gzip)") // Google compresses listings for such names only
	if media(req) {
		out.Header.Set("User-Agent", userAgent)
		out.Header.Set("Accept-Encoding", "gzip") // as stored, and not decompressed by package http either
	}
	if l.Token != "" && transport.SameOrigin(out.URL, c.origin) {
		out.Header.Set("Authorization", "Bearer "+l.Token)
	}
	return out
}

// media reports whether req is for the content of an object.
func media(req *http.Request) bool { return req.URL.Query().Get("alt") == "media" }

// A bounded body ends with an error after left bytes.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the answer is larger than %d bytes", maxPage)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
