package secret

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
)

// TLS returns the TLS settings of a Secret, nil if it has none: the CAs to add to the
// system's, and the client certificate. In each list of keys, the first key with a value
// counts.
func (r Reader) TLS(caKeys, certKeys, keyKeys []string) (*tls.Config, error) {
	pool, err := r.certPool(caKeys)
	if err != nil {
		return nil, err
	}
	pair, err := r.clientCertificate(certKeys, keyKeys)
	if err != nil || pool == nil && pair == nil {
		return nil, err
	}
	c := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if pair != nil {
		c.Certificates = []tls.Certificate{*pair}
	}
	return c, nil
}

// certPool returns the system's CAs and those of r, nil if r has none. Like the system's own
// bundles, that of r may contain certificates that cannot be parsed.
func (r Reader) certPool(keys []string) (*x509.CertPool, error) {
	ca, key := r.Value(keys)
	if ca == nil {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the system's CA certificates: %w", err)
	}
	if pool.AppendCertsFromPEM(ca) {
		return pool, nil
	}
	block, err := r.Block(ca, key, "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	_, err = x509.ParseCertificate(block.Bytes)
	return nil, r.Problem(key, "holds no certificate that can be parsed: %v", err)
}

// clientCertificate returns the client certificate of r, nil if it has none.
func (r Reader) clientCertificate(certKeys, keyKeys []string) (*tls.Certificate, error) {
	cert, certKey := r.Value(certKeys)
	key, keyKey := r.Value(keyKeys)
	switch {
	case cert == nil && key == nil:
		return nil, nil
	case cert == nil:
		return nil, r.Problem(certKey, "is missing: %s needs it", keyKey)
	case key == nil:
		return nil, r.Problem(keyKey, "is missing: %s needs it", certKey)
	}
	block, err := r.Block(cert, certKey, "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	if _, err := x509.ParseCertificate(block.Bytes); err != nil {
		return nil, r.Problem(certKey, "holds a certificate that cannot be parsed: %v", err)
	}
	if _, err := r.Block(key, keyKey, "PRIVATE KEY"); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, r.Problem(keyKey, "cannot be used with %s: %s", certKey, strings.TrimPrefix(err.Error(), "tls: "))
	}
	return &pair, nil
}

// Block returns the first PEM block of v, whose type must end in want.
func (r Reader) Block(v []byte, key, want string) (*pem.Block, error) {
	var others []string
	for rest := v; ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		if b.Type == "ENCRYPTED PRIVATE KEY" || b.Headers["DEK-Info"] != "" {
			return nil, r.Problem(key, "is encrypted: store it without a passphrase")
		}
		if strings.HasSuffix(b.Type, want) {
			return b, nil
		}
		others = append(others, b.Type)
	}
	if others == nil {
		return nil, r.Problem(key, "is not PEM")
	}
	return nil, r.Problem(key, "holds no %s but %s", want, strings.Join(others, ", "))
}
