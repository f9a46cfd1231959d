package azure_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

const account = "azblob://acme.blob.core.windows.net/content"

// enter logs in to u by the proxy of w.
func (w *world) enter(login source.LoginFunc, u string, change func(*source.LoginRequest)) (source.Credential, error) {
	w.T.Helper()
	r := w.Request("azure", u)
	if change != nil {
		change(&r)
	}
	c, err := login(w.T.Context(), r)
	if err != nil && strings.Contains(err.Error(), "canary") {
		w.T.Errorf("a secret shows: %v", err)
	}
	return c, err
}

// An account is shown a token for accounts, which is kept for all of them.
func TestAccount(t *testing.T) {
	w := newWorld(t, application("AZURE_CLIENT_SECRET", "s3cret-canary")...)
	login := w.provider().Login
	first, err := w.enter(login, account, nil)
	if err != nil || first.Token != token(1) || first.Username != "" || first.Expires.IsZero() {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, err := w.enter(login, strings.Replace(account, "acme", "other", 1), nil); err != nil || again.Token != token(1) || w.Issued != 1 {
		t.Errorf("%+v, %v, %d tokens", again, err, w.Issued)
	}
	if len(w.Asked) != 1 || !strings.Contains(w.Asked[0], "https://storage.azure.com/.default") {
		t.Errorf("asked %q", w.Asked)
	}
	first.Refused()
	if next, err := w.enter(login, account, nil); err != nil || next.Token != token(2) {
		t.Errorf("after a refusal: %+v, %v", next, err)
	}
}

func TestAccountFailures(t *testing.T) {
	secret := application("AZURE_CLIENT_SECRET", "s3cret-canary")
	for name, c := range map[string]struct {
		vars   []string
		url    string
		change func(*source.LoginRequest)
		say    string
	}{
		"wrong secret":    {application("AZURE_CLIENT_SECRET", "other-canary"), account, nil, "AZURE_CLIENT_SECRET: status 401: invalid_client"},
		"China":           {secret, "azblob://acme.blob.core.chinacloudapi.cn/c", nil, "the storage account is of another cloud than the public one: set AZURE_AUTHORITY_HOST to https://login.chinacloudapi.cn/"},
		"stranger":        {secret, "azblob://acme.blob.core.windows.net.evil.example/c", nil, "spec.endpoint: the identity of this program is shown to ACCOUNT.blob.core.windows.net"},
		"port":            {secret, "azblob://acme.blob.core.windows.net:8443/c", nil, "spec.endpoint: the identity of this program is shown to"},
		"service account": {secret, account, func(r *source.LoginRequest) { r.ServiceAccount = "robot" }, "spec.serviceAccountName: only a cluster"},
		"CA":              {secret, account, func(r *source.LoginRequest) { r.OwnTrust = true }, "spec.certSecretRef: ca.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.vars...)
			_, err := w.enter(w.provider().Login, c.url, c.change)
			if !errors.Is(err, source.ErrProvider) || !strings.Contains(err.Error(), c.say) {
				t.Errorf("%v: does not say %s", err, c.say)
			}
			if name != "wrong secret" && len(w.Asked) > 0 {
				t.Errorf("asked %q", w.Asked)
			}
		})
	}
}

// What no variable proves, the machine's identity may.
func TestAccountOfMachine(t *testing.T) {
	w := newWorld(t)
	t.Setenv("IDENTITY_HEADER", "header-canary")
	t.Setenv("IDENTITY_ENDPOINT", logintest.ServeHere(t, func(rw http.ResponseWriter, r *http.Request) {
		w.Note("machine %s", r.URL.Query().Get("resource"))
		logintest.Reply(rw, 403, map[string]any{"error": "forbidden"})
	}))
	_, err := w.enter(w.provider().Login, account, nil)
	if err == nil || errors.Is(err, source.ErrNoIdentity) {
		t.Errorf("an identity that was refused: %v", err)
	}
	if len(w.Asked) == 0 || w.Asked[0] != "machine https://storage.azure.com" {
		t.Errorf("asked %q", w.Asked)
	}
}
