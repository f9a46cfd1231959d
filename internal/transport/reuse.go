package transport

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/headgate-io/headgate/internal/origin"
)

// Bounds of connections that origins share. Of the servers that close those
// that are idle most do so after 60 s or later; one that does it earlier costs a
// request that is sent again.
const (
	reuseTimeout  = 20 * time.Second
	reuseIdle     = 256 // of all hosts
	reuseIdleHost = 16
)

// trustKeys are the keys that TLS settings are made of, in all spellings.
var trustKeys = slices.Concat(keyCA, keyLegacyCert, keyLegacyKey)

// Settings returns a text that tells what trust and proxy were made of: the TLS
// settings of a Secret, read in one of several forms, and the proxy of another.
// No other credential takes part.
func Settings(form string, trust, proxy Secret) string {
	h := sha256.New()
	Note(h, form)
	for _, key := range trustKeys {
		Note(h, string(trust.Data[key]))
	}
	proxy.Note(h)
	return hex.EncodeToString(h.Sum(nil))
}

// reuses reports whether connections to Origin may be those of others. What
// MayDial would refuse cannot be told once they are open.
func (c *Config) reuses() bool {
	return c.Reuse != nil && c.Origin != nil && (c.MayDial == nil || c.Fence != nil)
}

// shared returns the transport to Origin that others use as well.
func (c Config) shared() *http.Transport {
	c.MayDial, c.MayAsk = nil, nil
	key := fmt.Sprintf("%s %t %v %v %v", c.Settings, c.TLS != nil, c.DialTimeout, c.HandshakeTimeout, c.HeaderTimeout)
	own := c.presents()
	if own {
		key += " " + origin.Of(c.Origin)
	}
	return c.Reuse.Transport(key, func() *http.Transport {
		t := transport(c, own)
		t.IdleConnTimeout, t.MaxIdleConns, t.MaxIdleConnsPerHost = reuseTimeout, reuseIdle, reuseIdleHost
		return t
	})
}

// presents reports whether Origin is shown a client certificate.
func (c *Config) presents() bool {
	return c.Origin != nil && c.TLS != nil && len(c.TLS.Certificates) > 0
}

// located tells the fence of c where the answer to req comes from.
func (c *Config) located(req *http.Request) *http.Request {
	switch {
	case c.Fence == nil:
		return req
	case c.Proxy != nil:
		c.Fence.Found(ZoneOfHost(req.URL))
		return req
	}
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if at, err := netip.ParseAddrPort(info.Conn.RemoteAddr().String()); err == nil {
			c.Fence.Found(ZoneOf(at.Addr()))
		}
	}}))
}

// asks returns who chooses the proxy, and refuses what may not be asked for.
func (c *Config) asks() func(*http.Request) (*url.URL, error) {
	if c.Proxy == nil || c.MayAsk == nil {
		return c.Proxy
	}
	proxy, may := c.Proxy, c.MayAsk
	return func(req *http.Request) (*url.URL, error) {
		if err := may(req.URL); err != nil {
			return nil, err
		}
		return proxy(req)
	}
}
