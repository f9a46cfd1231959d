package azure_test

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/source/login/azure"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

// A world has Azure DevOps and the authority of Entra.
type world struct{ *logintest.World }

func newWorld(t *testing.T, vars ...string) *world {
	w := &world{logintest.NewWorld(t, vars...)}
	names := []string{"dev.azure.com", "old.visualstudio.com"}
	git := logintest.Serve(t, w.CA, "org/project/_git/app", logintest.Repo(t), w.allow, names...)
	w.Name(logintest.Host(git.URL), names...)
	w.Serve(w.entra, "login.microsoftonline.com", "login.microsoftonline.us", "login.chinacloudapi.cn")
	return w
}

func token(n int) string { return fmt.Sprintf("azure-canary-%d", n) }

func (w *world) allow(r *http.Request) bool {
	n := w.Valid()
	return n > 0 && r.Header.Get("Authorization") == "Bearer "+token(n)
}

func (w *world) next() string { return token(w.Next()) }

// entra is the authority: discovery (OpenID Connect Discovery 1.0) and tokens.
func (w *world) entra(rw http.ResponseWriter, r *http.Request) {
	base := "https://" + r.Host
	switch {
	case r.URL.Path == "/common/discovery/instance":
		logintest.Reply(rw, 200, map[string]any{"tenant_discovery_endpoint": base + "/" + tenant + "/v2.0/.well-known/openid-configuration", "api-version": "1.1",
			"metadata": []any{map[string]any{"preferred_network": r.Host, "preferred_cache": r.Host, "aliases": []string{r.Host}}}})
	case strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration"):
		logintest.Reply(rw, 200, map[string]any{"issuer": base + "/" + tenant + "/v2.0", "authorization_endpoint": base + "/" + tenant + "/oauth2/v2.0/authorize",
			"token_endpoint": base + "/" + tenant + "/oauth2/v2.0/token"})
	case !w.Instead(rw, r):
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

func (w *world) provider() *azure.Provider { return azure.New(w.Clock.Now, w.Lookup) }

// application returns the variables of an application and others.
func application(more ...string) []string {
	return append([]string{"AZURE_TENANT_ID", tenant, "AZURE_CLIENT_ID", "app"}, more...)
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
	return logintest.File(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))+string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}
