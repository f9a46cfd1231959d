package rollout_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/rollout"
)

// A census counts the connections of a server.
type census struct {
	mu           sync.Mutex
	opened, open int
	changed      *sync.Cond
}

func (c *census) watch(srv *httptest.Server) {
	c.changed = sync.NewCond(&c.mu)
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch state {
		case http.StateNew:
			c.opened++
			c.open++
		case http.StateClosed, http.StateHijacked:
			c.open--
		}
		c.changed.Broadcast()
	}
}

// wait returns when n connections are open.
func (c *census) wait(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.open != n {
		c.changed.Wait()
	}
}

func (c *census) seen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened
}

func count(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *census) {
	srv := httptest.NewUnstartedServer(handler)
	c := &census{}
	c.watch(srv)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv, c
}

// waitGone returns when no goroutine of a client is left.
func waitGone(t *testing.T) {
	t.Helper()
	measure.WaitGone(t, "net/http.(*persistConn)", "net/http.(*http2ClientConn)", "rollout.(*Caller)")
}

func TestCallsShareConnections(t *testing.T) {
	srv, conns := count(t, func(w http.ResponseWriter, r *http.Request) {
		var code int
		fmt.Sscanf(r.URL.Path, "/%d", &code)
		w.WriteHeader(code)
		if code != http.StatusNoContent && code != http.StatusNotModified {
			w.Write(make([]byte, 40<<10))
		}
	})
	var c rollout.Caller
	for round := range 20 {
		for _, code := range []int{200, 202, 204, 301, 304, 403, 429, 500, 503} {
			hook := rollout.Hook{Name: fmt.Sprint(round), URL: fmt.Sprintf("%s/%d", srv.URL, code), DisableTLS: round%2 == 0}
			if answer, err := c.Call(t.Context(), hook, small); answer.Status != code {
				t.Fatal(err)
			}
		}
	}
	if n := conns.seen(); n != 2 { // one for each setting
		t.Errorf("%d connections", n)
	}
	c.Close()
	conns.wait(0)
	waitGone(t)
}

// A Caller that was closed can be used, and connections in use at that time are ended after it.
func TestCloseDuringCall(t *testing.T) {
	arrived, goOn := make(chan struct{}, 1), make(chan struct{})
	srv, conns := count(t, func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-goOn })
	var c rollout.Caller
	done := make(chan error)
	go func() {
		_, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: srv.URL}, small)
		done <- err
	}()
	<-arrived
	c.Close()
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
	conns.wait(0)
	if _, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: srv.URL}, small); err != nil {
		t.Error(err)
	}
	c.Close()
	c.Close()
	conns.wait(0)
	waitGone(t)
}

// Connections are shared by the content of Secrets, not by their names, and a
// changed certificate does not use those of the one before.
func TestConnectionsByContentOfSecrets(t *testing.T) {
	ca := testenv.NewCA(t)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(r.TLS.PeerCertificates[0].Subject.CommonName))
	}))
	conns := &census{}
	conns.watch(srv)
	srv.TLS = ca.ServerConfig(true)
	srv.StartTLS()
	defer srv.Close()
	users := map[string]map[string][]byte{}
	for i := range 20 {
		cert, key := ca.Client(fmt.Sprintf("client-%d", i))
		users[fmt.Sprint(i)] = map[string][]byte{"ca.crt": ca.PEM(), "tls.crt": cert, "tls.key": key}
	}
	users["copy"] = users["0"]
	c := rollout.Caller{Secrets: func(_ context.Context, _, name string) (map[string][]byte, error) {
		if s, ok := users[name]; ok {
			return s, nil
		}
		return nil, errors.New("none")
	}}
	ask := func(name, want string) {
		t.Helper()
		answer, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: srv.URL, CertSecretRef: &rollout.SecretRef{Name: name}}, small)
		if err != nil || string(answer.Body) != want {
			t.Fatalf("got %s, %v", answer.Body, err)
		}
	}
	for _, name := range []string{"0", "copy", "0"} {
		ask(name, "client-0")
	}
	if n := conns.seen(); n != 1 {
		t.Errorf("%d connections", n)
	}
	for i := range 20 {
		ask(fmt.Sprint(i), fmt.Sprintf("client-%d", i))
	}
	conns.wait(16) // of the settings that are kept
	users["0"] = users["1"]
	ask("0", "client-1")
	c.Close()
	conns.wait(0)
	waitGone(t)
}

// The cut body of an answer costs its connection, and nothing else.
func TestCutBodyEndsConnection(t *testing.T) {
	srv, conns := count(t, func(w http.ResponseWriter, r *http.Request) { endless(w, r) })
	var c rollout.Caller
	for range 3 {
		if answer, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: srv.URL}, small); err != nil || !answer.Truncated {
			t.Fatalf("%v, %v", answer.Truncated, err)
		}
		conns.wait(0)
	}
	waitGone(t)
}

func TestConcurrentCalls(t *testing.T) {
	srv, conns := count(t, func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(r.URL.Path)) })
	var c rollout.Caller
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			path := fmt.Sprintf("/%d", i)
			hook := rollout.Hook{Name: "a", URL: srv.URL + path, DisableTLS: i%2 == 0}
			if answer, err := c.Call(t.Context(), hook, small); err != nil || string(answer.Body) != path {
				t.Errorf("got %s, %v", answer.Body, err)
			}
			if i%8 == 0 {
				c.Close()
			}
		})
	}
	all.Wait()
	c.Close()
	conns.wait(0)
	waitGone(t)
}

// authority hands out Secrets with as many settings as are asked for: all have the
// CA and none the same bytes.
func authority(ca *testenv.CA) rollout.Secrets {
	return func(_ context.Context, _, name string) (map[string][]byte, error) {
		return map[string][]byte{"ca.crt": append(ca.PEM(), "# "+name...)}, nil
	}
}

// busyOnce answers the first request with 503.
func busyOnce(t *testing.T, ca *testenv.CA, http2 bool) (*httptest.Server, *census) {
	asked := 0
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprint(w, "said")
	}))
	conns := &census{}
	conns.watch(srv)
	srv.TLS, srv.EnableHTTP2 = ca.ServerConfig(false), http2
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv, conns
}

// The connections of a call ended by Close, or forgotten for others, between two of
// its attempts end with the call.
func TestConnectionsOfAttemptsAfterClose(t *testing.T) {
	ca := testenv.NewCA(t)
	hook := func(srv *httptest.Server, name string) rollout.Hook {
		return rollout.Hook{Name: "a", URL: srv.URL, CertSecretRef: &rollout.SecretRef{Name: name}}
	}
	for name, end := range map[string]func(*testing.T, *rollout.Caller){
		"closed": func(_ *testing.T, c *rollout.Caller) { c.Close() },
		"forgotten": func(t *testing.T, c *rollout.Caller) {
			other, _ := count(t, func(http.ResponseWriter, *http.Request) {})
			for i := range 16 {
				if _, err := c.Call(t.Context(), hook(other, fmt.Sprint(i)), small); err != nil {
					t.Error(err)
				}
			}
		},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", name, http2), func(t *testing.T) {
				srv, conns := busyOnce(t, ca, http2)
				c := &rollout.Caller{Secrets: authority(ca)}
				c.KeepIdle()
				c.Wait = func(context.Context, time.Duration) error { end(t, c); return nil }
				first := hook(srv, "first")
				first.Retries = 1
				if _, err := c.Call(t.Context(), first, small); err != nil {
					t.Fatal(err)
				}
				conns.wait(0)
				c.Close()
				waitGone(t)
			})
		}
	}
}

// Idle connections of the setting that was not used for longest end when there are too many settings.
func TestForgottenSettings(t *testing.T) {
	ca := testenv.NewCA(t)
	srv, conns := busyOnce(t, ca, false)
	c := &rollout.Caller{Secrets: authority(ca), Wait: new(waits).wait}
	c.KeepIdle()
	defer c.Close()
	other, _ := count(t, func(http.ResponseWriter, *http.Request) {})
	for i := range 17 {
		hook := rollout.Hook{Name: "a", URL: other.URL, Retries: 1, CertSecretRef: &rollout.SecretRef{Name: fmt.Sprint(i)}}
		if i == 0 {
			hook.URL = srv.URL
		}
		if _, err := c.Call(t.Context(), hook, small); err != nil {
			t.Fatal(err)
		}
	}
	conns.wait(0)
}

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
