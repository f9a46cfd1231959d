package oci

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// Pause replaces the function by which r waits before a retry, and its clock.
func (r *Repository) Pause(wait func(context.Context, time.Duration) error, now func() time.Time) {
	p := r.upload.auth.client.Transport.(*transport.RetryTransport)
	p.Wait, p.Now = wait, now
}

// ReadChallenges parses the challenges in a header, and returns the realms that are valid
// for a registry.
func ReadChallenges(from *url.URL, line string) (realms []*url.URL) {
	for _, params := range parseChallenges(http.Header{"Www-Authenticate": {line}}) {
		if u, err := parseRealm(from, params["realm"]); err == nil {
			realms = append(realms, u)
		}
	}
	return realms
}

// Find returns the credentials for a repository from Secrets with these dockerconfigjson texts.
func Find(url string, configs ...string) (c source.Credential, found bool, err error) {
	at, err := parseAddress(url)
	if err != nil {
		return c, false, err
	}
	var all keychain
	for i, text := range configs {
		k, err := readKeys(transport.Secret{Name: fmt.Sprintf("apps/s%d", i), Secret: source.Secret{Data: map[string][]byte{".dockerconfigjson": []byte(text)}}})
		if err != nil {
			return c, false, err
		}
		all = append(all, k...)
	}
	all.sort()
	e, found := all.find(at)
	return e.credential, found, nil
}

// Trusts reports whether credentials for a registry may be sent to a realm.
func Trusts(registry, realm, config string) bool {
	k, _ := readKeys(transport.Secret{Secret: source.Secret{Data: map[string][]byte{".dockerconfigjson": []byte(config)}}})
	from := &url.URL{Scheme: "https", Host: registry}
	u, err := parseRealm(from, realm)
	return err == nil && checkRealmTrust(from, u, k) == nil
}
