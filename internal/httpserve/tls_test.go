package httpserve_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/httpserve"
)

// An authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// issue makes a certificate, by itself for the zero authority.
func (a authority) issue(t *testing.T, template x509.Certificate) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template.SerialNumber, template.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-2*time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	if a.cert == nil {
		a.cert, a.key = &template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, a.cert, &key.PublicKey, a.key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	return authority{}.issue(t, x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
}

func (a authority) pair() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{a.cert.Raw}, PrivateKey: a.key}
}

func (a authority) keyPEM(t *testing.T) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func put(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(dir, name)
	must(t, os.WriteFile(file, content, 0o600))
	return file
}

// call returns what a server says of a client with a certificate, nil for none.
func call(server string, roots authority, client *tls.Certificate) (string, error) {
	pool := x509.NewCertPool()
	pool.AddCert(roots.cert)
	config := &tls.Config{RootCAs: pool, ServerName: "tester"}
	if client != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return client, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Get(server)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.Proto + " " + string(body), err
}

// serve serves what g says of callers, over TLS.
func serve(t *testing.T, g *httpserve.Guard, e httpserve.Endpoint, now func() time.Time, warn func(error)) string {
	t.Helper()
	config, err := e.TLS(now, warn)
	must(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		grant, err := g.Identify(r, "")
		fmt.Fprintf(w, "%s %v", grant.Actor, err)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true
	server.TLS = config
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

// TestRotation replaces the files of a server that runs.
func TestRotation(t *testing.T) {
	old, new, dir := newAuthority(t), newAuthority(t), t.TempDir()
	var later atomic.Int64
	warnings := make(chan error, 10)
	first := old.issue(t, x509.Certificate{DNSNames: []string{"tester"}})
	settings := httpserve.Endpoint{
		Cert: put(t, dir, "crt", first.pem), Key: put(t, dir, "key", first.keyPEM(t)), ClientCA: put(t, dir, "ca", old.pem),
	}
	now := func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	guard, err := httpserve.OpenGuard(httpserve.Config{Certificates: true})
	must(t, err)
	server := serve(t, guard, settings, now, func(err error) { warnings <- err })
	alice, bob := old.issue(t, x509.Certificate{Subject: pkix.Name{CommonName: "alice"}}).pair(), new.issue(t, x509.Certificate{Subject: pkix.Name{CommonName: "bob"}}).pair()
	is := func(when string, roots authority, client *tls.Certificate, want bool) {
		t.Helper()
		if _, err := call(server, roots, client); (err == nil) != want {
			t.Errorf("%s: %v", when, err)
		}
	}
	is("at first", old, alice, true)
	is("a client of the next CA", old, bob, false)
	second := new.issue(t, x509.Certificate{DNSNames: []string{"tester"}})
	put(t, dir, "crt", second.pem)
	later.Add(int64(time.Second))
	is("half replaced", old, alice, true)
	if err := <-warnings; !strings.Contains(err.Error(), "what it held before counts on") {
		t.Errorf("warning: %v", err)
	}
	put(t, dir, "key", second.keyPEM(t))
	put(t, dir, "ca", new.pem)
	later.Add(int64(time.Second))
	is("replaced", new, bob, true)
	is("the old CA of clients", new, alice, false)
	is("the old certificate", old, bob, false)
}

// TestCertificateExpires shows what a connection is worth that lasts longer
// than the certificate of its client.
func TestCertificateExpires(t *testing.T) {
	id := &url.URL{Scheme: "spiffe", Host: "example.com", Path: "/alice"}
	leaf := newAuthority(t).issue(t, x509.Certificate{Subject: pkix.Name{CommonName: "alice"}, DNSNames: []string{"alice.example.com"}, URIs: []*url.URL{id}}).cert
	now := leaf.NotAfter
	for name, config := range map[string]httpserve.Config{
		"named": {File: write(t, "certificates: [{name: alice, commonName: alice}]")}, "dns": {File: write(t, "certificates: [{name: alice, dns: alice.example.com}]")},
		"uri": {File: write(t, "certificates: [{name: bob, uri: 'spiffe://example.com/bob'}, {name: alice, uri: 'spiffe://example.com/alice'}]")}, "any": {},
	} {
		now = leaf.NotAfter
		config.Certificates, config.Now = true, func() time.Time { return now }
		g, err := httpserve.OpenGuard(config)
		must(t, err)
		r := request("/")
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}
		grant, err := g.Identify(r, "")
		if again, errAgain := g.Renew(grant); err != nil || errAgain != nil || again != grant || grant.Actor != "alice" {
			t.Errorf("%s: %+v, %v; %+v, %v", name, grant, err, again, errAgain)
		}
		now = now.Add(1)
		_, err = g.Identify(r, "")
		denial := (*httpserve.Denial)(nil)
		if _, errAgain := g.Renew(grant); !errors.As(err, &denial) || denial.Kind != "expired" || !errors.Is(errAgain, httpserve.ErrUnknown) {
			t.Errorf("%s, expired: %v, %v", name, err, errAgain)
		}
	}
}
