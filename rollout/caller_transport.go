package rollout

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"
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
	insecure bool // certificates are not verified
}

// A transport holds the connections of one setting.
type transport struct {
	setting
	*http.Transport
}

// transport returns that of a webhook.
func (c *Caller) transport(hook Hook, target *url.URL) (*transport, error) {
	if hook.SecretRef != nil || hook.CertSecretRef != nil {
		return nil, errors.New("secretRef: not built")
	}
	want := setting{insecure: hook.DisableTLS}
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.transports, func(t *transport) bool { return t.setting == want })
	if i >= 0 {
		t := c.transports[i]
		c.transports = append(slices.Delete(c.transports, i, i+1), t)
		return t, nil
	}
	if len(c.transports) == maxTransports {
		c.transports[0].CloseIdleConnections()
		c.transports = slices.Delete(c.transports, 0, 1)
	}
	t := &transport{want, c.newTransport(want)}
	c.transports = append(c.transports, t)
	return t, nil
}

func (c *Caller) newTransport(s setting) *http.Transport {
	return &http.Transport{
		Proxy:                  c.Proxy,
		DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: s.insecure},
		TLSHandshakeTimeout:    handshakeTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ForceAttemptHTTP2:      true,
	}
}
