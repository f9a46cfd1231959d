package notify_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/notify"
)

// raw is a server that answers anything with text.
func raw(t *testing.T, text string) string {
	return "http://" + testenv.Listen(t, func(c net.Conn) {
		c.Read(make([]byte, 1<<10))
		io.WriteString(c, text)
	})
}

// TestRedirects follows those that repeat the request where it was meant for.
func TestRedirects(t *testing.T) {
	other := record(t, nil)
	for _, test := range []struct {
		status int
		to     string
		ok     bool
	}{
		{307, "/next", true}, {308, "/next", true}, {301, "/next", false}, {302, "/next", false}, {303, "/next", false},
		{307, other.URL + "/next", false}, {308, other.URL + "/next", false}, {307, "/again", false}, {307, "", false},
	} {
		server := record(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/next" {
				w.Header()["Location"] = []string{test.to}
				w.WriteHeader(test.status)
			}
		})
		p := provider(notify.Generic, server.URL+"/")
		p.Spec.SecretRef = &rollout.SecretRef{Name: "chat"}
		n := &notify.Notifier{Timeout: time.Hour, Provider: p, Secrets: vault(map[string]map[string]string{"chat": {"token": token}})}
		err := n.Post(t.Context(), message())
		n.Close()
		var refused *rollout.StatusError
		if test.ok && err != nil || !test.ok && (!errors.As(err, &refused) || refused.Code != test.status) {
			t.Errorf("%d to %s: %v", test.status, test.to, err)
		}
		if got := server.all(); len(got) > 10 || test.ok && (got[1].auth != "Bearer "+token || got[1].body != got[0].body) {
			t.Errorf("%d to %s: %+v", test.status, test.to, got)
		}
	}
	if got := other.all(); len(got) != 0 {
		t.Errorf("another origin was told: %+v", got)
	}
}

// TestAnswers are bounded, in time and in size.
func TestAnswers(t *testing.T) {
	var sent atomic.Int64
	for name, answer := range map[string]http.HandlerFunc{
		"hanging": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"slow body": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"disconnecting": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"long header": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		},
		"body without end": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			for chunk := []byte(strings.Repeat("x", 1<<16)); ; sent.Add(1 << 16) {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		},
	} {
		server := record(t, answer)
		n := &notify.Notifier{Provider: provider(notify.Slack, server.URL), Timeout: 100 * time.Millisecond}
		if name == "body without end" {
			n.Timeout = 0
		}
		err := n.Post(t.Context(), message())
		if err == nil || len(err.Error()) > 3000 {
			t.Errorf("%s: %.100v", name, err)
		}
		n.Close()
	}
	if sent.Load() > 64<<20 {
		t.Errorf("%d bytes were taken", sent.Load())
	}
}

// TestTLS trusts the CA of certSecretRef, and shows the client certificate.
func TestTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			w.WriteHeader(403)
		}
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.Config.ErrorLog = quiet
	server.StartTLS()
	defer server.Close()
	certificate, key := pair(t, server)["ca.crt"], pair(t, server)["tls.key"]
	for _, test := range []struct {
		secret map[string]string
		want   string // "" for success
	}{
		{map[string]string{"ca.crt": certificate, "tls.crt": certificate, "tls.key": key}, ""},
		{map[string]string{"ca.crt": certificate}, "status 403"},
		{map[string]string{"tls.crt": certificate, "tls.key": key}, "certificate signed by unknown authority"},
		{map[string]string{"ca.crt": "nonsense"}, "secret tls: key ca.crt is not PEM"},
		{map[string]string{"ca.crt": certificate, "tls.crt": certificate}, "secret tls: key tls.key is missing: tls.crt needs it"},
		{map[string]string{"token": "x"}, "secret tls: key ca.crt is missing, and so are tls.crt and tls.key"},
		{nil, "spec.certSecretRef: secret test/tls: file does not exist"},
	} {
		p := provider(notify.Slack, server.URL)
		p.Spec.CertSecretRef = &rollout.SecretRef{Name: "tls"}
		n := &notify.Notifier{Timeout: time.Hour, Provider: p, Secrets: vault(map[string]map[string]string{"tls": test.secret})}
		err := n.Post(t.Context(), message())
		n.Close()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
}

// TestProxy goes through the proxy of the provider before that of the notifier,
// and through another when that changes.
func TestProxy(t *testing.T) {
	own, general, third := record(t, nil), record(t, nil), record(t, nil)
	at, _ := url.Parse(general.URL)
	p := provider(notify.Slack, "http://chat.invalid/hook")
	n := &notify.Notifier{Timeout: time.Hour, Provider: p, Proxy: http.ProxyURL(at)}
	defer n.Close()
	for _, test := range []struct {
		proxy string
		want  *recorder
	}{{own.URL, own}, {"", general}, {third.URL, third}} {
		p.Spec.Proxy = test.proxy
		if err := n.Post(t.Context(), message()); err != nil {
			t.Error(err)
		}
		if got := test.want.all(); len(got) != 1 || got[0].path != "POST /hook application/json" {
			t.Errorf("%+v", got)
		}
	}
	n.Proxy = func(*http.Request) (*url.URL, error) { return nil, errors.New("no way out") }
	p.Spec.Proxy = ""
	if err := n.Check(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "proxy: no way out") {
		t.Error(err)
	}
}

// TestSecureProxy: a proxy that is spoken to over TLS is not shown the client certificate.
func TestSecureProxy(t *testing.T) {
	shown := make(chan int, 1)
	proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { shown <- len(r.TLS.PeerCertificates) }))
	proxy.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	proxy.StartTLS()
	defer proxy.Close()
	p := provider(notify.Slack, "http://chat.invalid/hook")
	p.Spec.Proxy, p.Spec.CertSecretRef = proxy.URL, &rollout.SecretRef{Name: "tls"}
	n := &notify.Notifier{Timeout: time.Hour, Provider: p, Secrets: vault(map[string]map[string]string{"tls": pair(t, proxy)})}
	defer n.Close()
	if err := n.Post(t.Context(), message()); err != nil {
		t.Fatal(err)
	}
	if n := <-shown; n != 0 {
		t.Errorf("%d certificates were shown", n)
	}
}

// pair is a Secret with the certificate of a server as CA and as that of a client.
func pair(t *testing.T, server *httptest.Server) map[string]string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return map[string]string{"ca.crt": certificate, "tls.crt": certificate, "tls.key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))}
}

// TestRotation uses what a Secret says now, on one connection while nothing about it changes.
func TestRotation(t *testing.T) {
	var conns atomic.Int64
	server := httptest.NewUnstartedServer(nil)
	paths := make(chan string, 3)
	server.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { paths <- r.URL.Path })
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	secret := map[string]string{"address": server.URL + "/one"}
	p := provider(notify.Slack, "")
	p.Spec.SecretRef = &rollout.SecretRef{Name: "chat"}
	n := &notify.Notifier{Timeout: time.Hour, Provider: p, Secrets: vault(map[string]map[string]string{"chat": secret})}
	defer n.Close()
	for _, path := range []string{"/one", "/two", "/three"} {
		secret["address"] = server.URL + path
		if err := n.Post(t.Context(), message()); err != nil {
			t.Fatal(err)
		}
		if got := <-paths; got != path {
			t.Errorf("%s, want %s", got, path)
		}
	}
	if conns.Load() != 1 {
		t.Errorf("%d connections", conns.Load())
	}
}

var quiet = log.New(io.Discard, "", 0)
