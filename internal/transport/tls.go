package transport

import (
	"crypto/tls"

	"github.com/headgate-io/headgate/source"
)

// GitTLS returns the TLS settings of the Secret of a GitRepository, nil when
// it has none: the CA to add to the system's, and the client certificate.
func GitTLS(name string, s source.Secret) (*tls.Config, error) {
	return read(name, s).TLS(keyCA, keyCert, keyKey)
}

// CertTLS returns the TLS settings of a Secret named by certSecretRef. A Secret
// without any is an error.
func CertTLS(name string, s source.Secret) (*tls.Config, error) {
	r := read(name, s)
	c, err := r.TLS(keyCA, keyLegacyCert, keyLegacyKey)
	if c == nil && err == nil {
		err = r.Problem(keyCA[0], "is missing, and so are %s and %s: set it, or both of them", keyCert[0], keyKey[0])
	}
	return c, err
}

// RepositoryTLS returns the TLS settings of the Secret of a PkgRepository, nil
// when it has none, and the keys that they are under: all are deprecated.
func RepositoryTLS(name string, s source.Secret) (c *tls.Config, deprecated []string, err error) {
	r := read(name, s)
	for _, keys := range [][]string{keyOldCA, keyOldCert, keyOldKey} {
		if v, key := r.Value(keys); v != nil {
			deprecated = append(deprecated, key)
		}
	}
	c, err = r.TLS(keyOldCA, keyOldCert, keyOldKey)
	return c, deprecated, err
}
