package transport_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
)

var must = testenv.Must

func second[T any](_ T, err error) error { return err }

// A recordingServer is a server that records the credentials that it receives.
type recordingServer struct {
	*httptest.Server
	mu    sync.Mutex
	shown []string // value of Authorization and common name of the certificate, of each request
	proto string
}

func newRecordingServer(t *testing.T, ca *testenv.CA, answer http.HandlerFunc) *recordingServer {
	h := &recordingServer{}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		commonName := ""
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			commonName = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		h.mu.Lock()
		h.shown = append(h.shown, strings.TrimSpace(r.Header.Get("Authorization")+" "+commonName))
		h.proto = r.Proto
		h.mu.Unlock()
		answer(w, r)
	}))
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	if ca != nil {
		h.TLS = ca.ServerConfig(false)
		h.TLS.ClientAuth, h.TLS.ClientCAs = tls.VerifyClientCertIfGiven, ca.Pool()
		h.EnableHTTP2 = true
		h.StartTLS()
	} else {
		h.Start()
	}
	t.Cleanup(h.Close)
	return h
}

func (h *recordingServer) url() *url.URL { u, _ := url.Parse(h.URL); return u }

func (h *recordingServer) seen() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.shown, "|")
}

func ok(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }

func redirect(to func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to(), http.StatusFound) }
}

// get requests a URL with a client that is closed at the end of the test.
func get(t *testing.T, c transport.Config, url string) (int, error) {
	t.Helper()
	client := transport.Client(c)
	t.Cleanup(client.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func TestAuthIsShownToItsOriginOnly(t *testing.T) {
	basic := "Basic YWxpY2U6czNjcmV0"
	foreign := newRecordingServer(t, nil, ok)
	var back *recordingServer
	bounce := newRecordingServer(t, nil, redirect(func() string { return back.URL + "/end" }))
	origin := newRecordingServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/foreign":
			http.Redirect(w, r, foreign.URL, http.StatusFound)
		case "/foreign-with-user":
			http.Redirect(w, r, strings.Replace(foreign.URL, "//", "//u:p@", 1), http.StatusFound)
		case "/own":
			http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
		case "/bounce":
			http.Redirect(w, r, bounce.URL, http.StatusFound)
		}
	})
	back = origin
	userURL := origin.url()
	userURL.User = url.UserPassword("alice", "s3cret")
	alice := transport.Auth{Username: "alice", Password: "s3cret"}
	for _, c := range []struct {
		name         string
		config       transport.Config
		path         string
		own, foreign string
	}{
		{"basic", transport.Config{Origin: origin.url(), Auth: alice}, "/end", basic, ""},
		{"bearer", transport.Config{Origin: origin.url(), Auth: transport.Auth{Bearer: "t"}}, "/end", "Bearer t", ""},
		{"bearer wins", transport.Config{Origin: origin.url(), Auth: transport.Auth{Bearer: "t", Username: "u"}}, "/end", "Bearer t", ""},
		{"user information of the origin", transport.Config{Origin: userURL}, "/end", basic, ""},
		{"secret beats user information", transport.Config{Origin: userURL, Auth: transport.Auth{Bearer: "t"}}, "/end", "Bearer t", ""},
		{"none", transport.Config{Origin: origin.url()}, "/end", "", ""},
		{"no origin", transport.Config{Auth: alice}, "/end", "", ""},
		{"other origin", transport.Config{Origin: foreign.url(), Auth: alice}, "/end", "", ""},
		{"redirect at home", transport.Config{Origin: origin.url(), Auth: alice}, "/own", basic + "|" + basic, ""},
		{"redirect abroad", transport.Config{Origin: origin.url(), Auth: alice}, "/foreign", basic, "-"},
		{"redirect abroad with user information", transport.Config{Origin: origin.url(), Auth: alice}, "/foreign-with-user", basic, "-"},
		{"redirect abroad and back", transport.Config{Origin: origin.url(), Auth: alice}, "/bounce", basic + "|", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			origin.shown, foreign.shown = nil, nil
			must(t, second(get(t, c.config, origin.URL+c.path)))
			testenv.Equal(t, origin.seen(), c.own, "origin was shown")
			testenv.Equal(t, foreign.seen(), "", "foreign host was shown")
			if reached := len(foreign.shown) > 0; reached != (c.foreign != "") {
				t.Errorf("foreign host was reached: %v", reached)
			}
		})
	}
}

func TestCallersHeadersStayAtTheirOrigin(t *testing.T) {
	foreign := newRecordingServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Cookie", "Referer"} {
			testenv.Equal(t, r.Header.Get(name), "", "%s shown to a foreign host", name)
		}
	})
	origin := newRecordingServer(t, nil, redirect(func() string { return foreign.URL }))
	client := transport.Client(transport.Config{})
	defer client.CloseIdleConnections()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, origin.URL+"/?token=mine", nil)
	req.Header.Set("Authorization", "Bearer mine")
	req.Header.Set("Cookie", "a=b")
	resp, err := client.Do(req)
	must(t, err)
	resp.Body.Close()
	if origin.seen() != "Bearer mine" || foreign.seen() != "" || len(foreign.shown) != 1 {
		t.Errorf("origin was shown %q, foreign host %q", origin.seen(), foreign.seen())
	}
}

func TestTLS(t *testing.T) {
	ca, unknown := testenv.NewCA(t), testenv.NewCA(t)
	cert, key := ca.Client("alice")
	server := newRecordingServer(t, ca, ok)
	mutual := httptest.NewUnstartedServer(http.HandlerFunc(ok))
	mutual.Config.ErrorLog = log.New(io.Discard, "", 0)
	mutual.TLS = ca.ServerConfig(true)
	mutual.EnableHTTP2 = true // more than one write, which may meet the end of the connection
	mutual.StartTLS()
	defer mutual.Close()
	withCA, err := transport.GitTLS("s", secret("ca.crt", string(ca.PEM())))
	must(t, err)
	withCert, err := transport.GitTLS("s", secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)))
	must(t, err)
	otherCert, otherKey := unknown.Client("alice")
	foreignTLS, err := transport.GitTLS("s", secret("ca.crt", string(ca.PEM()), "tls.crt", string(otherCert), "tls.key", string(otherKey)))
	must(t, err)
	wrongCA, err := transport.GitTLS("s", secret("ca.crt", string(unknown.PEM())))
	must(t, err)
	mutualURL, _ := url.Parse(mutual.URL)
	for _, c := range []struct {
		name   string
		config transport.Config
		url    string
		want   string // in the error
	}{
		{"private CA", transport.Config{TLS: withCA}, server.URL, ""},
		{"system only", transport.Config{}, server.URL, "certificate signed by unknown authority"},
		{"wrong CA", transport.Config{TLS: wrongCA}, server.URL, "certificate signed by unknown authority"},
		{"client certificate", transport.Config{Origin: mutualURL, TLS: withCert}, mutual.URL, ""},
		{"no client certificate", transport.Config{Origin: mutualURL, TLS: withCA}, mutual.URL, "asks for a client certificate: give it one by tls.crt"},
		{"client certificate of another origin", transport.Config{Origin: server.url(), TLS: withCert}, mutual.URL, "asks for a client certificate: give it one by tls.crt"},
		{"client certificate of another CA", transport.Config{Origin: mutualURL, TLS: foreignTLS}, mutual.URL, "may not accept tls.crt"},
		{"client certificate of no origin", transport.Config{TLS: withCert}, mutual.URL, "asks for a client certificate: give it one by tls.crt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := get(t, c.config, c.url)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	testenv.Equal(t, server.proto, "HTTP/2.0", "spoke")
}

func TestCertificateIsShownToItsOriginOnly(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Client("alice")
	c, err := transport.CertTLS("s", secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)))
	must(t, err)
	foreign := newRecordingServer(t, ca, ok)
	origin := newRecordingServer(t, ca, redirect(func() string { return foreign.URL }))
	must(t, second(get(t, transport.Config{Origin: origin.url(), TLS: c, Auth: transport.Auth{Bearer: "t"}}, origin.URL)))
	if origin.seen() != "Bearer t alice" || foreign.seen() != "" || len(foreign.shown) != 1 {
		t.Errorf("origin was shown %q, foreign host %q", origin.seen(), foreign.seen())
	}
}

func TestRedirectPolicy(t *testing.T) {
	ca := testenv.NewCA(t)
	trust := &tls.Config{RootCAs: ca.Pool()}
	plain := newRecordingServer(t, nil, ok)
	down := newRecordingServer(t, ca, redirect(func() string { return plain.URL }))
	up := newRecordingServer(t, nil, redirect(func() string { return newRecordingServer(t, ca, ok).URL }))
	var loop *recordingServer
	loop = newRecordingServer(t, nil, redirect(func() string { return loop.URL }))
	if _, err := get(t, transport.Config{TLS: trust}, down.URL); err == nil || !strings.Contains(err.Error(), "redirect from https to http refused") || len(plain.shown) > 0 {
		t.Errorf("downgrade: %v", err)
	}
	if _, err := get(t, transport.Config{TLS: trust}, up.URL); err != nil {
		t.Errorf("upgrade: %v", err)
	}
	if _, err := get(t, transport.Config{}, loop.URL); err == nil || !strings.Contains(err.Error(), "stopped after 10 redirects") || len(loop.shown) != 10 {
		t.Errorf("loop: %v after %d requests", err, len(loop.shown))
	}
}

func TestEachPhaseIsBounded(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts by backlog, never answers
	must(t, err)
	defer silent.Close()
	for _, c := range []struct {
		name, url string
		config    transport.Config
		want      string
	}{
		{"handshake", "https://" + silent.Addr().String(), transport.Config{HandshakeTimeout: time.Millisecond}, "TLS handshake timeout"},
		{"header", "http://" + silent.Addr().String(), transport.Config{HeaderTimeout: time.Millisecond}, "timeout awaiting response headers"},
		{"dial", "http://" + silent.Addr().String(), transport.Config{DialTimeout: time.Nanosecond}, "i/o timeout"},
	} {
		if _, err := get(t, c.config, c.url); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := newRecordingServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		cancel()
		<-r.Context().Done()
	})
	client := transport.Client(transport.Config{})
	defer client.CloseIdleConnections()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	resp, err := client.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("body: %v", err)
	}
	huge := newRecordingServer(t, nil, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) })
	if _, err := get(t, transport.Config{}, huge.URL); err == nil || !strings.Contains(err.Error(), "exceeded") {
		t.Errorf("huge header: %v", err)
	}
}

// proxyCases are the proxies that every client is tested with.
func proxyCases(ca *testenv.CA) []testenv.ProxyConfig {
	return []testenv.ProxyConfig{
		{Scheme: "http"},
		{Scheme: "http", Username: "pat", Password: "p:w"},
		{Scheme: "https", CA: ca},
		{Scheme: "https", CA: ca, Username: "pat", Password: "p:w"},
		{Scheme: "socks5"},
		{Scheme: "socks5", Username: "pat", Password: "p:w"},
	}
}

func proxyName(c testenv.ProxyConfig) string {
	if c.Username != "" {
		return c.Scheme + " with credentials"
	}
	return c.Scheme
}

// proxyFor returns the proxy of a Secret with these credentials.
func proxyFor(t *testing.T, s *testenv.ProxyServer, user, password string, c *tls.Config) *transport.Proxy {
	t.Helper()
	p, err := transport.ProxyFromSecret("default/proxy", secret("address", s.URL, "username", user, "password", password), c)
	must(t, err)
	return p
}

func TestClientGoesThroughProxy(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Client("alice")
	trust, err := transport.CertTLS("s", secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)))
	must(t, err)
	for _, c := range proxyCases(ca) {
		t.Run(proxyName(c), func(t *testing.T) {
			plain, secure := newRecordingServer(t, nil, ok), newRecordingServer(t, ca, ok)
			c.Hosts = map[string]string{"localhost:7": plain.Listener.Addr().String()}
			s := testenv.ServeProxy(t, c)
			p := proxyFor(t, s, c.Username, c.Password, trust)
			for url, origin := range map[string]*recordingServer{plain.URL: plain, secure.URL: secure, "http://localhost:7": plain} {
				status, err := get(t, transport.Config{Origin: origin.url(), TLS: trust, Proxy: p.For}, url)
				if err != nil || status != http.StatusOK {
					t.Fatalf("%s: %d, %v", url, status, err)
				}
			}
			if secure.seen() != "alice" || s.Certificates() != 0 {
				t.Errorf("origin was shown %q, proxy %d certificates", secure.seen(), s.Certificates())
			}
			seen := strings.Join(s.Requests(), " ")
			if len(s.Requests()) != 3 || !strings.Contains(seen, "localhost:7") || !strings.Contains(seen, secure.Listener.Addr().String()) {
				t.Errorf("proxy saw %q", seen)
			}
		})
	}
}

func TestProxyWantsCredentials(t *testing.T) {
	ca := testenv.NewCA(t)
	trust := &tls.Config{RootCAs: ca.Pool()}
	plain, secure := newRecordingServer(t, nil, ok), newRecordingServer(t, ca, ok)
	for _, scheme := range []string{"http", "https", "socks5"} {
		t.Run(scheme, func(t *testing.T) {
			s := testenv.ServeProxy(t, testenv.ProxyConfig{Scheme: scheme, CA: ca, Username: "pat", Password: "right"})
			p := proxyFor(t, s, "pat", "canary", trust)
			for _, url := range []string{plain.URL, secure.URL} {
				_, err := get(t, transport.Config{TLS: trust, Proxy: p.For}, url)
				wantRefusal(t, err, scheme)
			}
			testenv.Equal(t, s.Requests(), []string{"refused", "refused"}, "proxy saw")
		})
	}
}

// wantRefusal checks that err says that the proxy wants other credentials.
func wantRefusal(t *testing.T, err error, scheme string) {
	t.Helper()
	var e *transport.ProxyError
	switch {
	case err == nil, strings.Contains(err.Error(), "canary"):
		t.Errorf("error %v", err)
	case scheme == "socks5" && !strings.Contains(err.Error(), "username/password authentication failed"):
		t.Errorf("error %v", err)
	case scheme != "socks5" && (!errors.As(err, &e) || e.Status != 407 || !strings.Contains(err.Error(), "check its username and password")):
		t.Errorf("error %v", err)
	}
}
