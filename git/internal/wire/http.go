package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/headgate-io/headgate/internal/redact"
)

const (
	userAgent    = "git/2.0 (headgate)" // some servers speak Git only to agents called git
	typeGreeting = "application/x-git-upload-pack-advertisement"
	typeRequest  = "application/x-git-upload-pack-request"
	typeResult   = "application/x-git-upload-pack-result"
	serviceQuery = "service=git-upload-pack"
	serviceLine  = "# service=git-upload-pack"
	maxSends     = 3
	maxDrain     = 4 << 10 // bytes read after an answer to free its connection
)

// HTTP returns the transport to the repository at u, which has the scheme http
// or https and no query. Authentication, TLS, proxy and limits of the
// connection are the client's; its CheckRedirect is not used.
func HTTP(client *http.Client, u *url.URL) Transport { return &httpTransport{client, u} }

type httpTransport struct {
	client *http.Client
	url    *url.URL
}

func (t *httpTransport) String() string { return redact.URL(t.url) }

func (t *httpTransport) dial(context.Context) (conn, error) {
	switch u := t.url; {
	case u == nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, inPhase(Dial, fmt.Errorf("the URL must be http://HOST/PATH or https://HOST/PATH"))
	case u.RawQuery != "":
		return nil, inPhase(Dial, fmt.Errorf("the URL of a Git repository has no query: remove it"))
	}
	client := *t.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &httpConn{client: &client, base: t.url}, nil
}

// An httpConn is stateless: every request stands for itself.
type httpConn struct {
	client *http.Client
	base   *url.URL       // where the last redirect led
	before *http.Response // the last redirect
}

func (c *httpConn) ready() bool { return true }
func (c *httpConn) close()      {}

func (c *httpConn) greet(ctx context.Context) (stream, error) {
	at := endpoint(c.base, "/info/refs")
	at.RawQuery = serviceQuery
	for range maxRedirects {
		s, resp, err := c.do(ctx, http.MethodGet, at, nil)
		if err != nil {
			return nil, err
		}
		if !isRedirect(resp) {
			if err := checkResponse(resp, typeGreeting); err != nil {
				s.release(false)
				return nil, err
			}
			c.base = baseOf(at, c.base)
			return s, nil
		}
		c.before = resp
		at, err = follow(resp)
		s.release(false)
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: more than %d in a row", ErrRedirect, maxRedirects)
}

func (c *httpConn) ask(ctx context.Context, body []byte) (stream, error) {
	s, resp, err := c.do(ctx, http.MethodPost, endpoint(c.base, "/git-upload-pack"), body)
	if err != nil {
		return nil, err
	}
	if isRedirect(resp) {
		err = fmt.Errorf("%w: the server redirects a POST request", ErrRedirect)
	} else {
		err = checkResponse(resp, typeResult)
	}
	if err != nil {
		s.release(false)
		return nil, err
	}
	return s, nil
}

// do sends a request. One that a connection ended without any answer is sent
// again, a few times: requests to git-upload-pack only read.
func (c *httpConn) do(ctx context.Context, method string, u *url.URL, body []byte) (s *httpStream, resp *http.Response, err error) {
	for range maxSends {
		if s, resp, err = c.send(ctx, method, u, body); err == nil || ctx.Err() != nil || !unanswered(err) {
			break
		}
	}
	return s, resp, err
}

// unanswered reports whether the connection ended before the answer began.
func unanswered(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
}

// send sends a request once. The stream lives until it is released or aborted: ctx
// ends it only until the caller attaches another one.
func (c *httpConn) send(ctx context.Context, method string, u *url.URL, body []byte) (*httpStream, *http.Response, error) {
	var at progress
	inner, cancel := context.WithCancel(httptrace.WithClientTrace(context.WithoutCancel(ctx), at.trace()))
	defer context.AfterFunc(ctx, cancel)()
	req, err := http.NewRequestWithContext(inner, method, u.String(), bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, nil, inPhase(Dial, fmt.Errorf("the URL is not valid"))
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Git-Protocol", "version=2")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", typeRequest)
		req.Header.Set("Accept", typeResult)
	}
	req.Response = c.before // the client is told who sends us there
	resp, err := c.client.Do(req)
	if err != nil {
		cancel()
		return nil, nil, at.explain(err)
	}
	return &httpStream{body: resp.Body, cancel: cancel}, resp, nil
}

// endpoint returns base with suffix at the end of its path.
func endpoint(base *url.URL, suffix string) *url.URL {
	u := *base
	u.Fragment, u.RawFragment = "", ""
	u.Path = strings.TrimRight(u.Path, "/") + suffix
	if u.RawPath != "" {
		u.RawPath = strings.TrimRight(u.RawPath, "/") + suffix
	}
	return &u
}

type httpStream struct {
	body   io.ReadCloser
	cancel context.CancelFunc
}

func (s *httpStream) Read(p []byte) (int, error) { return s.body.Read(p) }
func (s *httpStream) abort()                     { s.cancel() }

func (s *httpStream) release(whole bool) {
	if whole { // the connection is kept only after the end of the body was seen
		io.CopyN(io.Discard, s.body, maxDrain)
	}
	s.cancel()
	s.body.Close()
}

// progress tells how far a request has come; its hooks may still be called
// from a connection attempt that outlives the request.
type progress struct{ step atomic.Int32 }

const (
	stepDial int32 = iota
	stepTLS
	stepSent
)

func (p *progress) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		TLSHandshakeStart: func() { p.step.CompareAndSwap(stepDial, stepTLS) },
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			if err == nil {
				p.step.CompareAndSwap(stepTLS, stepDial)
			}
		},
		GotConn: func(httptrace.GotConnInfo) { p.step.Store(stepSent) },
	}
}
