// Package exchange carries the requests to token services and their answers, and
// keeps what they issue: see [Credentials].
//
//   - What goes over https takes the way of the client that the caller was
//     given, and with it the proxy of the object. What goes in the clear is for
//     services of the machine, its link or its cluster: it goes there directly.
//   - An answer has at most [MaxAnswer] bytes; reading on is an error.
//   - Redirects are followed to the same origin only.
package exchange

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/headgate-io/headgate/internal/transport"
)

// MaxAnswer is how many bytes an answer may have.
const MaxAnswer = 1 << 20

const (
	maxRedirects = 5
	nearTimeout  = 2 * time.Second // for a connection to a service of the machine, which is there or is not
)

// Client returns a client that keeps the rules of this package; given is the
// one for https, nil for one without proxy. The caller closes its idle connections.
func Client(given *http.Client) *http.Client {
	near := transport.Client(transport.Config{DialTimeout: nearTimeout}).Transport
	far := near
	if given != nil && given.Transport != nil {
		far = given.Transport
	}
	return &http.Client{Transport: &router{near, far}, CheckRedirect: checkRedirect}
}

// A router sends what goes in the clear by near, and everything else by far.
type router struct{ near, far http.RoundTripper }

func (c *router) RoundTrip(req *http.Request) (*http.Response, error) {
	way := c.near
	if req.URL.Scheme == "https" {
		way = c.far
	}
	resp, err := way.RoundTrip(req)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, MaxAnswer)
	}
	return resp, err
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections]. The owner
// of the given client closes that one's connections.
func (c *router) CloseIdleConnections() {
	if closer, ok := c.near.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	if !transport.SameOrigin(req.URL, via[0].URL) {
		return errors.New("redirect to another host refused")
	}
	return nil
}

// Safe reports whether what is sent to u is private: over TLS, or not leaving the machine.
func Safe(u *url.URL) bool {
	if u.Scheme == "https" {
		return u.Host != ""
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}
