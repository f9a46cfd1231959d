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

// must ends a test that cannot go on after an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func second[T any](_ T, err error) error { return err }

// A host is a server that notes which credentials it is shown.
type host struct {
	*httptest.Server
	mu    sync.Mutex
	shown []string // value of Authorization and common name of the certificate, of each request
	proto string
}

func newHost(t *testing.T, ca *testenv.CA, answer http.HandlerFunc) *host {
	h := &host{}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := ""
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			who = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		h.mu.Lock()
		h.shown = append(h.shown, strings.TrimSpace(r.Header.Get("Authorization")+" "+who))
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

func (h *host) url() *url.URL { u, _ := url.Parse(h.URL); return u }

func (h *host) seen() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.shown, "|")
}

func ok(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }

func redirect(to func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to(), http.StatusFound) }
}

// get asks for a URL with a client that ends with the test.
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
	foreign := newHost(t, nil, ok)
	var back *host
	bounce := newHost(t, nil, redirect(func() string { return back.URL + "/end" }))
	own := newHost(t, nil, func(w http.ResponseWriter, r *http.Request) {
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
	back = own
	userURL := own.url()
	userURL.User = url.UserPassword("alice", "s3cret")
	alice := transport.Auth{Username: "alice", Password: "s3cret"}
	for _, c := range []struct {
		name         string
		config       transport.Config
		path         string
		own, foreign string
	}{
		{"basic", transport.Config{Origin: own.url(), Auth: alice}, "/end", basic, ""},
		{"bearer", transport.Config{Origin: own.url(), Auth: transport.Auth{Bearer: "t"}}, "/end", "Bearer t", ""},
		{"bearer wins", transport.Config{Origin: own.url(), Auth: transport.Auth{Bearer: "t", Username: "u"}}, "/end", "Bearer t", ""},
		{"user information of the origin", transport.Config{Origin: userURL}, "/end", basic, ""},
		{"secret beats user information", transport.Config{Origin: userURL, Auth: transport.Auth{Bearer: "t"}}, "/end", "Bearer t", ""},
		{"none", transport.Config{Origin: own.url()}, "/end", "", ""},
		{"no origin", transport.Config{Auth: alice}, "/end", "", ""},
		{"other origin", transport.Config{Origin: foreign.url(), Auth: alice}, "/end", "", ""},
		{"redirect at home", transport.Config{Origin: own.url(), Auth: alice}, "/own", basic + "|" + basic, ""},
		{"redirect abroad", transport.Config{Origin: own.url(), Auth: alice}, "/foreign", basic, "-"},
		{"redirect abroad with user information", transport.Config{Origin: own.url(), Auth: alice}, "/foreign-with-user", basic, "-"},
		{"redirect abroad and back", transport.Config{Origin: own.url(), Auth: alice}, "/bounce", basic + "|", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			own.shown, foreign.shown = nil, nil
			must(t, second(get(t, c.config, own.URL+c.path)))
			if got := own.seen(); got != c.own {
				t.Errorf("origin was shown %q, want %q", got, c.own)
			}
			if got := foreign.seen(); got != "" {
				t.Errorf("foreign host was shown %q", got)
			}
			if reached := len(foreign.shown) > 0; reached != (c.foreign != "") {
				t.Errorf("foreign host was reached: %v", reached)
			}
		})
	}
}

func TestCallersHeadersStayAtTheirOrigin(t *testing.T) {
	foreign := newHost(t, nil, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Cookie", "Referer"} {
			if v := r.Header.Get(name); v != "" {
				t.Errorf("%s %q shown to a foreign host", name, v)
			}
		}
	})
	own := newHost(t, nil, redirect(func() string { return foreign.URL }))
	client := transport.Client(transport.Config{})
	defer client.CloseIdleConnections()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, own.URL+"/?token=mine", nil)
	req.Header.Set("Authorization", "Bearer mine")
	req.Header.Set("Cookie", "a=b")
	resp, err := client.Do(req)
	must(t, err)
	resp.Body.Close()
	if own.seen() != "Bearer mine" || foreign.seen() != "" || len(foreign.shown) != 1 {
		t.Errorf("origin was shown %q, foreign host %q", own.seen(), foreign.seen())
	}
}

func TestTLS(t *testing.T) {
	ca, unknown := testenv.NewCA(t), testenv.NewCA(t)
	cert, key := ca.Client("alice")
	own := newHost(t, ca, ok)
	mutual := httptest.NewUnstartedServer(http.HandlerFunc(ok))
	mutual.Config.ErrorLog = log.New(io.Discard, "", 0)
	mutual.TLS = ca.ServerConfig(true)
	mutual.StartTLS()
	defer mutual.Close()
	withCA, err := transport.GitTLS("s", secret("ca.crt", string(ca.PEM())))
	must(t, err)
	withCert, err := transport.GitTLS("s", secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)))
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
		{"private CA", transport.Config{TLS: withCA}, own.URL, ""},
		{"system only", transport.Config{}, own.URL, "certificate signed by unknown authority"},
		{"wrong CA", transport.Config{TLS: wrongCA}, own.URL, "certificate signed by unknown authority"},
		{"client certificate", transport.Config{Origin: mutualURL, TLS: withCert}, mutual.URL, ""},
		{"no client certificate", transport.Config{Origin: mutualURL, TLS: withCA}, mutual.URL, "certificate required"},
		{"client certificate of another origin", transport.Config{Origin: own.url(), TLS: withCert}, mutual.URL, "certificate required"},
		{"client certificate of no origin", transport.Config{TLS: withCert}, mutual.URL, "certificate required"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := get(t, c.config, c.url)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	if own.proto != "HTTP/2.0" {
		t.Errorf("spoke %s", own.proto)
	}
}

func TestCertificateIsShownToItsOriginOnly(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Client("alice")
	c, err := transport.CertTLS("s", secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)))
	must(t, err)
	foreign := newHost(t, ca, ok)
	own := newHost(t, ca, redirect(func() string { return foreign.URL }))
	must(t, second(get(t, transport.Config{Origin: own.url(), TLS: c, Auth: transport.Auth{Bearer: "t"}}, own.URL)))
	if own.seen() != "Bearer t alice" || foreign.seen() != "" || len(foreign.shown) != 1 {
		t.Errorf("origin was shown %q, foreign host %q", own.seen(), foreign.seen())
	}
}

func TestRedirectPolicy(t *testing.T) {
	ca := testenv.NewCA(t)
	trust := &tls.Config{RootCAs: ca.Pool()}
	plain := newHost(t, nil, ok)
	down := newHost(t, ca, redirect(func() string { return plain.URL }))
	up := newHost(t, nil, redirect(func() string { return newHost(t, ca, ok).URL }))
	var loop *host
	loop = newHost(t, nil, redirect(func() string { return loop.URL }))
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
	s := newHost(t, nil, func(w http.ResponseWriter, r *http.Request) {
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
	huge := newHost(t, nil, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) })
	if _, err := get(t, transport.Config{}, huge.URL); err == nil || !strings.Contains(err.Error(), "exceeded") {
		t.Errorf("huge header: %v", err)
	}
}
