package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/headgate-io/headgate/internal/origin"
	"github.com/headgate-io/headgate/source"
)

const (
	dialTimeout      = 30 * time.Second
	handshakeTimeout = 15 * time.Second
	headerTimeout    = 60 * time.Second
	idleTimeout      = 90 * time.Second
	maxIdlePerHost   = 64
	maxHeaderBytes   = 256 << 10
	maxRedirects     = 10
)

// A Config says how a [Client] connects and which credentials it sends to which server. The
// zero value is a client without credentials that trusts the system's CAs.
type Config struct {
	// Origin is the server that receives Auth and the client certificate in TLS. Its path
	// is ignored; its user information is used if Auth is zero. If Origin is nil, no server
	// receives them.
	Origin *url.URL
	Auth   Auth
	TLS    *tls.Config

	// Refused is called when Origin rejects Auth (status 401 or 403). It may be nil.
	Refused func()

	// Proxy is as in [http.Transport]: nil for none, [Proxy.For] or a function of the
	// caller. A proxy looks up names itself, so that hosts are then judged by their
	// spelling.
	Proxy func(*http.Request) (*url.URL, error)

	// Guard judges where Origin may lead, by redirects or by its content. Networks are
	// allowed in any case. The default is NewNetworkGuard(Origin, nil); without Origin only
	// redirects are judged.
	Guard    *NetworkGuard
	Networks *source.Networks

	// Reuse shares connections to Origin with other clients, if the user named Origin; nil
	// for none. Settings identifies what TLS and Proxy were made from, see [Settings].
	Reuse    *source.Connections
	Settings string

	DialTimeout      time.Duration // default 30s
	HandshakeTimeout time.Duration // default 15s
	HeaderTimeout    time.Duration // until the response header, after the request was sent; default 60s
}

// ConfigFromEnv returns the part of a Config that env determines.
func ConfigFromEnv(env source.Env) Config {
	return Config{Proxy: env.Proxy, Networks: env.Networks, Reuse: env.Reuse}
}

// Client returns an HTTP client that follows the rules of this package. The caller ends
// idle connections with CloseIdleConnections.
func Client(c Config) *http.Client {
	return &http.Client{Transport: newOriginTransport(c), CheckRedirect: checkRedirect}
}

// errDowngrade refuses a redirect from https to http.
var errDowngrade = errors.New("redirect from https to http refused")

func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	if req.URL.Scheme == "http" && via[len(via)-1].URL.Scheme == "https" {
		return errDowngrade
	}
	req.URL.User = nil
	req.Header.Del("Referer") // it repeats the query of the previous URL, which may be a credential
	for _, earlier := range via {
		if origin.Of(earlier.URL) != origin.Of(req.URL) {
			req.Header.Del("Authorization") // headers of the caller are also for the first origin only
			req.Header.Del("Cookie")
		}
	}
	return nil
}

// newTransport returns the http.Transport of c. It presents the client certificate only if presentCert
// is set, and even then not to a proxy.
func newTransport(c Config, presentCert bool) *http.Transport {
	d := &net.Dialer{Timeout: cmp.Or(c.DialTimeout, dialTimeout), ControlContext: checkAddress}
	t := &http.Transport{
		Proxy:                  func(req *http.Request) (*url.URL, error) { return hopOf(req.Context()).proxy, nil },
		DialContext:            func(ctx context.Context, network, addr string) (net.Conn, error) { return Dial(d, ctx, network, addr) },
		TLSClientConfig:        c.TLS.Clone(),
		TLSHandshakeTimeout:    cmp.Or(c.HandshakeTimeout, handshakeTimeout),
		ResponseHeaderTimeout:  cmp.Or(c.HeaderTimeout, headerTimeout),
		IdleConnTimeout:        idleTimeout,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ForceAttemptHTTP2:      true,
		OnProxyConnectResponse: proxyAnswer,
	}
	switch {
	case c.TLS == nil:
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	case !presentCert:
		t.TLSClientConfig = withoutCertificate(c.TLS, "")
	default:
		hideCertFromProxy(t, c)
	}
	t.TLSClientConfig.GetClientCertificate = chooseCertificate(t.TLSClientConfig.Certificates)
	return t
}

// chooseCertificate chooses a certificate as [tls.Config] does by default, and records that the
// server asked for one.
func chooseCertificate(certs []tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	hint := hintNoCertificate
	if len(certs) > 0 {
		hint = hintCertificateRefused
	}
	return func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if s := hopOf(request.Context()); s != nil {
			s.certHint.Store(&hint)
		}
		for i := range certs {
			if request.SupportsCertificate(&certs[i]) == nil {
				return &certs[i], nil
			}
		}
		return new(tls.Certificate), nil
	}
}

// Hints for a connection that breaks after the server asked for a client certificate. In
// TLS 1.3 the server refuses after the handshake, and its reason is lost if the client is
// still writing.
const (
	hintNoCertificate      = "the server asks for a client certificate: give it one by tls.crt and tls.key in the Secret"
	hintCertificateRefused = "the server asks for a client certificate and may not accept tls.crt of the Secret"
)

// hideCertFromProxy makes t present its client certificate to the origin behind an https proxy,
// but not to the proxy: http.Transport has one setting for both. It calls DialTLSContext
// only to reach the proxy.
func hideCertFromProxy(t *http.Transport, c Config) {
	if c.Proxy == nil {
		return
	}
	proxy, err := c.Proxy(&http.Request{URL: c.Origin})
	if err != nil || proxy == nil || proxy.Scheme != "https" {
		return
	}
	d := tls.Dialer{NetDialer: &net.Dialer{}, Config: withoutCertificate(c.TLS, proxy.Hostname())}
	limit := cmp.Or(c.DialTimeout, dialTimeout) + t.TLSHandshakeTimeout
	t.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return d.DialContext(ctx, network, addr)
	}
}

func proxyAnswer(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return &ProxyError{proxy.Scheme + "://" + proxy.Host, resp.StatusCode}
}
