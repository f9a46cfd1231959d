package notify_test

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
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
	userKey = "user-name-that-is-a-key"
	token   = "xoxb-canary-TOKEN-value"
)

// TestCredentials checks what each service is shown of a Secret.
func TestCredentials(t *testing.T) {
	for _, kind := range kinds {
		server := record(t, nil)
		p := provider(kind, "http://127.0.0.1:1/unused")
		p.Spec.SecretRef = &rollout.SecretRef{Name: "chat"}
		n := &notify.Notifier{Timeout: time.Hour, Provider: p, Secrets: vault(map[string]map[string]string{"chat": {"address": server.URL + "/" + pathKey, "token": token}})}
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
		n := &notify.Notifier{Timeout: time.Hour, Provider: provider(notify.Discord, server.URL+address)}
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
		n := &notify.Notifier{Timeout: time.Hour, Provider: provider(notify.Slack, server.URL)}
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
		for _, ref := range []*rollout.SecretRef{nil, {Name: "chat"}} { // without a token as well: not_authed
			p := provider(notify.Slack, server.URL)
			p.Spec.SecretRef = ref
			n := &notify.Notifier{Timeout: time.Hour, Provider: p, Secrets: vault(map[string]map[string]string{"chat": {"token": token}})}
			err := n.Post(t.Context(), message())
			n.Close()
			if want == "" && err != nil || want != "" && (err == nil || !strings.HasSuffix(err.Error(), want)) {
				t.Errorf("%s: %v", answer, err)
			}
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
		"404":           record(t, echo(404)).URL,
		"500":           record(t, echo(500)).URL,
		"redirect":      record(t, echo(302, "Location", "https://other.example/"+pathKey+"?k="+token)).URL,
		"no server":     closed.URL,
		"no HTTP":       garbage,
		"no TLS":        strings.Replace(record(t, nil).URL, "http:", "https:", 1),
		"no such host":  "http://headgate.invalid",
		"bad escape":    "http://127.0.0.1/%zz",
		"bad port":      "http://127.0.0.1:99999",
		"scheme":        "gopher://127.0.0.1",
		"no scheme":     "127.0.0.1",
		"space in host": "http://127.0.0.1 x",
		"control":       "http://127.0.0.1/\x7f",
		"user is a key": strings.Replace(record(t, func(w http.ResponseWriter, r *http.Request) {
			user, _, _ := r.BasicAuth()
			http.Error(w, user+" "+r.FormValue("sig"), http.StatusForbidden)
		}).URL, "://", "://"+userKey+"@", 1),
		"user and query": strings.Replace(closed.URL, "://", "://user:"+pathKey+"@", 1),
	} {
		for _, from := range []string{"secret", "spec"} {
			p := provider(notify.Slack, "")
			p.Spec.SecretRef = &rollout.SecretRef{Name: "chat"}
			if name == "user is a key" { // which a token replaces
				p.Spec.Type = notify.Rocket
			}
			full := address + "/services/" + pathKey + "?key=" + pathKey + "&sig=key%2Fin%2Fa%2Fquery"
			secret := map[string]string{"token": token}
			if from == "secret" {
				secret["address"] = full
			} else {
				p.Spec.Address = full
			}
			n := &notify.Notifier{Timeout: time.Hour, Provider: p, Secrets: vault(map[string]map[string]string{"chat": secret})}
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
			for _, secret := range []string{pathKey, token, userKey, "in/a/query", "/services/", "hunter", `Post "`} {
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

// TestSettings names the Secret, the key and the field that a post lacks.
func TestSettings(t *testing.T) {
	for want, p := range map[string]struct {
		secret map[string]string
		proxy  string
	}{
		"spec.secretRef: secret test/chat: file does not exist":                        {},
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
		n := &notify.Notifier{Timeout: time.Hour, Provider: provider, Secrets: vault(map[string]map[string]string{"chat": p.secret})}
		err := n.Check(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestAcceptedAnyhow: an answer of status 200 whose body does not end is accepted, and not posted again.
func TestAcceptedAnyhow(t *testing.T) {
	for _, kind := range kinds {
		server := record(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("ok"))
		})
		n := &notify.Notifier{Timeout: time.Hour, Provider: provider(kind, server.URL)}
		if err := n.Post(t.Context(), message()); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		n.Close()
	}
}
