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
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
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

// Strict returns client for libraries that print whole answers, and that follow
// redirects with their credentials: an answer other than 2xx, a redirect among
// them, is an error. failed returns the last such error, nil when there was none.
func Strict(client *http.Client) (strict *http.Client, failed func() *StatusError) {
	c := *client
	s := &strictTransport{RoundTripper: client.Transport}
	c.Transport = s
	return &c, s.failure.Load
}

type strictTransport struct {
	http.RoundTripper
	failure atomic.Pointer[StatusError]
}

func (s *strictTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(req)
	if err != nil || resp.StatusCode/100 == 2 {
		return resp, err
	}
	defer resp.Body.Close()
	failure := newStatusError(req, resp)
	s.failure.Store(failure)
	return nil, failure
}

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
	context.AfterFunc(u.ctx, cancel) // which a login ends soon
	return u.RoundTripper.RoundTrip(req.WithContext(ctx))
}

// Begin begins a login with the identity of the program itself. at is the result
// of find, which recognises the hosts of a provider, for the URL of r; client is
// for the requests to token services, and the caller closes its idle connections.
// The Secret of r is not read: OwnTrust tells what it says of TLS, and an object
// whose Secret holds credentials for a registry does not log in.
func Begin[Endpoint any](r source.LoginRequest, find func(*url.URL) (Endpoint, error)) (at Endpoint, client *http.Client, err error) {
	if at, err = find(r.URL); err != nil {
		return at, nil, fmt.Errorf("%w: %w: %s: %w", source.ErrInvalid, source.ErrProvider, cmp.Or(fields[r.URL.Scheme], "spec.url"), err)
	}
	switch where := "secret " + r.SecretName; {
	case r.ServiceAccount != "":
		return at, nil, fmt.Errorf("%w: %w: spec.serviceAccountName: only a cluster issues tokens of its service accounts; remove it to use the identity of this program",
			source.ErrInvalid, source.ErrProvider)
	case r.OwnTrust:
		if r.SecretName == "" {
			where = "spec.certSecretRef"
		}
		return at, nil, fmt.Errorf("%w: %s: ca.crt, tls.crt and tls.key do not go with the identity of this program, which is shown only to servers that the system trusts: "+
			"remove them, and add the CA to those of the system", source.ErrProvider, where)
	}
	return at, Client(r.Client), nil
}

// fields are those that the hosts of URLs come from, by scheme.
var fields = map[string]string{"https": "spec.url", "oci": "spec.url", "s3": "spec.endpoint", "gs": "spec.endpoint", "azblob": "spec.endpoint"}

// Host returns the host that u is at, in lower case; "" unless that is reached
// over TLS at its default port, is nothing but a host name in ASCII, and comes
// without user information. Patterns of hosts are matched against it alone.
func Host(u *url.URL) string {
	host := strings.TrimSuffix(u.Host, ":443")
	if fields[u.Scheme] == "" || u.User != nil || strings.ContainsFunc(host, foreign) {
		return ""
	}
	return strings.ToLower(host)
}

// foreign reports whether a name of a host cannot contain r.
func foreign(r rune) bool {
	return r != '-' && r != '.' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// NoIdentity returns err as an error that satisfies [source.ErrNoIdentity].
func NoIdentity(err error) error { return noIdentity{err} }

type noIdentity struct{ error }

func (n noIdentity) Is(target error) bool { return target == source.ErrNoIdentity }
func (n noIdentity) Unwrap() error        { return n.error }
