package gcp_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source/login/gcp"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

// key is the key of the service account.
var key = sync.OnceValue(func() *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return k
})

// services are a registry of Google Cloud and one of another cloud, a store, and
// the token services of Google. Its metadata server is reached directly.
type services struct {
	*logintest.Services
	registry *testenv.Registry
	store    *testenv.Store
	universe string // of the machine
	scope    string // expected scope of requests for tokens
}

func newServices(t *testing.T, vars ...string) *services {
	w := &services{Services: logintest.NewServices(t, append([]string{"HOME", t.TempDir()}, vars...)...), scope: cloudScope}
	if w.Env["GCE_METADATA_HOST"] == "" {
		w.Env["GCE_METADATA_HOST"] = logintest.Host(logintest.ServeLoopback(t, w.serveMetadata))
	}
	w.Serve(w.token, "oauth2.googleapis.com")
	w.Serve(w.exchange, "sts.googleapis.com", "sts.s3nsapis.fr")
	w.Serve(w.impersonate, "iamcredentials.googleapis.com", "iamcredentials.s3nsapis.fr")
	for _, name := range []string{"docker.s3nsregistry.fr", registry} {
		w.registry = logintest.Registry(t, testenv.RegistryConfig{CA: w.CA, Names: []string{name}, Allow: w.allow}, "project/repo/app")
		w.Name(w.registry.Host, name)
	}
	w.store = testenv.StartGCS(t, testenv.StoreConfig{CA: w.CA, Names: []string{store}, Token: token(1)})
	w.Name(w.store.Host, store)
	return w
}

func token(n int) string { return fmt.Sprintf("ya29.canary-%d", n) }

func (w *services) allow(r *http.Request) bool {
	user, password, _ := r.BasicAuth()
	n := w.Valid()
	return n > 0 && user == "oauth2accesstoken" && password == token(n)
}

// noteOrAnswer records a request, and reports whether Answer of the services responded to it.
func (w *services) noteOrAnswer(rw http.ResponseWriter, r *http.Request, format string, args ...any) bool {
	w.Note(format, args...)
	return w.TryAnswer(rw, r)
}

func (w *services) next() string { return token(w.Next()) }

// token answers requests by assertion (RFC 7523 section 2.1) and refresh token (RFC 6749 section 6).
func (w *services) token(rw http.ResponseWriter, r *http.Request) {
	form := func(name string) string { return r.PostFormValue(name) }
	if w.noteOrAnswer(rw, r, "token %s %s", form("grant_type"), form("client_id")) {
		return
	}
	switch {
	case form("grant_type") == "urn:ietf:params:oauth:grant-type:jwt-bearer" && validAssertion(form("assertion"), "https://"+r.Host+"/token", w.scope),
		form("grant_type") == "refresh_token" && form("refresh_token") == "refresh-canary" && form("client_secret") == "secret-canary":
		logintest.Reply(rw, 200, map[string]any{"access_token": w.next(), "token_type": "Bearer", "expires_in": 3600})
	default:
		logintest.Reply(rw, 400, map[string]any{"error": "invalid_grant", "error_description": "Invalid grant: " + form("assertion") + form("refresh_token") + form("client_secret")})
	}
}

// validAssertion checks a JSON web token of the service account.
func validAssertion(assertion, audience, scope string) bool {
	claims := jwt.MapClaims{}
	token, err := jwt.ParseWithClaims(assertion, claims, func(*jwt.Token) (any, error) { return &key().PublicKey, nil },
		jwt.WithValidMethods([]string{"RS256"}), jwt.WithIssuer(serviceAccountEmail), jwt.WithAudience(audience), jwt.WithExpirationRequired(), jwt.WithLeeway(time.Minute))
	return err == nil && token.Header["kid"] == "key-1" && claims["scope"] == scope
}

// exchange answers token exchanges (RFC 8693 section 2.1).
func (w *services) exchange(rw http.ResponseWriter, r *http.Request) {
	form := func(name string) string { return r.PostFormValue(name) }
	if w.noteOrAnswer(rw, r, "%s %s %s %s", r.Host, form("audience"), form("subject_token_type"), form("scope")) {
		return
	}
	if form("subject_token") != logintest.Identity || form("grant_type") != "urn:ietf:params:oauth:grant-type:token-exchange" || r.URL.Path != "/v1/token" {
		logintest.Reply(rw, 400, map[string]any{"error": "invalid_grant", "error_description": "not " + form("subject_token")})
		return
	}
	logintest.Reply(rw, 200, map[string]any{"access_token": w.next(), "issued_token_type": "urn:ietf:params:oauth:token-type:access_token", "token_type": "Bearer", "expires_in": 3600})
}

// impersonate answers generateAccessToken of a service account.
func (w *services) impersonate(rw http.ResponseWriter, r *http.Request) {
	if w.noteOrAnswer(rw, r, "%s%s", r.Host, r.URL.Path) {
		return
	}
	if r.Header.Get("Authorization") != "Bearer "+token(w.Issued) {
		logintest.Reply(rw, 403, map[string]any{"error": map[string]any{"code": 403, "message": "Permission denied to " + r.Header.Get("Authorization")}})
		return
	}
	logintest.Reply(rw, 200, map[string]any{"accessToken": w.next(), "expireTime": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
}

// serveMetadata is the metadata server.
func (w *services) serveMetadata(rw http.ResponseWriter, r *http.Request) {
	if w.noteOrAnswer(rw, r, "machine %s", r.URL) {
		return
	}
	switch {
	case r.Header.Get("Metadata-Flavor") != "Google":
		rw.WriteHeader(http.StatusForbidden)
	case r.URL.Path == "/computeMetadata/v1/universe/universe-domain" && w.universe != "":
		fmt.Fprintln(rw, w.universe)
	case r.URL.Path == "/computeMetadata/v1/instance/service-accounts/default/token":
		logintest.Reply(rw, 200, map[string]any{"access_token": w.next(), "token_type": "Bearer", "expires_in": 3600})
	default:
		rw.WriteHeader(http.StatusNotFound)
	}
}

func (w *services) provider() *gcp.Provider { return &gcp.Provider{Now: w.Clock.Now, Lookup: w.Lookup} }

// A config is a credentials file.
type config map[string]any

func (c config) with(name string, value any) config {
	out := config{}
	for k, v := range c {
		out[k] = v
	}
	out[name] = value
	return out
}

func (c config) write(t *testing.T) string {
	text, err := json.Marshal(c)
	must(t, err)
	return logintest.File(t, string(text))
}

func serviceAccount() config {
	der, err := x509.MarshalPKCS8PrivateKey(key())
	if err != nil {
		panic(err)
	}
	return config{"type": "service_account", "client_email": serviceAccountEmail, "private_key_id": "key-1", "token_uri": "https://oauth2.googleapis.com/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))}
}

func user() config {
	return config{"type": "authorized_user", "client_id": "gcloud", "client_secret": "secret-canary", "refresh_token": "refresh-canary"}
}

// federated returns the configuration of another identity, whose token is in a file.
func federated(t *testing.T) config {
	return config{"type": "external_account", "audience": "//iam.googleapis.com/" + provider, "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
		"token_url": "https://sts.googleapis.com/v1/token", "credential_source": config{"file": logintest.File(t, logintest.Identity)}}
}

func impersonation(account string) string {
	return "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + account + ":generateAccessToken"
}

func jobEnv(more ...string) []string {
	return append(logintest.Job("GOOGLE_WORKLOAD_IDENTITY_PROVIDER", provider), more...)
}

// homeEnv returns the variables of a home directory with a developer's login.
func homeEnv(t *testing.T) []string {
	dir := t.TempDir()
	text, _ := json.Marshal(user())
	for _, sub := range []string{filepath.Join(".config", "gcloud"), "gcloud"} {
		must(t, os.MkdirAll(filepath.Join(dir, sub), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, sub, "application_default_credentials.json"), text, 0o600))
	}
	return []string{"HOME", dir, "APPDATA", dir}
}

func fileEnv(name string) []string { return []string{"GOOGLE_APPLICATION_CREDENTIALS", name} }

var must = testenv.Must
