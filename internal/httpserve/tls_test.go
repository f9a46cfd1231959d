package httpserve_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
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
	"github.com/headgate-io/headgate/internal/testenv"
)

// TestRotation replaces the certificate files of a running server.
func TestRotation(t *testing.T) {
	old, next, dir := testenv.NewCA(t), testenv.NewCA(t), t.TempDir()
	put := func(name string, content []byte) string {
		file := filepath.Join(dir, name)
		must(t, os.WriteFile(file, content, 0o600))
		return file
	}
	var clockOffset atomic.Int64
	warnings := make(chan error, 10)
	cert, key := old.Server("tester")
	endpoint := httpserve.Endpoint{Cert: put("crt", cert), Key: put("key", key), ClientCA: put("ca", old.PEM())}
	config, err := endpoint.TLS(func() time.Time { return time.Now().Add(time.Duration(clockOffset.Load())) }, func(err error) { warnings <- err })
	must(t, err)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2, server.TLS = true, config
	server.StartTLS()
	defer server.Close()
	is := func(when string, roots, authority *testenv.CA, want bool) {
		t.Helper()
		client, err := tls.X509KeyPair(authority.Client("alice"))
		must(t, err)
		transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
			RootCAs: roots.Pool(), ServerName: "tester", GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &client, nil },
		}}
		defer transport.CloseIdleConnections()
		res, err := (&http.Client{Transport: transport}).Get(server.URL)
		if (err == nil) != want {
			t.Errorf("%s: %v", when, err)
		}
		if err == nil {
			res.Body.Close()
		}
	}
	is("at first", old, old, true)
	is("a client of the next CA", old, next, false)
	cert, key = next.Server("tester")
	put("crt", cert)
	clockOffset.Add(int64(time.Second))
	is("half replaced", old, old, true)
	if err := <-warnings; !strings.Contains(err.Error(), "its previous content stays in effect") {
		t.Errorf("warning: %v", err)
	}
	put("key", key)
	put("ca", next.PEM())
	clockOffset.Add(int64(time.Second))
	is("replaced", next, next, true)
	is("the old CA of clients", next, old, false)
	is("the old certificate", old, next, false)
}

// TestCertificateExpires checks that a client certificate that expires during a connection is no longer accepted.
func TestCertificateExpires(t *testing.T) {
	id := &url.URL{Scheme: "spiffe", Host: "example.com", Path: "/alice"}
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "alice"}, DNSNames: []string{"alice.example.com"}, URIs: []*url.URL{id}, NotAfter: time.Now()}
	now := leaf.NotAfter
	for name, config := range map[string]httpserve.Config{
		"named": {File: writeCallers(t, "certificates: [{name: alice, commonName: alice}]")}, "dns": {File: writeCallers(t, "certificates: [{name: alice, dns: alice.example.com}]")},
		"uri": {File: writeCallers(t, "certificates: [{name: bob, uri: 'spiffe://example.com/bob'}, {name: alice, uri: 'spiffe://example.com/alice'}]")}, "any": {},
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
