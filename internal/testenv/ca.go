package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"
)

// A CA is a throw-away certificate authority.
type CA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA returns a new authority. Clients trust it only if they have its certificate.
func NewCA(t testing.TB) *CA {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "testenv"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	Must(t, err)
	cert, err := x509.ParseCertificate(der)
	Must(t, err)
	return &CA{t, cert, key}
}

var (
	systemOnce sync.Once
	systemCA   *CA
)

// SystemCA returns an authority that replaces those of the system for the rest of
// the process, which must not have loaded them before. A file of
// the test needs the line //go:debug x509usefallbackroots=1 before its package clause.
func SystemCA(t testing.TB) *CA {
	t.Helper()
	systemOnce.Do(func() {
		systemCA = NewCA(t)
		x509.SetFallbackRoots(systemCA.Pool())
	})
	return &CA{t, systemCA.cert, systemCA.key}
}

// PEM returns the authority's certificate.
func (ca *CA) PEM() []byte { return encode("CERTIFICATE", ca.cert.Raw) }

// Pool returns a pool that holds the authority alone.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// Client returns a client certificate and its key, PEM.
func (ca *CA) Client(name string) (cert, key []byte) {
	return ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// ExpiredClient returns a client certificate that expired an hour ago, and its key, PEM.
func (ca *CA) ExpiredClient(name string) (cert, key []byte) {
	return ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotAfter:    time.Now().Add(-time.Hour),
	})
}

// Server returns a certificate and its key, PEM, for localhost, 127.0.0.1 and further names.
func (ca *CA) Server(names ...string) (cert, key []byte) {
	return ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "localhost"},
		DNSNames:    append([]string{"localhost"}, names...),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// ServerConfig returns the TLS configuration of a server for localhost, 127.0.0.1 and
// further names; with mutual, clients need a certificate of the same authority.
func (ca *CA) ServerConfig(mutual bool, names ...string) *tls.Config {
	ca.t.Helper()
	pair, err := tls.X509KeyPair(ca.Server(names...))
	Must(ca.t, err)
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if mutual {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
	}
	return c
}

func (ca *CA) issue(c *x509.Certificate) (cert, key []byte) {
	ca.t.Helper()
	priv := newKey(ca.t)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	Must(ca.t, err)
	c.SerialNumber, c.NotBefore = serial, ca.cert.NotBefore
	if c.NotAfter.IsZero() {
		c.NotAfter = ca.cert.NotAfter
	}
	c.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, c, ca.cert, priv.Public(), ca.key)
	Must(ca.t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(priv)
	Must(ca.t, err)
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", pkcs8)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(t, err)
	return key
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
