package rollout

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/headgate-io/headgate/internal/secret"
)

const (
	dialTimeout      = 30 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 4 * time.Second // shorter than the 5 s of many servers: none of them closes a connection as it is used again
	maxIdlePerHost   = 8
	maxIdle          = 64
	maxHeaderBytes   = 256 << 10
	maxTransports    = 16
)

// A setting is what makes a connection fit for a call or not.
type setting struct {
	insecure bool              // certificates are not verified
	certs    [sha256.Size]byte // of the content of the Secret with CAs and client certificate; zero for none
	proxy    string            // the URL of an https proxy, "" for others and none
}

// A transport holds the connections of one setting.
type transport struct {
	setting
	*http.Transport
}

// The keys of a Secret with certificates.
var keyCA, keyCert, keyKey = []string{"ca.crt"}, []string{"tls.crt"}, []string{"tls.key"}

// transport returns that of a webhook, whose URL has a proxy or nil. It is to be
// released.
func (c *Caller) transport(ctx context.Context, hook Hook, namespace string, proxy *url.URL) (*transport, error) {
	want := setting{insecure: hook.DisableTLS}
	var certs secret.Reader
	if hook.CertSecretRef != nil {
		var err error
		if certs, err = c.secret(ctx, namespace, hook.CertSecretRef); err != nil {
			return nil, fmt.Errorf("certSecretRef: %w", err)
		}
		want.certs = digest(certs)
	}
	if proxy != nil && proxy.Scheme == "https" {
		want.proxy = proxy.String()
	} else {
		proxy = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.transports, func(t *transport) bool { return t.setting == want }); i >= 0 {
		t := c.transports[i]
		c.transports = append(slices.Delete(c.transports, i, i+1), t)
		return t, nil
	}
	config, err := tlsConfig(hook, certs)
	if err != nil {
		return nil, err
	}
	if len(c.transports) == maxTransports {
		c.transports[0].CloseIdleConnections()
		c.transports = slices.Delete(c.transports, 0, 1)
	}
	t := &transport{want, c.newTransport(config, proxy)}
	c.transports = append(c.transports, t)
	return t, nil
}

// release ends the idle connections of a transport that was forgotten while a
// call used it.
func (c *Caller) release(t *transport) {
	c.mu.Lock()
	kept := slices.Contains(c.transports, t)
	c.mu.Unlock()
	if !kept {
		t.CloseIdleConnections()
	}
}

// digest returns one of what a Secret has under the keys of certificates.
func digest(r secret.Reader) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, keys := range [][]string{keyCA, keyCert, keyKey} {
		v, _ := r.Value(keys)
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(v))))
		h.Write(v)
	}
	h.Sum(sum[:0])
	return sum
}

// tlsConfig returns the TLS settings of a webhook; certs is its Secret with certificates.
func tlsConfig(hook Hook, certs secret.Reader) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if hook.CertSecretRef != nil {
		own, err := certs.TLS(keyCA, keyCert, keyKey)
		if err == nil && own == nil {
			err = certs.Problem(keyCA[0], "is missing, and so are %s and %s: set one of them", keyCert[0], keyKey[0])
		}
		if err != nil {
			return nil, fmt.Errorf("certSecretRef: %w", err)
		}
		config = own
	}
	config.InsecureSkipVerify = hook.DisableTLS
	return config, nil
}

// proxy returns that for a URL, nil for none.
func (c *Caller) proxy(target *url.URL) (*url.URL, error) {
	if c.Proxy == nil {
		return nil, nil
	}
	proxy, err := c.Proxy(&http.Request{Method: http.MethodPost, URL: target, Header: http.Header{}, Host: target.Host})
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	return proxy, nil
}

// newTransport returns a transport with the TLS settings config. proxy is its
// proxy when that is spoken to over TLS: then its certificate is verified, and
// it is not shown that of the client.
func (c *Caller) newTransport(config *tls.Config, proxy *url.URL) *http.Transport {
	t := &http.Transport{
		Proxy:                  c.Proxy,
		DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    handshakeTimeout,
		IdleConnTimeout:        cmp.Or(c.idle, idleTimeout),
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ForceAttemptHTTP2:      true,
		OnProxyConnectResponse: proxyAnswer,
	}
	if proxy == nil {
		return t
	}
	t.Proxy = http.ProxyURL(proxy)
	t.DialTLSContext = (&tls.Dialer{
		NetDialer: &net.Dialer{Timeout: dialTimeout},
		Config:    &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: config.RootCAs, ServerName: proxy.Hostname()},
	}).DialContext
	return t
}

func proxyAnswer(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return fmt.Errorf("proxy %s answered status %d", proxy.Host, resp.StatusCode)
}
