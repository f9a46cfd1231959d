package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/headgate-io/headgate/internal/origin"
	"github.com/headgate-io/headgate/internal/redact"
)

const (
	userAgent    = "git/2.0 (headgate)" // some servers speak Git only to agents called git
	typeGreeting = "application/x-git-upload-pack-advertisement"
	typeRequest  = "application/x-git-upload-pack-request"
	typeResult   = "application/x-git-upload-pack-result"
	serviceQuery = "service=git-upload-pack"
	maxSends     = 3
	maxRedirects = 5
	maxDrain     = 4 << 10 // bytes read after an answer to free its connection
	maxErrorPage = 4 << 10 // bytes read of an error page
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

// An httpConn is stateless: no request depends on another.
type httpConn struct {
	client   *http.Client
	base     *url.URL       // where the last redirect led
	redirect *http.Response // the last redirect
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
		if !redirectStatuses[resp.StatusCode] {
			if err := checkResponse(resp, typeGreeting); err != nil {
				s.release(false)
				return nil, err
			}
			c.base = baseOf(at)
			return s, nil
		}
		c.redirect = resp
		at, err = redirectTarget(resp)
		s.release(false)
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: more than %d in a row", ErrRedirect, maxRedirects)
}

func (c *httpConn) sendRequest(ctx context.Context, body []byte) (stream, error) {
	s, resp, err := c.do(ctx, http.MethodPost, endpoint(c.base, "/git-upload-pack"), body)
	if err != nil {
		return nil, err
	}
	if redirectStatuses[resp.StatusCode] {
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

// do sends a request. If the connection ends without any answer, do sends it again, a
// few times: requests to git-upload-pack only read.
func (c *httpConn) do(ctx context.Context, method string, u *url.URL, body []byte) (s *httpStream, resp *http.Response, err error) {
	for range maxSends {
		if s, resp, err = c.send(ctx, method, u, body); err == nil || ctx.Err() != nil || !endedWithoutAnswer(err) {
			break
		}
	}
	return s, resp, err
}

// endedWithoutAnswer reports whether the connection ended before the answer began.
func endedWithoutAnswer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
}

// send sends a request once. The end of ctx cancels the call, but not the stream that
// it returns: that lives until it is released or aborted, and the caller attaches a
// context to it.
func (c *httpConn) send(ctx context.Context, method string, u *url.URL, body []byte) (*httpStream, *http.Response, error) {
	var at requestProgress
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
	req.Response = c.redirect // tells the client which redirect led here
	resp, err := c.client.Do(req)
	if err != nil {
		cancel()
		return nil, nil, at.explain(err)
	}
	return &httpStream{resp.Body, cancel}, resp, nil
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
	io.ReadCloser
	cancel context.CancelFunc
}

func (s *httpStream) abort() { s.cancel() }

func (s *httpStream) release(complete bool) {
	if complete { // net/http reuses the connection only after the end of the body
		io.CopyN(io.Discard, s, maxDrain)
	}
	s.cancel()
	s.Close()
}

// A requestProgress records how far a request has come; its hooks may still be called from a
// connection attempt that outlives the request.
type requestProgress struct{ step atomic.Int32 }

const (
	stepDial int32 = iota
	stepTLS
	stepSent
)

func (p *requestProgress) trace() *httptrace.ClientTrace {
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

var redirectStatuses = map[int]bool{
	http.StatusMovedPermanently: true, http.StatusFound: true, http.StatusSeeOther: true,
	http.StatusTemporaryRedirect: true, http.StatusPermanentRedirect: true,
}

// credentialHeaders are those that a redirect to another origin would leak.
var credentialHeaders = []string{"Authorization", "Cookie", "Proxy-Authorization"}

// redirectTarget returns the URL to which the redirect resp moves the greeting. It applies
// git's rule that the new URL too ends in /info/refs, and the rules on origins of
// this package.
func redirectTarget(resp *http.Response) (*url.URL, error) {
	from := resp.Request.URL
	to, err := from.Parse(resp.Header.Get("Location"))
	if err != nil || resp.Header.Get("Location") == "" {
		return nil, fmt.Errorf("%w: it has no valid address", ErrRedirect)
	}
	refuse := func(why string) (*url.URL, error) {
		return nil, fmt.Errorf("%w: to %s: %s", ErrRedirect, clean(redact.URL(to)), why)
	}
	switch {
	case to.Scheme != "http" && to.Scheme != "https" || to.Host == "":
		return refuse("it is no HTTP address")
	case from.Scheme == "https" && to.Scheme == "http":
		return refuse("it leads from https to http")
	case !strings.HasSuffix(to.Path, "/info/refs") || to.RawQuery != serviceQuery:
		return refuse("it is not the address of a Git repository: is a log-in needed?")
	}
	if origin.Of(from) == origin.Of(to) {
		to.User = from.User
		return to, nil
	}
	if slices.ContainsFunc(credentialHeaders, func(h string) bool { return resp.Request.Header.Get(h) != "" }) {
		return refuse("credentials are not taken to another origin: put this address into the URL, without /info/refs, if you trust it")
	}
	to.User = nil
	return to, nil
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443", "ssh": "22"}[u.Scheme]
}

// baseOf returns the address of the repository whose greeting was found at u.
func baseOf(u *url.URL) *url.URL {
	base := *u
	base.RawQuery = ""
	base.Path = strings.TrimSuffix(u.Path, "/info/refs")
	base.RawPath = strings.TrimSuffix(u.RawPath, "/info/refs")
	return &base
}

// statuses tells what an HTTP status means and what to do about it.
var statuses = map[int]struct {
	kind error
	hint string
}{
	http.StatusUnauthorized:      {ErrAuth, "check the credentials in the Secret: their kind, and that they may read this repository"},
	http.StatusForbidden:         {ErrAuth, "the credentials may not read this repository"},
	http.StatusProxyAuthRequired: {ErrAuth, "the proxy wants a user name and password"},
	http.StatusNotFound:          {ErrNotFound, "check the URL; some servers answer so when credentials are missing"},
	http.StatusGone:              {ErrNotFound, "the repository was removed"},
	http.StatusTooManyRequests:   {ErrBusy, "the server limits requests: try again later"},
}

// checkResponse accepts a response with status 200 and the given content type.
func checkResponse(resp *http.Response, want string) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK {
		if kind == want {
			return nil
		}
		return wrongType(resp, kind)
	}
	detail := ""
	if kind == "text/plain" { // servers explain themselves in plain text; HTML pages do not
		page, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorPage))
		if text := clean(string(page)); text != "" {
			detail = " (" + text + ")"
		}
	}
	status := fmt.Sprintf("HTTP status %d%s", resp.StatusCode, detail)
	s, ok := statuses[resp.StatusCode]
	switch {
	case ok:
		return fmt.Errorf("%w: %s: %s", s.kind, status, s.hint)
	case resp.StatusCode >= http.StatusInternalServerError:
		return fmt.Errorf("%w: %s: try again later", ErrBusy, status)
	}
	return fmt.Errorf("%w: %s", ErrRemote, status)
}

// wrongType explains a success that is no answer of git-upload-pack.
func wrongType(resp *http.Response, kind string) error {
	if kind == "text/html" {
		return protocolf("the server answers with a web page: check that the URL is that of a Git repository")
	}
	start, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorPage))
	if line, _, ok := strings.Cut(string(start), "\n"); ok && strings.Contains(line, "\trefs/") {
		return fmt.Errorf("%w: it offers the repository by the dumb HTTP protocol only; git-http-backend is needed", ErrUnsupported)
	}
	return protocolf("content type %.80q: check that the URL is that of a Git repository", kind)
}

// explain turns the error of an HTTP client into one that tells the phase, not
// the URL, and what to do.
func (p *requestProgress) explain(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // its text repeats the URL, query and all
	}
	if strings.HasPrefix(err.Error(), "failed to parse Location header") { // the rest repeats the header
		return fmt.Errorf("%w: it has no valid address", ErrRedirect)
	}
	switch p.step.Load() {
	case stepDial:
		return inPhase(Dial, err)
	case stepTLS:
		return inPhase(Handshake, tlsHint(err))
	}
	return tlsHint(err) // TLS 1.3 refuses client certificates after the handshake
}

// tlsHint adds to a TLS error what to do about it.
func tlsHint(err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "remote error" { // a TLS alert, which has no exported type
		if strings.Contains(e.Err.Error(), "certificate") {
			return fmt.Errorf("%w: %w: check the client certificate, tls.crt and tls.key of the Secret", ErrAuth, err)
		}
		return err
	}
	hint := ""
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		hint = "put the certificate of its authority into ca.crt of the Secret"
	} else if _, ok := errors.AsType[x509.HostnameError](err); ok {
		hint = "use a host name in the URL that the certificate is for"
	} else if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok && e.Reason == x509.Expired {
		hint = "the certificate of the server, or the clock here, is out of date"
	} else if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		hint = "the server does not speak TLS on this port: check scheme and port of the URL"
	}
	if hint == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, hint)
}
