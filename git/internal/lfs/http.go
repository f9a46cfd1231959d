package lfs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
)

const (
	maxRedirects = 5
	maxAddress   = 8 << 10  // bytes of an address that a server tells
	maxHeader    = 64 << 10 // bytes of the header fields that a server wants to be sent
	userAgent    = "git-lfs/3.0 (headgate)"
)

// An Endpoint is an address that a server told: that of the batch API, to whose
// path /objects/batch is added, or that of an object.
type Endpoint struct {
	URL     *url.URL          // without user information
	Header  map[string]string // to be sent there, besides the credentials
	Expires time.Time         // of the address or its header; zero: never
	Auth    bool              // the credentials of the repository are for this address too, if it is of its origin

	by *http.Request // whose answer told the address, nil for none
}

func (e Endpoint) expired(now time.Time) bool {
	return !e.Expires.IsZero() && now.Add(leeway).After(e.Expires)
}

// hopByHop are header fields that no server can ask for: they are about the
// connection, or belong to the client.
var hopByHop = map[string]bool{
	"Connection": true, "Content-Length": true, "Expect": true, "Host": true, "Keep-Alive": true,
	"Proxy-Authorization": true, "Proxy-Connection": true, "Range": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true, "Accept-Encoding": true, "Cookie": true,
}

// newEndpoint checks what the server at from says where to go.
func newEndpoint(from *url.URL, href string, header map[string]string, auth bool) (Endpoint, error) {
	if len(href) > maxAddress {
		return Endpoint{}, fmt.Errorf("%w: an address has more than %d bytes", ErrProtocol, maxAddress)
	}
	to, err := from.Parse(href)
	if err != nil || href == "" {
		return Endpoint{}, fmt.Errorf("%w: the address is malformed", ErrProtocol)
	}
	to.User, to.Fragment, to.RawFragment = nil, "", ""
	if err := mayLead(from, to); err != nil {
		return Endpoint{}, err
	}
	size := 0
	for name, value := range header {
		if size += len(name) + len(value); size > maxHeader {
			return Endpoint{}, fmt.Errorf("%w: header fields of more than %d bytes for %s", ErrProtocol, maxHeader, redact.URL(to))
		}
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return Endpoint{}, fmt.Errorf("%w: an invalid header field for %s", ErrProtocol, redact.URL(to))
		}
		if http.CanonicalHeaderKey(name) == "Authorization" && value != "" {
			auth = false
		}
	}
	return Endpoint{URL: to, Header: header, Auth: auth}, nil
}

// mayLead refuses an address that a server may not send its client to.
func mayLead(from, to *url.URL) error {
	refuse := func(why string) error { return fmt.Errorf("%w: %s: %s", ErrRefused, redact.URL(to), why) }
	switch {
	case to.Scheme != "http" && to.Scheme != "https" || to.Hostname() == "":
		return refuse("it is no HTTP address")
	case from.Scheme == "https" && to.Scheme == "http":
		return refuse("it gives up TLS")
	}
	return nil
}

// send sends a request and follows redirects, with the same method. The caller
// closes the body.
func (c *Client) send(ctx context.Context, method string, to Endpoint, body []byte) (*http.Response, error) {
	var before *http.Response
	if to.by != nil {
		before = &http.Response{Request: to.by}
	}
	for range maxRedirects + 1 {
		resp, err := c.sendOnce(ctx, method, to, body, before)
		if err != nil {
			return nil, err
		}
		switch resp.StatusCode {
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		default:
			return resp, nil
		}
		resp.Body.Close()
		next, err := newEndpoint(to.URL, resp.Header.Get("Location"), nil, to.Auth)
		if err != nil {
			return nil, fmt.Errorf("redirect: %w", err)
		}
		if transport.SameOrigin(next.URL, to.URL) {
			next.Header = to.Header
		}
		to, before = next, resp
	}
	return nil, fmt.Errorf("%w: more than %d redirects in a row", ErrRefused, maxRedirects)
}

// sendOnce sends one request. before is the response that led to it.
func (c *Client) sendOnce(ctx context.Context, method string, to Endpoint, body []byte, before *http.Response) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, to.URL.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: the address is malformed", ErrProtocol)
	}
	for name, value := range to.Header {
		if key := http.CanonicalHeaderKey(name); !hopByHop[key] {
			req.Header.Set(key, value)
		}
	}
	req.Header.Set("User-Agent", userAgent)
	if body != nil {
		req.Header.Set("Accept", mediaType)
		req.Header.Set("Content-Type", mediaType)
	} else {
		req.Header.Set("Accept-Encoding", "identity") // the digest is that of the bytes as they are
	}
	req.Response = before // transport shows no credentials after a redirect elsewhere, and keeps it out of narrower networks
	client := *c.Bare
	if to.Auth {
		client = *c.HTTP
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err == nil {
		return resp, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, connectionError(to.URL, err)
}

// connectionError explains why there was no response, and tells whether there
// may be one another time.
func connectionError(to *url.URL, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // whose text repeats the URL, query and all
	}
	op, _ := errors.AsType[*net.OpError](err)
	lasting := op != nil && op.Op == "dial" || isA[*tls.CertificateVerificationError](err) || isA[*transport.ProxyError](err)
	if err = fmt.Errorf("%s: %w", redact.URL(to), err); !lasting {
		err = &transientError{err, -1}
	}
	return err
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
