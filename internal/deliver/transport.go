package deliver

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

const (
	maxIdle   = 90 * time.Second
	maxHeader = 64 << 10 // bytes of the header of an answer
)

// transport returns a transport to t, which speaks HTTP/1.1: there a post without answer
// ends its connection, and the next has a new one. To connect takes at most limit, also when the post
// that asked for it has ended. A proxy that is spoken to over TLS is not shown the certificate of the client.
func (t *Target) transport(limit time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: limit}
	transport := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        t.TLS,
		TLSHandshakeTimeout:    limit,
		IdleConnTimeout:        maxIdle,
		MaxIdleConnsPerHost:    1,
		MaxResponseHeaderBytes: maxHeader,
	}
	if t.Proxy == nil {
		return transport
	}
	transport.Proxy = http.ProxyURL(t.Proxy)
	transport.OnProxyConnectResponse = func(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		return fmt.Errorf("proxy %s answered status %d", proxy.Host, resp.StatusCode)
	}
	if t.Proxy.Scheme == "https" {
		transport.DialTLSContext = (&tls.Dialer{
			NetDialer: dialer, // whose timeout is that of the handshake as well
			Config:    &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: t.TLS.RootCAs, ServerName: t.Proxy.Hostname()},
		}).DialContext
	}
	return transport
}
