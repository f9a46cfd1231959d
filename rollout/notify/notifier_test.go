package notify_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/notify"
)

// vault hands out Secrets of the namespace test.
func vault(secrets map[string]map[string]string) rollout.Secrets {
	return func(_ context.Context, namespace, name string) (map[string][]byte, error) {
		if secrets[name] == nil || namespace != "test" {
			return nil, fs.ErrNotExist
		}
		out := make(map[string][]byte)
		for key, value := range secrets[name] {
			out[key] = []byte(value)
		}
		return out, nil
	}
}

func message() *notify.Message { return &notify.Message{Event: event(1, rollout.Warn)} }

const (
	pathKey = "T0123456789-B0123456789-SECRETKEY"
	token   = "xoxb-canary-TOKEN-value"
)

// TestCredentials checks what each service is shown of a Secret.
func TestCredentials(t *testing.T) {
	for _, kind := range kinds {
		server := record(t, nil)
		p := provider(kind, "http://127.0.0.1:1/unused")
		p.Spec.SecretRef = &rollout.SecretRef{Name: "chat"}
		n := &notify.Notifier{Provider: p, Secrets: vault(map[string]map[string]string{"chat": {"address": server.URL + "/" + pathKey, "token": token}})}
		defer n.Close()
		if err := n.Post(t.Context(), message()); err != nil {
			t.Fatal(err)
		}
		got, path, auth := server.all()[0], "/"+pathKey, ""
		if kind == notify.Discord {
			path += "/slack"
		}
		if kind == notify.Slack || kind == notify.Generic {
			auth = "Bearer " + token
		}
		if got.path != "POST "+path+" application/json" || got.auth != auth {
			t.Errorf("%s: %+v", kind, got)
		}
	}
}

// TestDiscordAddress appends to the path once, and keeps what is escaped.
func TestDiscordAddress(t *testing.T) {
	for address, want := range map[string]string{
		"/api/webhooks/1/k":                  "/api/webhooks/1/k/slack",
		"/api/webhooks/1/k/":                 "/api/webhooks/1/k/slack",
		"/api/webhooks/1/k/slack":            "/api/webhooks/1/k/slack",
		"/api/webhooks/1/k%2Fl?thread_id=12": "/api/webhooks/1/k%2Fl/slack?thread_id=12",
	} {
		server := record(t, nil)
		n := &notify.Notifier{Provider: provider(notify.Discord, server.URL+address)}
		defer n.Close()
		if err := n.Post(t.Context(), message()); err != nil {
			t.Fatal(err)
		}
		if got := server.all()[0].path; got != "POST "+want+" application/json" {
			t.Errorf("%s: %s", address, got)
		}
	}
}

// TestStatus checks which answers are accepted, and what the others say.
func TestStatus(t *testing.T) {
	for status, want := range map[int]bool{200: true, 201: true, 204: true, 299: true, 300: false, 304: false, 400: false, 404: false, 429: false, 500: false, 503: false} {
		server := record(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		n := &notify.Notifier{Provider: provider(notify.Slack, server.URL)}
		defer n.Close()
		err := n.Post(t.Context(), message())
		var refused *rollout.StatusError
		if want != (err == nil) || !want && (!errors.As(err, &refused) || refused.Code != status) {
			t.Errorf("%d: %v", status, err)
		}
	}
}

// TestSlackSaysNo: the API of Slack answers 200 to what it does not accept.
func TestSlackSaysNo(t *testing.T) {
	for answer, want := range map[string]string{
		`{"ok":true}`: "", `ok`: "", `{}`: "",
		`{"ok":false,"error":"channel_not_found"}`:    "the message was not accepted: channel_not_found",
		"{\"ok\":false,\"error\":\"\\u001b[31m<x>\"}": "the message was not accepted: <x>",
	} {
		server := record(t, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(answer)) })
		p := provider(notify.Slack, server.URL)
		p.Spec.SecretRef = &rollout.SecretRef{Name: "chat"}
		p.Spec.Channel = "releases"
		n := &notify.Notifier{Provider: p, Secrets: vault(map[string]map[string]string{"chat": {"token": token}})}
		defer n.Close()
		err := n.Post(t.Context(), message())
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasSuffix(err.Error(), want)) {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

// TestSecretsStay makes posts fail in all ways: no error shows the address or the token.
func TestSecretsStay(t *testing.T) {
	echo := func(status int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			w.Write([]byte("no " + r.URL.Path + " " + r.URL.RequestURI() + " " + r.Header.Get("Authorization") + " " + strings.ToUpper(pathKey)))
		}
	}
	closed := httptest.NewServer(nil)
	closed.Close()
	garbage := raw(t, "nonsense "+pathKey+"\r\n\r\n")
	for name, address := range map[string]string{
		"404":            record(t, echo(404)).URL,
		"500":            record(t, echo(500)).URL,
		"redirect":       record(t, echo(302, "Location", "https://other.example/"+pathKey+"?k="+token)).URL,
		"no server":      closed.URL,
		"no HTTP":        garbage,
		"no TLS":         strings.Replace(record(t, nil).URL, "http:", "https:", 1),
		"no such host":   "http://headgate.invalid",
		"bad escape":     "http://127.0.0.1/%zz",
		"bad port":       "http://127.0.0.1:99999",
		"scheme":         "gopher://127.0.0.1",
		"no scheme":      "127.0.0.1",
		"space in host":  "http://127.0.0.1 x",
		"control":        "http://127.0.0.1/\x7f",
		"user and query": strings.Replace(closed.URL, "://", "://user:"+pathKey+"@", 1),
	} {
		for _, from := range []string{"secret", "spec"} {
			p := provider(notify.Slack, "")
			p.Spec.SecretRef = &rollout.SecretRef{Name: "chat"}
			full := address + "/services/" + pathKey + "?key=" + pathKey
			secret := map[string]string{"token": token}
			if from == "secret" {
				secret["address"] = full
			} else {
				p.Spec.Address = full
			}
			n := &notify.Notifier{Provider: p, Secrets: vault(map[string]map[string]string{"chat": secret})}
			err := n.Post(t.Context(), message())
			n.Close()
			if err == nil {
				t.Errorf("%s, %s: no error", name, from)
				continue
			}
			text := err.Error()
			var refused *rollout.StatusError
			if errors.As(err, &refused) {
				text += string(refused.Body) + refused.Location
			}
			for _, secret := range []string{pathKey, token, "/services/", "hunter", `Post "`} {
				if strings.Contains(text, secret) {
					t.Errorf("%s, %s: %q shows %s", name, from, text, secret)
				}
			}
			if !strings.Contains(text, "alert provider test/slack: ") {
				t.Errorf("%s, %s: %q", name, from, text)
			}
		}
	}
}

// raw is a server that answers anything with text.
func raw(t *testing.T, text string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 1<<10))
			c.Write([]byte(text))
			c.Close()
		}
	}()
	return "http://" + l.Addr().String()
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
		n := &notify.Notifier{Provider: p, Secrets: vault(map[string]map[string]string{"chat": {"token": token}})}
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
		{nil, "spec.certSecretRef: read secret tls: file does not exist"},
	} {
		p := provider(notify.Slack, server.URL)
		p.Spec.CertSecretRef = &rollout.SecretRef{Name: "tls"}
		n := &notify.Notifier{Provider: p, Secrets: vault(map[string]map[string]string{"tls": test.secret})}
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
	n := &notify.Notifier{Provider: p, Proxy: http.ProxyURL(at)}
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
	n := &notify.Notifier{Provider: p, Secrets: vault(map[string]map[string]string{"tls": pair(t, proxy)})}
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
	n := &notify.Notifier{Provider: p, Secrets: vault(map[string]map[string]string{"chat": secret})}
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

// TestSettings names the Secret, the key and the field that a post lacks.
func TestSettings(t *testing.T) {
	for want, p := range map[string]struct {
		secret map[string]string
		proxy  string
	}{
		"spec.secretRef: read secret chat: file does not exist":                        {},
		"secret chat: key address is missing, and so is spec.address: set one of them": {secret: map[string]string{"token": token}},
		"spec.secretRef: secret chat: key address is no URL":                           {secret: map[string]string{"address": "hunter2"}},
		"secret chat: key address ends in a line break: remove it":                     {secret: map[string]string{"address": "http://h/hunter2\n"}},
		"secret chat: key token has a control character at byte 7":                     {secret: map[string]string{"address": "http://h/x", "token": "hunter2\rX: y"}},
		`spec.proxy has the scheme "ftp": use http, https, socks5`:                     {secret: map[string]string{"address": "http://h/x"}, proxy: "ftp://h"},
		"spec.proxy is no URL: write http://HOST:PORT":                                 {secret: map[string]string{"address": "http://h/x"}, proxy: "hunter2"},
	} {
		kind := notify.Generic
		provider := provider(kind, "")
		provider.Spec.SecretRef, provider.Spec.Proxy = &rollout.SecretRef{Name: "chat"}, p.proxy
		n := &notify.Notifier{Provider: provider, Secrets: vault(map[string]map[string]string{"chat": p.secret})}
		err := n.Check(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

var quiet = log.New(io.Discard, "", 0)
