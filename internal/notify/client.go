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
	// MaxBody is how much of the answer to a webhook is kept, in bytes.
	MaxBody = 64 << 10

	maxHeader     = 256 << 10
	maxRedirects  = 10
	maxDiscard    = 4 << 10 // bytes of the body of a redirect; with more the connection is given up
	maxTransports = 16
)

// A Pool holds connections by their settings, of at most 16 of these. Idle ones are kept for 4 s. That is less than
// the 5 s of many servers: none of them closes a connection as it is used again. Its zero value works; it is safe for
// concurrent use.
type Pool struct {
	// Connect limits dialing, and a TLS handshake, by default to 10 s: net/http goes on to
	// connect when the request has ended.
	Connect time.Duration

	mu         sync.Mutex
	transports map[setting]*http.Transport
}

// A setting says which requests may share a connection.
type setting struct {
	proxy    string // URL; "" leaves it to the function
	insecure bool   // certificates are not verified
	http2    bool   // where the server has it; a post without answer ends a connection of HTTP/1.1 only
	certs    string
}

// get returns the transport of a setting with the CAs and the client certificate of a Secret that has some, or none
// if its name is "". A proxy over TLS has to be in the setting. Its certificate is verified in any case, and it is not
// shown that of the client.
func (p *Pool) get(s setting, certs secret.Reader, proxy func(*http.Request) (*url.URL, error)) (*http.Transport, error) {
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
	limit := cmp.Or(p.Connect, 10*time.Second)
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
			own := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: settings.RootCAs, ServerName: u.Hostname()}
			t.DialTLSContext = (&tls.Dialer{NetDialer: dialer, Config: own}).DialContext
		}
	}
	if p.transports == nil || len(p.transports) == maxTransports {
		p.forget()
	}
	p.transports[s] = t
	return t, nil
}

// Close ends idle connections. A Pool can be used after it.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget()
}

// forget is called with p.mu held. Connections that are in use end when they were idle for 4 s.
func (p *Pool) forget() {
	for _, t := range p.transports {
		t.CloseIdleConnections()
	}
	p.transports = map[setting]*http.Transport{}
}

// An Answer is what a server answered to a request.
type Answer struct {
	Status    int
	Header    http.Header
	Body      []byte // the beginning of it
	Truncated bool   // the body was longer, or did not end
	Err       error  // why the body did not end
}

// Send sends a request once, and reads at most limit bytes of the body of its answer. Redirects are
// followed within the origin, at most 10, if they repeat the request: those with 307 and 308, and for a GET
// also those with 301 to 303. The error is that of the connection.
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
		if next := replay(to, method, resp); next != nil && hops < maxRedirects {
			io.CopyN(io.Discard, resp.Body, maxDiscard)
			resp.Body.Close()
			to = next
			continue
		}
		defer resp.Body.Close()
		a := &Answer{Status: resp.StatusCode, Header: resp.Header}
		if a.Status != http.StatusSwitchingProtocols { // after which there is no body but another protocol
			a.Body, a.Err = io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
			a.Truncated = a.Err != nil
		}
		if len(a.Body) > limit {
			a.Body, a.Truncated, a.Err = a.Body[:limit], true, nil
		}
		return a, nil
	}
}

// replay returns where the request is to be repeated, nil for nowhere.
func replay(at *url.URL, method string, resp *http.Response) *url.URL {
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

// UserInfo puts the user information of a URL into a header without credentials.
func UserInfo(u *url.URL, header http.Header) {
	if password, _ := u.User.Password(); u.User != nil && header.Get("Authorization") == "" {
		header.Set("Authorization", secret.Auth{Username: u.User.Username(), Password: password}.Header())
	}
}

// Authorize puts the credentials of a Secret into a header, as [secret.Reader.Credentials] has them.
func Authorize(r secret.Reader, header http.Header, tokens []string, own ...string) error {
	more, auth, err := r.Credentials(tokens, own...)
	maps.Copy(header, more)
	if value := auth.Header(); value != "" {
		header.Set("Authorization", value)
	}
	return err
}

// Credentials returns what errors must not show of the header of a request: its values, and the token or the
// password in them.
func Credentials(header http.Header) (list []string) {
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
	return append(list, cmp.Or(password, user)) // a user alone is a token
}
