package tester_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout/tester"
	"github.com/headgate-io/headgate/rollout/tester/access"
)

// guard returns a guard that wants tokens.
func guard(t *testing.T, callers string) *access.Guard {
	t.Helper()
	name := filepath.Join(t.TempDir(), "callers.yaml")
	if err := os.WriteFile(name, []byte(callers), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := access.Open(access.Config{File: name})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

const oneCaller = "tokens: [{name: ci, token: 0123456789abcdef-ci}]"

// TestExposure shows where a test runner listens (S-10).
func TestExposure(t *testing.T) {
	for addr, exposed := range map[string]bool{
		"127.0.0.1:0":              false,
		"127.8.9.1:0":              false,
		"localhost:0":              false,
		"[::1]:0":                  false,
		"[::ffff:127.0.0.1]:0":     false,
		":0":                       true,
		"0.0.0.0:0":                true,
		"[::]:0":                   true,
		"[::ffff:0.0.0.0]:0":       true,
		"[0:0:0:0:0:ffff:0:0]:0":   true,
		"[::ffff:192.0.2.1]:0":     true,
		"192.0.2.1:0":              true,
		"169.254.169.254:0":        true,
		"[fe80::1%lo]:0":           true,
		"[2001:db8::7f00:1]:0":     true,
		"[::127.0.0.1]:0":          true, // which is no loopback address
		"[64:ff9b::127.0.0.1]:0":   true,
		"[fd00::1]:0":              true,
		"255.255.255.255:0":        true,
		"[0000:0000::0000:0001]:0": false,
	} {
		l, err := new(tester.Server).Listen(t.Context(), tester.Endpoint{Addr: addr})
		if exposed != errors.Is(err, tester.ErrExposed) {
			t.Errorf("%s: %v; exposed is %t", addr, err, exposed)
		}
		if l != nil {
			l.Close()
		}
	}
	for name, s := range map[string]struct {
		server *tester.Server
		tester.Endpoint
	}{
		"with tokens":         {&tester.Server{Guard: guard(t, oneCaller)}, tester.Endpoint{Addr: ":0"}},
		"because it is asked": {&tester.Server{}, tester.Endpoint{Addr: ":0", Insecure: true}},
	} {
		l, err := s.server.Listen(t.Context(), s.Endpoint)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		l.Close()
	}
}

func TestListenAtNothing(t *testing.T) {
	cert, key := certificate(t)
	for name, tt := range map[string]struct {
		e    tester.Endpoint
		want string
	}{
		"no port":                  {tester.Endpoint{Addr: "127.0.0.1"}, "want HOST:PORT"},
		"a URL":                    {tester.Endpoint{Addr: "http://127.0.0.1:80"}, "want HOST:PORT"},
		"IPv6 without brackets":    {tester.Endpoint{Addr: "::1:80"}, "want HOST:PORT"},
		"a port that is none":      {tester.Endpoint{Addr: "127.0.0.1:http"}, "want a number"},
		"a port that is too high":  {tester.Endpoint{Addr: "127.0.0.1:65536"}, "want a number"},
		"half a certificate":       {tester.Endpoint{Cert: cert}, "go together"},
		"the other half":           {tester.Endpoint{Key: key}, "go together"},
		"a CA without TLS":         {tester.Endpoint{ClientCA: cert}, "need TLS"},
		"optional without a CA":    {tester.Endpoint{Cert: cert, Key: key, Optional: true}, "need a CA"},
		"a guard that looks away":  {tester.Endpoint{Cert: cert, Key: key, ClientCA: cert}, "nothing says who has them"},
		"a key that is none":       {tester.Endpoint{Cert: cert, Key: cert}, "with key"},
		"a CA that is none":        {tester.Endpoint{Cert: cert, Key: key, ClientCA: key}, "no certificate in PEM"},
		"a file that is not there": {tester.Endpoint{Cert: cert + "x", Key: key}, "no such file"},
	} {
		if tt.e.Addr == "" {
			tt.e.Addr = "127.0.0.1:0"
		}
		l, err := new(tester.Server).Listen(t.Context(), tt.e)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if l != nil {
			l.Close()
		}
	}
}

// certificate writes a certificate for 127.0.0.1, and one of the CA that is
// itself, and returns the names of both files.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	newAuthority(t).issue(t, cert, key, x509.Certificate{})
	return cert, key
}

// An authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	a.cert, a.key, a.pem = create(t, template, template, nil)
	return a
}

func create(t *testing.T, template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue writes a certificate for servers and clients, with the names of template.
func (a *authority) issue(t *testing.T, certFile, keyFile string, template x509.Certificate) {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.DNSNames = append(template.DNSNames, "localhost")
	_, key, text := create(t, &template, a.cert, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{certFile: text, keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
