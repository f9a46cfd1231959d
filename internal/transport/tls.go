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

// CertTLS returns the TLS settings of a Secret named by certSecretRef, nil when it has none.
func CertTLS(name string, s source.Secret) (*tls.Config, error) {
	return read(name, s).TLS(keyCA, keyLegacyCert, keyLegacyKey)
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
