package azure_test

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/azure"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

// A world has Azure DevOps, the authority of Entra and the token service of
// Actions, all behind a proxy and vouched for by the system.
type world struct {
	t       *testing.T
	git     *testenv.Server
	proxy   *testenv.ProxyServer
	secrets logintest.Secrets
	env     map[string]string
	clock   *logintest.Clock

	mu      sync.Mutex
	asked   []string // of the token services
	issued  int
	answer  http.HandlerFunc // in place of the token endpoint
	revoked bool
}

func newWorld(t *testing.T, vars ...string) *world {
	ca := testenv.SystemCA(t)
	w := &world{t: t, env: map[string]string{}, clock: logintest.NewClock(time.Now())}
	for i := 0; i < len(vars); i += 2 {
		w.env[vars[i]] = vars[i+1]
	}
	w.git = logintest.Serve(t, ca, "org/project/_git/app", logintest.Repo(t), w.allow, "dev.azure.com", "old.visualstudio.com")
	entra := logintest.ServeTLS(t, ca, w.entra, "login.microsoftonline.com", "login.microsoftonline.us")
	runner := logintest.ServeTLS(t, ca, w.runner, "runner.example")
	w.proxy = testenv.ServeProxy(t, testenv.Proxy{Hosts: map[string]string{
		"dev.azure.com:443": logintest.Host(w.git.URL), "old.visualstudio.com:443": logintest.Host(w.git.URL),
		"login.microsoftonline.com:443": entra, "login.microsoftonline.us:443": entra, "runner.example:443": runner}})
	w.secrets = logintest.Secrets{"proxy": {"address": w.proxy.URL}, "ca": {"ca.crt": string(ca.PEM())}}
	return w
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, fmt.Sprintf(format, args...))
}

func token(n int) string { return fmt.Sprintf("azure-canary-%d", n) }

func (w *world) allow(r *http.Request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.issued > 0 && !w.revoked && r.Header.Get("Authorization") == "Bearer "+token(w.issued)
}

func (w *world) next() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.issued++
	return token(w.issued)
}

// entra is the authority: discovery (OpenID Connect Discovery 1.0) and tokens.
func (w *world) entra(rw http.ResponseWriter, r *http.Request) {
	base := "https://" + r.Host
	switch {
	case r.URL.Path == "/common/discovery/instance":
		reply(rw, 200, map[string]any{"tenant_discovery_endpoint": base + "/" + tenant + "/v2.0/.well-known/openid-configuration", "api-version": "1.1",
			"metadata": []any{map[string]any{"preferred_network": r.Host, "preferred_cache": r.Host, "aliases": []string{r.Host}}}})
	case strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration"):
		reply(rw, 200, map[string]any{"issuer": base + "/" + tenant + "/v2.0", "authorization_endpoint": base + "/" + tenant + "/oauth2/v2.0/authorize",
			"token_endpoint": base + "/" + tenant + "/oauth2/v2.0/token"})
	case w.answer != nil:
		w.answer(rw, r)
	default:
		w.issue(rw, r)
	}
}

// issue answers a request with client credentials (RFC 6749 section 4.4, RFC 7523 section 2.2).
func (w *world) issue(rw http.ResponseWriter, r *http.Request) {
	form := func(name string) string { return r.PostFormValue(name) }
	proof := "no"
	switch {
	case form("client_secret") == "s3cret-canary":
		proof = "secret"
	case form("client_assertion") == identity:
		proof = "assertion"
	case strings.Contains(form("client_assertion"), "."):
		claims, _ := base64.RawURLEncoding.DecodeString(strings.Split(form("client_assertion"), ".")[1])
		if strings.Contains(string(claims), form("client_id")) {
			proof = "certificate"
		}
	}
	w.note("%s%s %s %s %s", r.Host, r.URL.Path, form("client_id"), proof, form("scope"))
	if proof == "no" || r.URL.Path != "/"+tenant+"/oauth2/v2.0/token" || form("grant_type") != "client_credentials" {
		reply(rw, 401, map[string]any{"error": "invalid_client", "error_description": "AADSTS7000215: not " + form("client_secret") + form("client_assertion")})
		return
	}
	reply(rw, 200, map[string]any{"token_type": "Bearer", "expires_in": 3600, "access_token": w.next()})
}

func (w *world) runner(rw http.ResponseWriter, r *http.Request) {
	w.note("runner %s", r.URL)
	if r.Header.Get("Authorization") != "Bearer runner-canary" {
		rw.WriteHeader(http.StatusUnauthorized)
		return
	}
	reply(rw, 200, map[string]any{"count": 1, "value": identity})
}

func reply(rw http.ResponseWriter, status int, body any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	json.NewEncoder(rw).Encode(body)
}

func (w *world) lookup(name string) (string, bool) { v, ok := w.env[name]; return v, ok }

func (w *world) provider() *azure.Provider { return azure.New(w.clock.Now, w.lookup) }

func (w *world) fetch(login source.LoginFunc, g *source.GitRepository) logintest.Run {
	w.t.Helper()
	run := logintest.Reconcile(w.t, g, w.secrets, login)
	if strings.Contains(run.Texts, "canary") || strings.Contains(run.Texts, "eyJ") {
		w.t.Errorf("a secret shows: %s", run.Texts)
	}
	return run
}

// application returns the variables of an application and others.
func application(more ...string) []string {
	return append([]string{"AZURE_TENANT_ID", tenant, "AZURE_CLIENT_ID", "app"}, more...)
}

func job() []string {
	return []string{"ACTIONS_ID_TOKEN_REQUEST_URL", "https://runner.example/token?api-version=2.0", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "runner-canary"}
}

// certificate writes a certificate and its key.
func certificate(t *testing.T, key any, public any) string {
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "app"}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, public, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))+string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}

func write(t *testing.T, text string) string {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
