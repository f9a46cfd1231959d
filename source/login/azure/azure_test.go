//go:debug x509usefallbackroots=1
package azure_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

const (
	tenant     = "11111111-2222-3333-4444-555555555555"
	devOps     = "499b84ac-1321-427f-aa17-267ca6975798"
	repository = "https://dev.azure.com/org/project/_git/app"
)

func TestFetch(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	const at, scope = "login.microsoftonline.com/" + tenant + "/oauth2/v2.0/token app ", " " + devOps + "/.default openid offline_access profile"
	for name, c := range map[string]struct {
		vars  []string
		asked []string
	}{
		"secret":            {application("AZURE_CLIENT_SECRET", "s3cret-canary"), []string{at + "secret" + scope}},
		"certificate":       {application("AZURE_CLIENT_CERTIFICATE_PATH", certificate(t, key, &key.PublicKey)), []string{at + "certificate" + scope}},
		"workload identity": {application("AZURE_FEDERATED_TOKEN_FILE", logintest.File(t, logintest.Identity)), []string{at + "assertion" + scope}},
		"job":               {application(logintest.Job()...), []string{"runner /token?api-version=2.0&audience=api%3A%2F%2FAzureADTokenExchange", at + "assertion" + scope}},
		"other cloud": {application("AZURE_CLIENT_SECRET", "s3cret-canary", "AZURE_AUTHORITY_HOST", "https://login.microsoftonline.us/"),
			[]string{strings.Replace(at, ".com", ".us", 1) + "secret" + scope}},
		"secret before job": {application(append(logintest.Job(), "AZURE_CLIENT_SECRET", "s3cret-canary")...), []string{at + "secret" + scope}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.vars...)
			run := w.Fetch(w.provider().Login, logintest.Repository("azure", repository))
			if run.Err != nil {
				t.Fatal(run.Err)
			}
			for i, a := range w.Asked { // the order of scopes is the library's
				if words := strings.Fields(a); strings.HasPrefix(a, "login.") && !slices.Contains(words[3:], devOps+"/.default") || !strings.HasPrefix(strings.TrimSuffix(c.asked[i], scope), strings.Join(words[:min(3, len(words))], " ")) {
					t.Errorf("asked %q, want %q", a, c.asked[i])
				}
			}
			if len(w.Asked) != len(c.asked) || !slices.Contains(run.Secrets, token(1)) {
				t.Errorf("asked %q for one fetch, or the token is not kept secret", w.Asked)
			}
		})
	}
}

// The SDK keeps the tokens of managed identities for the whole process, by id.
func TestManagedIdentity(t *testing.T) {
	first, second := rand.Text(), rand.Text()
	w := newWorld(t, "AZURE_CLIENT_ID", first)
	u := logintest.ServeHere(t, func(rw http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		w.Note("machine %s %s", q.Get("client_id"), q.Get("resource"))
		if r.Header.Get("X-IDENTITY-HEADER") != "header-canary" {
			logintest.Reply(rw, 401, map[string]any{"error": "unauthorized"})
			return
		}
		logintest.Reply(rw, 200, map[string]any{"access_token": w.next(), "token_type": "Bearer", "resource": q.Get("resource"),
			"expires_on": fmt.Sprint(time.Now().Add(time.Hour).Unix())})
	})
	t.Setenv("IDENTITY_ENDPOINT", u)
	t.Setenv("IDENTITY_HEADER", "header-canary")
	run := w.Fetch(w.provider().Login, logintest.Repository("azure", repository))
	if run.Err != nil || !slices.Equal(w.Asked, []string{"machine " + first + " " + devOps}) {
		t.Errorf("%v, asked %q", run.Err, w.Asked)
	}
	if seen := strings.Join(w.Proxy.Seen(), " "); strings.Contains(seen, logintest.Host(u)) {
		t.Errorf("the proxy could read along: %s", seen)
	}
	t.Setenv("IDENTITY_HEADER", "other-canary")
	w.Env["AZURE_CLIENT_ID"], w.Env["IDENTITY_HEADER"] = second, "other-canary"
	run = w.Fetch(w.provider().Login, logintest.Repository("azure", repository))
	if run.Reason != "InvalidProviderConfiguration" || !strings.Contains(run.Err.Error(), "managed identity: status 401") {
		t.Errorf("%s, %v", run.Reason, run.Err)
	}
}

func TestFailures(t *testing.T) {
	const provider, auth = "InvalidProviderConfiguration", "AuthenticationFailed"
	secret := slices.Clip(application("AZURE_CLIENT_SECRET", "s3cret-canary"))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(*source.GitRepositorySpec)) func(*source.GitRepository) {
		return func(g *source.GitRepository) { f(&g.Spec) }
	}
	for name, c := range map[string]struct {
		vars   []string
		answer http.HandlerFunc
		change func(*source.GitRepository)
		reason string
		say    string
	}{
		"wrong secret":           {application("AZURE_CLIENT_SECRET", "other-canary"), nil, nil, provider, "AZURE_CLIENT_SECRET: status 401: invalid_client: AADSTS7000215|AZURE_ variables"},
		"refused job":            {append(application(logintest.Job()...), "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "other-canary"), nil, nil, auth, "identity token of the job|https://runner.example/token|status 401"},
		"refused assertion":      {application("AZURE_FEDERATED_TOKEN_FILE", logintest.File(t, "eyJhbGciOiJSUzI1NiJ9.eyJvdGhlciI6MX0.canary-other")), nil, nil, provider, "AZURE_FEDERATED_TOKEN_FILE: status 401"},
		"no token file":          {application("AZURE_FEDERATED_TOKEN_FILE", filepath.Join(t.TempDir(), "absent")), nil, nil, auth, "absent"},
		"huge token file":        {application("AZURE_FEDERATED_TOKEN_FILE", logintest.File(t, strings.Repeat("x", 2<<20))), nil, nil, auth, "more than 1048576 bytes"},
		"no certificate file":    {application("AZURE_CLIENT_CERTIFICATE_PATH", filepath.Join(t.TempDir(), "absent")), nil, nil, provider, "AZURE_CLIENT_CERTIFICATE_PATH|absent"},
		"no certificate":         {application("AZURE_CLIENT_CERTIFICATE_PATH", logintest.File(t, "canary")), nil, nil, provider, "AZURE_CLIENT_CERTIFICATE_PATH"},
		"certificate of no use":  {application("AZURE_CLIENT_CERTIFICATE_PATH", certificate(t, key, &key.PublicKey)), nil, nil, provider, "AZURE_CLIENT_CERTIFICATE_PATH"},
		"tenant with a path":     {append(secret, "AZURE_TENANT_ID", "../canary"), nil, nil, provider, "AZURE_CLIENT_SECRET"},
		"authority without TLS":  {append(secret, "AZURE_AUTHORITY_HOST", "http://login.microsoftonline.com"), nil, nil, provider, "https"},
		"throttled":              {secret, logintest.Answers(429, `{"error":"slow_down","error_description":"later"}`), nil, auth, "status 429"},
		"slow":                   {secret, logintest.Answers(408, `{"error":"timeout"}`), nil, auth, "status 408: timeout"},
		"not JSON":               {secret, logintest.Answers(200, `<html>`), nil, auth, "AZURE_CLIENT_SECRET"},
		"no token":               {secret, logintest.Answers(200, `{"token_type":"Bearer","expires_in":3600}`), nil, auth, "AZURE_CLIENT_SECRET"},
		"token that cannot pass": {secret, logintest.Answers(200, `{"token_type":"Bearer","expires_in":3600,"access_token":"a\r\nb"}`), nil, auth, "no token that can be sent"},
		"huge answer":            {secret, logintest.Answers(200, `{"access_token":"`+strings.Repeat("x", 4<<20)), nil, auth, "larger than 1048576 bytes"},
		"user in the URL":        {secret, nil, change(func(s *source.GitRepositorySpec) { s.URL = "https://org@dev.azure.com/org/project/_git/app" }), provider, "user information"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.vars...)
			w.Answer = c.answer
			g := logintest.Repository("azure", repository)
			if c.change != nil {
				c.change(g)
			}
			run := w.Fetch(w.provider().Login, g)
			run.Fails(t, c.reason, c.say)
		})
	}
}
