package exchange

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate-io/headgate/source"
)

// Begin begins a login with the identity of the program itself. at is the result
// of find, which recognises the hosts of a provider, for the URL of r; client is
// for the requests to token services, and the caller closes its idle connections.
// The Secret of r is not read: OwnTrust tells what it says of TLS, and an object
// whose Secret holds credentials for a registry does not log in.
func Begin[Endpoint any](r source.LoginRequest, find func(*url.URL) (Endpoint, error)) (at Endpoint, client *http.Client, err error) {
	if at, err = find(r.URL); err != nil {
		return at, nil, fmt.Errorf("%w: %w: %s: %w", source.ErrInvalid, source.ErrProvider, cmp.Or(fields[r.URL.Scheme], "spec.url"), err)
	}
	if err := own(r); err != nil {
		return at, nil, err
	}
	return at, Client(r.Client), nil
}

// own returns an error if the identity of the program itself cannot be used for r:
// r asks for another identity, or for servers that the object trusts and the
// system does not.
func own(r source.LoginRequest) error {
	switch {
	case r.ServiceAccount != "":
		return fmt.Errorf("%w: %w: spec.serviceAccountName: only a cluster issues tokens of its service accounts; remove it to use the identity of this program",
			source.ErrInvalid, source.ErrProvider)
	case r.OwnTrust:
		where := "spec.certSecretRef"
		if r.SecretName != "" {
			where = "secret " + r.SecretName
		}
		return fmt.Errorf("%w: %s: ca.crt, tls.crt and tls.key do not go with the identity of this program, which is shown only to servers that the system trusts: "+
			"remove them, and add the CA to those of the system", source.ErrProvider, where)
	}
	return nil
}

// fields are those that the hosts of URLs come from, by scheme.
var fields = map[string]string{"https": "spec.url", "oci": "spec.url", "s3": "spec.endpoint", "gs": "spec.endpoint", "azblob": "spec.endpoint"}

// Host returns the host that u is at, in lower case; "" unless that is reached
// over TLS at its default port, is nothing but a host name in ASCII, and comes
// without user information. Patterns of hosts are matched against it alone.
func Host(u *url.URL) string {
	host := strings.TrimSuffix(u.Host, ":443")
	if fields[u.Scheme] == "" || u.User != nil || strings.ContainsFunc(host, foreign) {
		return ""
	}
	return strings.ToLower(host)
}

// foreign reports whether a name of a host cannot contain r.
func foreign(r rune) bool {
	return r != '-' && r != '.' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// NoIdentity returns err as an error that satisfies [source.ErrNoIdentity].
func NoIdentity(err error) error { return noIdentity{err} }

type noIdentity struct{ error }

func (n noIdentity) Is(target error) bool { return target == source.ErrNoIdentity }
func (n noIdentity) Unwrap() error        { return n.error }
