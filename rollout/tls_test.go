package rollout_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
)

func proxyAt(text string) func(*http.Request) (*url.URL, error) {
	u, err := url.Parse(text)
	return func(*http.Request) (*url.URL, error) { return u, err }
}

// serveTLS answers 200 with the name in the certificate of the client and the protocol.
func serveTLS(t *testing.T, config *tls.Config, http2 bool) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "nobody"
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %d", r.Proto, name, len(body))
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS, srv.EnableHTTP2 = config, http2
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

func TestTLS(t *testing.T) {
	ca, other := testenv.NewCA(t), testenv.NewCA(t)
	cert, key := ca.Client("alice")
	plain, mutual := serveTLS(t, ca.ServerConfig(false), false), serveTLS(t, ca.ServerConfig(true), true)
	pem := string(ca.PEM())
	for name, test := range map[string]struct {
		srv        *httptest.Server
		secret     []string // none: no certSecretRef
		disableTLS bool
		body, err  string
	}{
		"unknown authority":        {srv: plain, err: "certificate signed by unknown authority"},
		"disableTLS":               {srv: plain, disableTLS: true, body: "HTTP/1.1 nobody 62"},
		"ca":                       {srv: plain, secret: []string{"ca.crt", pem}, body: "HTTP/1.1 nobody 62"},
		"other ca":                 {srv: plain, secret: []string{"ca.crt", string(other.PEM())}, err: "unknown authority"},
		"client certificate":       {srv: mutual, secret: []string{"ca.crt", pem, "tls.crt", string(cert), "tls.key", string(key)}, body: "HTTP/2.0 alice 62"},
		"certificate, disableTLS":  {srv: mutual, secret: []string{"tls.crt", string(cert), "tls.key", string(key)}, disableTLS: true, body: "HTTP/2.0 alice 62"},
		"no client certificate":    {srv: mutual, secret: []string{"ca.crt", pem}, err: "POST https://"},
		"no PEM":                   {srv: plain, secret: []string{"ca.crt", "canary"}, err: "certSecretRef: secret test/creds: key ca.crt is not PEM"},
		"key alone":                {srv: plain, secret: []string{"tls.key", string(key)}, err: "secret test/creds: key tls.crt is missing"},
		"nothing":                  {srv: plain, secret: []string{"caFile", "canary"}, err: "secret test/creds: key ca.crt is missing"},
		"HTTP/2 with one ca":       {srv: serveTLS(t, ca.ServerConfig(false), true), secret: []string{"ca.crt", pem}, body: "HTTP/2.0 nobody 62"},
		"HTTP/2 without verifying": {srv: serveTLS(t, ca.ServerConfig(false), true), disableTLS: true, body: "HTTP/2.0 nobody 62"},
	} {
		t.Run(name, func(t *testing.T) {
			var waited waits
			c := rollout.Caller{Secrets: secrets(test.secret...), Wait: waited.wait}
			defer c.Close()
			hook := rollout.Hook{Name: "a", URL: test.srv.URL, DisableTLS: test.disableTLS, Retries: 2}
			if test.secret != nil {
				hook.CertSecretRef = &rollout.SecretRef{Name: "creds"}
			}
			answer, err := c.Call(t.Context(), hook, small)
			if test.err == "" && (err != nil || string(answer.Body) != test.body) {
				t.Errorf("got %s, %v", answer.Body, err)
			}
			if test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "PRIVATE")) {
				t.Errorf("got %v", err)
			}
			if _, verified := errors.AsType[*tls.CertificateVerificationError](err); verified && len(waited) > 0 {
				t.Errorf("%d waits for a certificate that was refused", len(waited))
			}
			if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); strings.Contains(test.err, "unknown") && !unknown {
				t.Errorf("cause is lost: %v", err)
			}
		})
	}
}

func TestCertificateOfAnotherName(t *testing.T) {
	ca := testenv.NewCA(t)
	srv := serveTLS(t, ca.ServerConfig(false), false)
	proxy := testenv.ServeProxy(t, testenv.Proxy{Hosts: map[string]string{"tester.invalid:443": strings.TrimPrefix(srv.URL, "https://")}})
	c := rollout.Caller{Secrets: secrets("ca.crt", string(ca.PEM())), Proxy: proxyAt(proxy.URL)}
	defer c.Close()
	hook := rollout.Hook{Name: "a", URL: "https://tester.invalid/", CertSecretRef: &rollout.SecretRef{Name: "creds"}, Retries: 3}
	answer, err := c.Call(t.Context(), hook, small)
	if _, refused := errors.AsType[x509.HostnameError](err); !refused || answer.Attempts != 1 {
		t.Errorf("got %+v, %v", answer, err)
	}
	hook.DisableTLS = true
	if _, err := c.Call(t.Context(), hook, small); err != nil {
		t.Error(err)
	}
}

func TestProxies(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Client("alice")
	target := serveTLS(t, ca.ServerConfig(true), false)
	host := strings.TrimPrefix(target.URL, "https://")
	all := []string{"ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)}
	for _, scheme := range []string{"http", "https"} {
		for _, disableTLS := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, disableTLS %v", scheme, disableTLS), func(t *testing.T) {
				proxy := testenv.ServeProxy(t, testenv.Proxy{Scheme: scheme, CA: ca, Username: "u", Password: "p"})
				c := rollout.Caller{Secrets: secrets(all...), Proxy: proxyAt(proxy.WithAuth("u", "p"))}
				defer c.Close()
				hook := rollout.Hook{Name: "a", URL: target.URL, DisableTLS: disableTLS, CertSecretRef: &rollout.SecretRef{Name: "creds"}}
				answer, err := c.Call(t.Context(), hook, small)
				if err != nil || string(answer.Body) != "HTTP/1.1 alice 62" {
					t.Fatalf("got %s, %v", answer.Body, err)
				}
				if seen := proxy.Seen(); len(seen) != 1 || !strings.Contains(seen[0], host) {
					t.Errorf("the proxy saw %q", seen)
				}
				if n := proxy.Certificates(); n != 0 {
					t.Errorf("the proxy was shown %d certificates", n)
				}
			})
		}
	}
	t.Run("refuses", func(t *testing.T) {
		proxy := testenv.ServeProxy(t, testenv.Proxy{Username: "u", Password: "p"})
		c := rollout.Caller{Proxy: proxyAt(proxy.WithAuth("u", "canary"))}
		_, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: target.URL}, small)
		if err == nil || !strings.Contains(err.Error(), "proxy 127.0.0.1:") || !strings.Contains(err.Error(), "status 407") || strings.Contains(err.Error(), "canary") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the certificate of a proxy is verified", func(t *testing.T) {
		proxy := testenv.ServeProxy(t, testenv.Proxy{Scheme: "https", CA: testenv.NewCA(t)})
		c := rollout.Caller{Proxy: proxyAt(proxy.URL)}
		_, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: target.URL, DisableTLS: true}, small)
		if _, refused := errors.AsType[x509.UnknownAuthorityError](err); !refused {
			t.Errorf("got %v", err)
		}
	})
	t.Run("none for some", func(t *testing.T) {
		r := record(t, always(reply(200, "")))
		var asked []string
		c := rollout.Caller{Proxy: func(req *http.Request) (*url.URL, error) {
			asked = append(asked, req.URL.String())
			return nil, nil
		}}
		defer c.Close()
		if _, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: r.URL}, small); err != nil || !slices.Contains(asked, r.URL) {
			t.Errorf("asked %q, %v", asked, err)
		}
	})
}
