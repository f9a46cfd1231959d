//go:debug x509usefallbackroots=1
package azure_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log"
	"math/big"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/azure"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

const (
	tenant     = "11111111-2222-3333-4444-555555555555"
	devOps     = "499b84ac-1321-427f-aa17-267ca6975798"
	repository = "https://dev.azure.com/org/project/_git/app"
)

func TestFetch(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	const at, scope = "login.microsoftonline.com/" + tenant + "/oauth2/v2.0/token app ", " " + devOps + "/.default openid offline_access profile"
	for name, c := range map[string]struct {
		vars  []string
		asked []string
	}{
		"secret":            {applicationEnv("AZURE_CLIENT_SECRET", "s3cret-canary"), []string{at + "secret" + scope}},
		"certificate":       {applicationEnv("AZURE_CLIENT_CERTIFICATE_PATH", certificate(t, key, &key.PublicKey)), []string{at + "certificate" + scope}},
		"workload identity": {applicationEnv("AZURE_FEDERATED_TOKEN_FILE", logintest.File(t, logintest.Identity)), []string{at + "assertion" + scope}},
		"job":               {applicationEnv(logintest.Job()...), []string{"runner /token?api-version=2.0&audience=api%3A%2F%2FAzureADTokenExchange", at + "assertion" + scope}},
		"other cloud": {applicationEnv("AZURE_CLIENT_SECRET", "s3cret-canary", "AZURE_AUTHORITY_HOST", "https://login.microsoftonline.us/"),
			[]string{strings.Replace(at, ".com", ".us", 1) + "secret" + scope}},
		"secret before job": {applicationEnv(append(logintest.Job(), "AZURE_CLIENT_SECRET", "s3cret-canary")...), []string{at + "secret" + scope}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newServices(t, c.vars...)
			run := w.Fetch(w.provider().Login, logintest.Repository("azure", repository))
			if run.Err != nil {
				t.Fatal(run.Err)
			}
			for i, a := range w.Requests { // the order of scopes is the library's
				if words := strings.Fields(a); strings.HasPrefix(a, "login.") && !slices.Contains(words[3:], devOps+"/.default") || !strings.HasPrefix(strings.TrimSuffix(c.asked[i], scope), strings.Join(words[:min(3, len(words))], " ")) {
					t.Errorf("asked %q, want %q", a, c.asked[i])
				}
			}
			if len(w.Requests) != len(c.asked) || !slices.Contains(run.Secrets, token(1)) {
				t.Errorf("asked %q for one fetch, or the token is not kept secret", w.Requests)
			}
		})
	}
}

// TestManagedIdentity uses random ids, because the SDK caches the tokens of managed
// identities for the whole process, by id.
func TestManagedIdentity(t *testing.T) {
	first, second := rand.Text(), rand.Text()
	w := newServices(t, "AZURE_CLIENT_ID", first)
	u := logintest.ServeLoopback(t, func(rw http.ResponseWriter, r *http.Request) {
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
	if run.Err != nil || !slices.Equal(w.Requests, []string{"machine " + first + " " + devOps}) {
		t.Errorf("%v, asked %q", run.Err, w.Requests)
	}
	if seen := strings.Join(w.Proxy.Requests(), " "); strings.Contains(seen, logintest.Host(u)) {
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
	secret := slices.Clip(applicationEnv("AZURE_CLIENT_SECRET", "s3cret-canary"))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
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
		"wrong secret":           {applicationEnv("AZURE_CLIENT_SECRET", "other-canary"), nil, nil, provider, "AZURE_CLIENT_SECRET: status 401: invalid_client: AADSTS7000215|AZURE_ variables"},
		"refused job":            {append(applicationEnv(logintest.Job()...), "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "other-canary"), nil, nil, auth, "identity token of the job|https://runner.example/token|status 401"},
		"refused assertion":      {applicationEnv("AZURE_FEDERATED_TOKEN_FILE", logintest.File(t, "eyJhbGciOiJSUzI1NiJ9.eyJvdGhlciI6MX0.canary-other")), nil, nil, provider, "AZURE_FEDERATED_TOKEN_FILE: status 401"},
		"no token file":          {applicationEnv("AZURE_FEDERATED_TOKEN_FILE", filepath.Join(t.TempDir(), "absent")), nil, nil, auth, "absent"},
		"huge token file":        {applicationEnv("AZURE_FEDERATED_TOKEN_FILE", logintest.File(t, strings.Repeat("x", 2<<20))), nil, nil, auth, "more than 1048576 bytes"},
		"no certificate file":    {applicationEnv("AZURE_CLIENT_CERTIFICATE_PATH", filepath.Join(t.TempDir(), "absent")), nil, nil, provider, "AZURE_CLIENT_CERTIFICATE_PATH|absent"},
		"no certificate":         {applicationEnv("AZURE_CLIENT_CERTIFICATE_PATH", logintest.File(t, "canary")), nil, nil, provider, "AZURE_CLIENT_CERTIFICATE_PATH"},
		"certificate of no use":  {applicationEnv("AZURE_CLIENT_CERTIFICATE_PATH", certificate(t, key, &key.PublicKey)), nil, nil, provider, "AZURE_CLIENT_CERTIFICATE_PATH"},
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
			w := newServices(t, c.vars...)
			w.Answer = c.answer
			g := logintest.Repository("azure", repository)
			if c.change != nil {
				c.change(g)
			}
			run := w.Fetch(w.provider().Login, g)
			run.RequireFailure(t, c.reason, c.say)
		})
	}
}

const account = "azblob://acme.blob.core.windows.net/content"

// logIn logs in to u through the proxy of w.
func (w *services) logIn(login source.LoginFunc, u string, change func(*source.LoginRequest)) (source.Credential, error) {
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

// TestAccount sends a storage account a token for storage accounts, and uses it for all of
// them.
func TestAccount(t *testing.T) {
	w := newServices(t, applicationEnv("AZURE_CLIENT_SECRET", "s3cret-canary")...)
	login := w.provider().Login
	first, err := w.logIn(login, account, nil)
	if err != nil || first.Token != token(1) || first.Username != "" || first.Expires.IsZero() {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, err := w.logIn(login, strings.Replace(account, "acme", "other", 1), nil); err != nil || again.Token != token(1) || w.Issued != 1 {
		t.Errorf("%+v, %v, %d tokens", again, err, w.Issued)
	}
	if len(w.Requests) != 1 || !strings.Contains(w.Requests[0], "https://storage.azure.com/.default") {
		t.Errorf("asked %q", w.Requests)
	}
	first.Refused()
	if next, err := w.logIn(login, account, nil); err != nil || next.Token != token(2) {
		t.Errorf("after a refusal: %+v, %v", next, err)
	}
}

func TestAccountFailures(t *testing.T) {
	secret := applicationEnv("AZURE_CLIENT_SECRET", "s3cret-canary")
	for name, c := range map[string]struct {
		vars   []string
		url    string
		change func(*source.LoginRequest)
		say    string
	}{
		"wrong secret":    {applicationEnv("AZURE_CLIENT_SECRET", "other-canary"), account, nil, "AZURE_CLIENT_SECRET: status 401: invalid_client"},
		"China":           {secret, "azblob://acme.blob.core.chinacloudapi.cn/c", nil, "the storage account is of another cloud than the public one: set AZURE_AUTHORITY_HOST to https://login.chinacloudapi.cn/"},
		"stranger":        {secret, "azblob://acme.blob.core.windows.net.evil.example/c", nil, "spec.endpoint: the identity of this program is shown to ACCOUNT.blob.core.windows.net"},
		"port":            {secret, "azblob://acme.blob.core.windows.net:8443/c", nil, "spec.endpoint: the identity of this program is shown to"},
		"service account": {secret, account, func(r *source.LoginRequest) { r.ServiceAccount = "robot" }, "spec.serviceAccountName: only a cluster"},
		"CA":              {secret, account, func(r *source.LoginRequest) { r.OwnTrust = true }, "spec.certSecretRef: ca.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newServices(t, c.vars...)
			_, err := w.logIn(w.provider().Login, c.url, c.change)
			if !errors.Is(err, source.ErrProvider) || !strings.Contains(err.Error(), c.say) {
				t.Errorf("%v: does not say %s", err, c.say)
			}
			if name != "wrong secret" && len(w.Requests) > 0 {
				t.Errorf("asked %q", w.Requests)
			}
		})
	}
}

// TestAccountOfMachine uses the machine's identity if no variable selects another.
func TestAccountOfMachine(t *testing.T) {
	w := newServices(t)
	t.Setenv("IDENTITY_HEADER", "header-canary")
	t.Setenv("IDENTITY_ENDPOINT", logintest.ServeLoopback(t, func(rw http.ResponseWriter, r *http.Request) {
		w.Note("machine %s", r.URL.Query().Get("resource"))
		logintest.Reply(rw, 403, map[string]any{"error": "forbidden"})
	}))
	_, err := w.logIn(w.provider().Login, account, nil)
	if err == nil || errors.Is(err, source.ErrNoIdentity) {
		t.Errorf("an identity that was refused: %v", err)
	}
	if len(w.Requests) == 0 || w.Requests[0] != "machine https://storage.azure.com" {
		t.Errorf("asked %q", w.Requests)
	}
}

// services are Azure DevOps and the authority of Entra.
type services struct{ *logintest.Services }

func newServices(t *testing.T, vars ...string) *services {
	w := &services{logintest.NewServices(t, vars...)}
	names := []string{"dev.azure.com", "old.visualstudio.com"}
	git := logintest.Serve(t, w.CA, "org/project/_git/app", logintest.Repo(t), w.allow, names...)
	w.Name(logintest.Host(git.URL), names...)
	w.Serve(w.serveEntra, "login.microsoftonline.com", "login.microsoftonline.us", "login.chinacloudapi.cn")
	return w
}

func token(n int) string { return fmt.Sprintf("azure-canary-%d", n) }

func (w *services) allow(r *http.Request) bool {
	n := w.Valid()
	return n > 0 && r.Header.Get("Authorization") == "Bearer "+token(n)
}

func (w *services) next() string { return token(w.Next()) }

// serveEntra is the authority: discovery (OpenID Connect Discovery 1.0) and tokens.
func (w *services) serveEntra(rw http.ResponseWriter, r *http.Request) {
	base := "https://" + r.Host
	switch {
	case r.URL.Path == "/common/discovery/instance":
		logintest.Reply(rw, 200, map[string]any{"tenant_discovery_endpoint": base + "/" + tenant + "/v2.0/.well-known/openid-configuration", "api-version": "1.1",
			"metadata": []any{map[string]any{"preferred_network": r.Host, "preferred_cache": r.Host, "aliases": []string{r.Host}}}})
	case strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration"):
		logintest.Reply(rw, 200, map[string]any{"issuer": base + "/" + tenant + "/v2.0", "authorization_endpoint": base + "/" + tenant + "/oauth2/v2.0/authorize",
			"token_endpoint": base + "/" + tenant + "/oauth2/v2.0/token"})
	case !w.TryAnswer(rw, r):
		w.issue(rw, r)
	}
}

// issue answers a request with client credentials (RFC 6749 section 4.4, RFC 7523 section 2.2).
func (w *services) issue(rw http.ResponseWriter, r *http.Request) {
	form := func(name string) string { return r.PostFormValue(name) }
	proof := "no"
	switch {
	case form("client_secret") == "s3cret-canary":
		proof = "secret"
	case form("client_assertion") == logintest.Identity:
		proof = "assertion"
	case strings.Contains(form("client_assertion"), "."):
		claims, _ := base64.RawURLEncoding.DecodeString(strings.Split(form("client_assertion"), ".")[1])
		if strings.Contains(string(claims), form("client_id")) {
			proof = "certificate"
		}
	}
	w.Note("%s%s %s %s %s", r.Host, r.URL.Path, form("client_id"), proof, form("scope"))
	if proof == "no" || r.URL.Path != "/"+tenant+"/oauth2/v2.0/token" || form("grant_type") != "client_credentials" {
		logintest.Reply(rw, 401, map[string]any{"error": "invalid_client", "error_description": "AADSTS7000215: not " + form("client_secret") + form("client_assertion")})
		return
	}
	logintest.Reply(rw, 200, map[string]any{"token_type": "Bearer", "expires_in": 3600, "access_token": w.next()})
}

func (w *services) provider() *azure.Provider {
	return &azure.Provider{Now: w.Clock.Now, Lookup: w.Lookup}
}

// applicationEnv returns the variables of an application, and more.
func applicationEnv(more ...string) []string {
	return append([]string{"AZURE_TENANT_ID", tenant, "AZURE_CLIENT_ID", "app"}, more...)
}

// certificate writes a certificate and its key.
func certificate(t *testing.T, key any, public any) string {
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "app"}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, public, key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	return logintest.File(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))+string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}

// The program's identity gives access to a registry of Azure.
func Example() {
	app := &source.OCIRepository{Spec: source.OCIRepositorySpec{Provider: "azure", URL: "oci://team.azurecr.io/app"}}
	revision, _, err := oci.New(app, source.Env{Login: new(azure.Provider).Login}, nil).Resolve(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(revision.ID)
}

var must = testenv.Must
