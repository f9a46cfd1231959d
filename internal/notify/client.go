package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/origin"
	"github.com/headgate-io/headgate/internal/secret"
)

const (
	// MaxBody is the number of bytes that are kept of the body of an answer to a webhook.
	MaxBody = 64 << 10

	maxHeader     = 256 << 10
	maxRedirects  = 10
	maxDiscard    = 4 << 10 // bytes read of the body of a redirect; if it is longer, the connection is not reused
	maxTransports = 16
)

// A Pool holds connections for at most 16 different settings. It closes connections that were idle for 4 s. Many servers
// do so after 5 s: a connection must not be closed by the server just when it is used again. The zero Pool is
// ready to use. A Pool is safe for concurrent use.
type Pool struct {
	// ConnectTimeout is the time limit of dialing, and of a TLS handshake; default 10 s. It is needed because
	// net/http continues to connect after the request has ended.
	ConnectTimeout time.Duration

	mu         sync.Mutex
	transports map[transportKey]*http.Transport
}

// A transportKey identifies a transport: requests share connections only if their settings are equal.
type transportKey struct {
	proxy    string // URL; "" if the proxy function of the transport decides
	insecure bool   // certificates are not verified
	http2    bool   // use HTTP/2 if the server supports it; with HTTP/1.1, a post without an answer closes its connection
	certs    string // content of the Secret with certificates
}

// transport returns the transport of a transportKey, with the CAs and the client certificate of the Secret certs. If the name of
// certs is "", there is no Secret; otherwise it must contain a CA or a client certificate. The URL of a proxy with TLS
// must be in the transportKey. The certificate of the proxy is always verified, and the client certificate is not
// presented to it.
func (p *Pool) transport(s transportKey, certs secret.Reader, proxy func(*http.Request) (*url.URL, error)) (*http.Transport, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if certs.Name != "" {
		var err error
		settings, err = certs.TLS([]string{"ca.crt"}, []string{"tls.crt"}, []string{"tls.key"})
		if err == nil && settings == nil {
			err = certs.Problem("ca.crt", "is missing, and so are tls.crt and tls.key: set one of them")
		}
		if err != nil {
			return nil, err
		}
		s.certs = fmt.Sprintf("%q %q %q", certs.Data["ca.crt"], certs.Data["tls.crt"], certs.Data["tls.key"])
	}
	settings.InsecureSkipVerify = s.insecure
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.transports[s]; t != nil {
		return t, nil
	}
	limit := cmp.Or(p.ConnectTimeout, 10*time.Second)
	dialer := &net.Dialer{Timeout: limit}
	t := &http.Transport{
		Proxy:                  proxy,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        settings,
		TLSHandshakeTimeout:    limit,
		IdleConnTimeout:        4 * time.Second,
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    8,
		MaxResponseHeaderBytes: maxHeader,
		ForceAttemptHTTP2:      s.http2,
		OnProxyConnectResponse: func(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			return fmt.Errorf("proxy %s answered status %d", proxy.Host, resp.StatusCode)
		},
	}
	if s.proxy != "" {
		u, err := url.Parse(s.proxy)
		if err != nil {
			return nil, err
		}
		t.Proxy = http.ProxyURL(u)
		if u.Scheme == "https" {
			tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: settings.RootCAs, ServerName: u.Hostname()}
			t.DialTLSContext = (&tls.Dialer{NetDialer: dialer, Config: tlsConfig}).DialContext
		}
	}
	if p.transports == nil || len(p.transports) == maxTransports {
		p.removeTransports()
	}
	p.transports[s] = t
	return t, nil
}

// Close closes idle connections. The Pool can still be used afterwards.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeTransports()
}

// removeTransports removes all transports. The caller holds p.mu. Connections in use are closed when they have been idle for 4 s.
func (p *Pool) removeTransports() {
	for _, t := range p.transports {
		t.CloseIdleConnections()
	}
	p.transports = map[transportKey]*http.Transport{}
}

// An Answer is the answer of a server to a request.
type Answer struct {
	Status    int
	Header    http.Header
	Body      []byte // its first bytes
	Truncated bool   // the body was longer, or incomplete
	Err       error  // why the body was incomplete
}

// Send sends a request once, and reads at most limit bytes of the body of the answer. It follows at most 10
// redirects, within the origin only and only if they repeat the request: those with 307 and 308, and for a GET
// also those with 301 to 303. It returns connection errors; an error status is not an error.
func Send(ctx context.Context, by http.RoundTripper, method string, to *url.URL, header http.Header, body []byte, limit int) (*Answer, error) {
	for hops := 0; ; hops++ {
		req, err := http.NewRequestWithContext(ctx, method, "", bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.URL, req.Host, req.Header = to, cmp.Or(header.Get("Host"), to.Host), header
		resp, err := by.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		if next := redirectTarget(to, method, resp); next != nil && hops < maxRedirects {
			io.CopyN(io.Discard, resp.Body, maxDiscard)
			resp.Body.Close()
			to = next
			continue
		}
		defer resp.Body.Close()
		a := &Answer{Status: resp.StatusCode, Header: resp.Header}
		if a.Status != http.StatusSwitchingProtocols { // after 101 another protocol follows instead of a body
			a.Body, a.Err = io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
			a.Truncated = a.Err != nil
		}
		if len(a.Body) > limit {
			a.Body, a.Truncated, a.Err = a.Body[:limit], true, nil
		}
		return a, nil
	}
}

// redirectTarget returns the URL at which a redirect repeats the request, nil if the redirect must not be followed.
func redirectTarget(at *url.URL, method string, resp *http.Response) *url.URL {
	location := resp.Header.Get("Location")
	switch resp.StatusCode {
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		if method != http.MethodGet {
			return nil
		}
	default:
		return nil
	}
	next, err := at.Parse(location)
	if location == "" || err != nil || origin.Of(next) != origin.Of(at) {
		return nil
	}
	return next
}

// SetUserInfo sets Authorization to the user information of a URL, if there is any and the header has no Authorization.
func SetUserInfo(u *url.URL, header http.Header) {
	if password, _ := u.User.Password(); u.User != nil && header.Get("Authorization") == "" {
		header.Set("Authorization", secret.Auth{Username: u.User.Username(), Password: password}.Header())
	}
}

// Authorize adds the credentials of a Secret to a header; see [secret.Reader.Credentials].
func Authorize(r secret.Reader, header http.Header, tokens []string, reserved ...string) error {
	headers, auth, err := r.Credentials(tokens, reserved...)
	maps.Copy(header, headers)
	if value := auth.Header(); value != "" {
		header.Set("Authorization", value)
	}
	return err
}

// HeaderSecrets returns the texts in the header of a request that errors must not contain: its values, and the token
// or password in them.
func HeaderSecrets(header http.Header) (list []string) {
	for name, values := range header {
		if slices.Contains([]string{"Accept", "Content-Type", "Host", "User-Agent"}, name) {
			continue
		}
		for _, value := range values {
			_, token, _ := strings.Cut(value, " ")
			list = append(list, value, token)
		}
	}
	user, password, _ := (&http.Request{Header: header}).BasicAuth()
	return append(list, cmp.Or(password, user)) // a user name without a password is a token
}
