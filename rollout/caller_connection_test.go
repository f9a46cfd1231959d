package rollout_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/rollout"
)

// A connectionCount counts the connections of a server.
type connectionCount struct {
	mu           sync.Mutex
	opened, open int
	changed      *sync.Cond
}

func (c *connectionCount) watch(srv *httptest.Server) {
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

// waitClosed waits until no connection is open and no goroutine of a client is left. It returns how many connections
// were opened so far.
func (c *connectionCount) waitClosed(t *testing.T) int {
	t.Helper()
	c.mu.Lock()
	for c.open != 0 {
		c.changed.Wait()
	}
	opened := c.opened
	c.mu.Unlock()
	measure.WaitGone(t, "net/http.(*persistConn)", "net/http.(*http2ClientConn)", "rollout.(*Caller)")
	return opened
}

func count(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *connectionCount) {
	srv := httptest.NewUnstartedServer(handler)
	c := &connectionCount{}
	c.watch(srv)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv, c
}

// TestCallsShareConnections checks that consecutive calls use one connection per TLS setting. On a busy machine,
// net/http drops a connection if it learns more than 50 ms after the answer that the request was written; the test
// then tries again.
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
	before, opened := 0, 0
	for try := 0; try < 20 && opened != 2; try++ {
		for round := range 4 {
			for _, code := range []int{200, 202, 204, 301, 304, 403, 429, 500, 503} {
				hook := rollout.Hook{Name: fmt.Sprint(round), URL: fmt.Sprintf("%s/%d", srv.URL, code), DisableTLS: round%2 == 0}
				if answer, err := c.Call(t.Context(), hook, small); answer.Status != code {
					t.Fatal(err)
				}
			}
		}
		c.Close()
		all := conns.waitClosed(t)
		before, opened = all, all-before
	}
	testenv.Equal(t, opened, 2)
}

// Concurrent calls with two settings, and with Close during them, each get their own answer and leave no connection.
func TestConcurrentCalls(t *testing.T) {
	srv, conns := count(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) })
	var c rollout.Caller
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			path := fmt.Sprintf("/%d", i)
			answer, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: srv.URL + path, DisableTLS: i%2 == 0}, small)
			if err != nil || string(answer.Body) != path {
				t.Errorf("got %s, %v", answer.Body, err)
			}
			if i%8 == 0 {
				c.Close()
			}
		})
	}
	all.Wait()
	c.Close()
	conns.waitClosed(t)
}

// An answer whose body is cut closes its connection and has no other effect.
func TestCutBodyEndsConnection(t *testing.T) {
	srv, conns := count(t, endless)
	var c rollout.Caller
	for n := range 3 {
		answer, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: srv.URL}, small)
		if opened := conns.waitClosed(t); err != nil || !answer.Truncated || opened != n+1 {
			t.Fatalf("%v, %v, %d connections", answer.Truncated, err, opened)
		}
	}
}

// A closed Caller can be used. Connections in use during Close are closed afterwards.
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
	testenv.Equal(t, <-done, nil)
	conns.waitClosed(t)
	if _, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: srv.URL}, small); err != nil {
		t.Error(err)
	}
	c.Close()
	c.Close()
	conns.waitClosed(t)
}

// Calls share connections by the content of their Secrets, not by name. A changed
// certificate does not use the connections of the previous one.
func TestConnectionsByContentOfSecrets(t *testing.T) {
	ca := testenv.NewCA(t)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(r.TLS.PeerCertificates[0].Subject.CommonName))
	}))
	conns := &connectionCount{}
	conns.watch(srv)
	srv.TLS = ca.ServerConfig(true)
	srv.StartTLS()
	defer srv.Close()
	of := func(name string) map[string][]byte {
		cert, key := ca.Client(name)
		return map[string][]byte{"ca.crt": ca.PEM(), "tls.crt": cert, "tls.key": key}
	}
	alice, bob := of("alice"), of("bob")
	users := map[string]map[string][]byte{"a": alice, "copy": alice}
	c := rollout.Caller{Secrets: func(_ context.Context, _, name string) (map[string][]byte, error) { return users[name], nil }}
	for _, ask := range [][2]string{{"a", "alice"}, {"copy", "alice"}, {"a", "alice"}, {"a", "bob"}} {
		if ask[1] == "bob" {
			users["a"] = bob
		}
		answer, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: srv.URL, CertSecretRef: &rollout.SecretRef{Name: ask[0]}}, small)
		if err != nil || string(answer.Body) != ask[1] {
			t.Fatalf("got %s, %v", answer.Body, err)
		}
	}
	c.Close()
	if n := conns.waitClosed(t); n < 2 {
		t.Errorf("%d connections", n)
	}
}

func proxyAt(text string) func(*http.Request) (*url.URL, error) {
	u, err := url.Parse(text)
	return func(*http.Request) (*url.URL, error) { return u, err }
}

// TestTLS calls a server that may ask for a client certificate, directly and through a proxy. A call is not retried
// after its certificate was refused, and the certificate of a proxy is always verified.
func TestTLS(t *testing.T) {
	ca, other := testenv.NewCA(t), testenv.NewCA(t)
	serve := func(mutual bool) string {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name := "nobody"
			if len(r.TLS.PeerCertificates) > 0 {
				name = r.TLS.PeerCertificates[0].Subject.CommonName
			}
			fmt.Fprintf(w, "%s %s", r.Proto, name)
		}))
		srv.Config.ErrorLog = log.New(io.Discard, "", 0)
		srv.TLS, srv.EnableHTTP2 = ca.ServerConfig(mutual), mutual
		srv.StartTLS()
		t.Cleanup(srv.Close)
		return srv.URL
	}
	cert, key := ca.Client("alice")
	plain, mutual := serve(false), serve(true)
	proxy := func(scheme string, by *testenv.CA) *testenv.ProxyServer {
		return testenv.ServeProxy(t, testenv.ProxyConfig{Scheme: scheme, CA: by, Username: "u", Password: "canary"})
	}
	pem, all := string(ca.PEM()), []string{"ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)}
	for name, test := range map[string]struct {
		url        string
		secret     []string // none: no certSecretRef
		disableTLS bool
		proxy      *testenv.ProxyServer
		user       string // of the proxy
		body, err  string
	}{
		"unknown authority":         {url: plain, err: "certificate signed by unknown authority"},
		"disableTLS":                {url: plain, disableTLS: true, body: "HTTP/1.1 nobody"},
		"ca":                        {url: plain, secret: []string{"ca.crt", pem}, body: "HTTP/1.1 nobody"},
		"other ca":                  {url: plain, secret: []string{"ca.crt", string(other.PEM())}, err: "unknown authority"},
		"client certificate":        {url: mutual, secret: all, body: "HTTP/2.0 alice"},
		"certificate, disableTLS":   {url: mutual, secret: all[2:], disableTLS: true, body: "HTTP/2.0 alice"},
		"no client certificate":     {url: mutual, secret: []string{"ca.crt", pem}, err: "POST https://"},
		"nothing":                   {url: plain, secret: []string{"caFile", "canary"}, err: "certSecretRef: secret test/creds: key ca.crt is missing"},
		"proxy":                     {url: mutual, secret: all, proxy: proxy("http", nil), user: "u", body: "HTTP/2.0 alice"},
		"proxy over TLS":            {url: mutual, secret: all, proxy: proxy("https", ca), user: "u", body: "HTTP/2.0 alice"},
		"proxy that refuses":        {url: plain, disableTLS: true, proxy: proxy("http", nil), user: "other", err: "status 407"},
		"proxy of another CA":       {url: plain, disableTLS: true, proxy: proxy("https", other), user: "u", err: "unknown authority"},
		"proxy of another CA, mine": {url: mutual, secret: all, proxy: proxy("https", other), user: "u", err: "unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			var waited waits
			c := rollout.Caller{Secrets: secrets(test.secret...), Wait: waited.wait}
			defer c.Close()
			if test.proxy != nil {
				c.Proxy = proxyAt(strings.Replace(test.proxy.URL, "://", "://"+test.user+":canary@", 1))
			}
			hook := rollout.Hook{Name: "a", URL: test.url, DisableTLS: test.disableTLS, Retries: 2}
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
			if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); strings.Contains(test.err, "unknown") && (!unknown || len(waited) > 0) {
				t.Errorf("%d waits for a certificate that was refused: %v", len(waited), err)
			}
			if test.proxy != nil && test.proxy.Certificates() != 0 {
				t.Error("the proxy was shown a certificate")
			}
		})
	}
}

var must = testenv.Must
