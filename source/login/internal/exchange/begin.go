package exchange

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate-io/headgate/source"
)

// Begin begins a login with the identity of the program itself. place is what
// find, which knows what is the provider's, makes of the URL of r; client is
// for the requests to token services, the caller closes its idle connections.
// The Secret of r is not read: what it says of TLS has gone into OwnTrust, and
// who has a Secret with credentials for a registry does not log in.
func Begin[Place any](r source.LoginRequest, find func(*url.URL) (Place, error)) (place Place, client *http.Client, err error) {
	if place, err = find(r.URL); err != nil {
		return place, nil, fmt.Errorf("%w: %w: %s: %w", source.ErrInvalid, source.ErrProvider, cmp.Or(fields[r.URL.Scheme], "spec.url"), err)
	}
	if err := own(r); err != nil {
		return place, nil, err
	}
	return place, Client(r.Client), nil
}

// own reports why the identity of the program itself cannot be used for r, nil
// when it can: for another identity than its own, and towards servers that are
// not vouched for by the system but by whoever wrote the object.
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

// Nobody returns err as one that says that there is nothing to log in with: it
// satisfies [source.ErrNoIdentity].
func Nobody(err error) error { return nobody{err} }

type nobody struct{ error }

func (n nobody) Is(target error) bool { return target == source.ErrNoIdentity }
func (n nobody) Unwrap() error        { return n.error }

// Sendable reports whether what a service issued can be sent in a header.
func Sendable(token string) bool {
	return token != "" && !strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
}
