package transport

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/headgate-io/headgate/internal/origin"
)

// Limits of connections that origins share. Most servers that close idle connections do so
// after 60 s or later; one that does it earlier costs a retry.
const (
	reuseTimeout  = 20 * time.Second
	reuseIdle     = 256 // of all hosts
	reuseIdleHost = 16
)

// trustKeys are the keys of TLS settings, in all spellings.
var trustKeys = slices.Concat(keyCA, keyLegacyCert, keyLegacyKey)

// Settings returns a text that identifies the inputs of trust and proxy: the TLS settings
// of a Secret, read in one of several forms, and the proxy of another. It depends on no
// other credential.
func Settings(form string, trust, proxy Secret) string {
	h := sha256.New()
	HashInto(h, form)
	for _, key := range trustKeys {
		HashInto(h, string(trust.Data[key]))
	}
	proxy.HashInto(h)
	return hex.EncodeToString(h.Sum(nil))
}

// sharedTransport returns the shared transport to Origin. presentCert says whether Origin receives a client
// certificate.
func (c Config) sharedTransport(presentCert bool) *http.Transport {
	key := fmt.Sprintf("%s %t %v %v %v", c.Settings, c.TLS != nil, c.DialTimeout, c.HandshakeTimeout, c.HeaderTimeout)
	if presentCert {
		key += " " + origin.Of(c.Origin)
	}
	return c.Reuse.Transport(key, func() *http.Transport {
		t := newTransport(c, presentCert)
		t.IdleConnTimeout, t.MaxIdleConns, t.MaxIdleConnsPerHost = reuseTimeout, reuseIdle, reuseIdleHost
		return t
	})
}
