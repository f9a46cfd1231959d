package azure_test

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

const (
	acr        = "oci://acme.azurecr.io/acme/app"
	registries = "https://containerregistry.azure.net/.default"
)

// registryServices are the services of a login and a registry, under the names of two
// clouds. The registry exchanges tokens of Entra for tokens that its token service accepts.
type registryServices struct {
	*services
	exchangeHandler http.HandlerFunc // in place of the exchange
	life            time.Duration    // of the registry's tokens
}

// refresh returns the token that the registry issues. Its claims contain the expiry.
func (w *registryServices) refresh() string {
	claims := fmt.Sprintf(`{"aud":"acme.azurecr.io","exp":%d,"sub":"canary"}`, w.Clock.Now().Add(w.life).Unix())
	return "eyJhbGciOiJSUzI1NiJ9." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".canary-refresh"
}

func newRegistryServices(t *testing.T, vars ...string) *registryServices {
	w := &registryServices{services: newServices(t, vars...), life: 3 * time.Hour}
	for _, name := range []string{"acme.azurecr.io", "acme.azurecr.cn", "acme.azurecr.us"} {
		w.Name(w.registry(name), name)
	}
	return w
}

// registry runs a registry at host, which serves the token exchange and the pulls.
func (w *registryServices) registry(host string) string {
	inner := logintest.Registry(w.T, testenv.RegistryConfig{
		Username: "00000000-0000-0000-0000-000000000000", Password: w.refresh(),
		Bearer: &testenv.Bearer{Realm: "https://" + host + "/token", Service: host},
	}, "acme/app")
	base, err := url.Parse(inner.Base)
	must(w.T, err)
	pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(base) }}
	return logintest.ServeTLS(w.T, w.CA, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/oauth2/exchange" {
			w.exchange(rw, r)
			return
		}
		pass.ServeHTTP(rw, r)
	}, host)
}

// exchange answers POST /oauth2/exchange.
func (w *registryServices) exchange(rw http.ResponseWriter, r *http.Request) {
	token := r.PostFormValue("access_token")
	w.Note("exchange %s %s %s %s", r.Method, r.Host, r.PostFormValue("grant_type"), r.PostFormValue("service"))
	n := w.Valid()
	known := n > 0 && token == fmt.Sprintf("azure-canary-%d", n)
	switch {
	case w.exchangeHandler != nil:
		w.exchangeHandler(rw, r)
	case !known || r.PostFormValue("service") != r.Host || r.PostFormValue("grant_type") != "access_token":
		logintest.Reply(rw, 401, map[string]any{"errors": []any{map[string]any{"code": "UNAUTHORIZED", "message": "authentication required, not " + token}}})
	default:
		logintest.Reply(rw, 200, map[string]any{"refresh_token": w.refresh()})
	}
}

func TestPull(t *testing.T) {
	secret := slices.Clip(applicationEnv("AZURE_CLIENT_SECRET", "s3cret-canary"))
	for name, c := range map[string]struct {
		url, authority string
		vars           []string
	}{
		"secret":      {acr, "login.microsoftonline.com", secret},
		"job":         {acr, "login.microsoftonline.com", applicationEnv(logintest.Job()...)},
		"China":       {"oci://acme.azurecr.cn/acme/app", "login.chinacloudapi.cn", append(secret, "AZURE_AUTHORITY_HOST", "https://login.chinacloudapi.cn/")},
		"government":  {"oci://acme.azurecr.us/acme/app", "login.microsoftonline.us", append(secret, "AZURE_AUTHORITY_HOST", "https://login.microsoftonline.us/")},
		"environment": {acr, "login.microsoftonline.us", append(secret, "AZURE_AUTHORITY_HOST", "https://login.microsoftonline.us/")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRegistryServices(t, c.vars...)
			run := w.Pull(w.provider().Login, logintest.Artifact("azure", c.url))
			if run.Err != nil {
				t.Fatal(run.Err)
			}
			requests, host := w.RequestsContaining(c.authority), strings.Split(c.url, "/")[2]
			if len(requests) != 1 || !strings.Contains(requests[0], registries) || w.Issued != 1 {
				t.Errorf("requests %q", w.Requests)
			}
			if got := w.RequestsContaining("exchange"); !slices.Equal(got, []string{"exchange POST " + host + " access_token " + host}) {
				t.Errorf("requests %q", got)
			}
			if !slices.Contains(run.Secrets, w.refresh()) {
				t.Error("the token is not kept secret")
			}
		})
	}
}

// TestManagedIdentityOfAnotherCloud: a managed identity belongs to the machine's cloud,
// whichever it is.
func TestManagedIdentityOfAnotherCloud(t *testing.T) {
	w := newRegistryServices(t, "AZURE_CLIENT_ID", rand.Text()) // the SDK caches its tokens by this id
	t.Setenv("IDENTITY_HEADER", "header-canary")
	t.Setenv("IDENTITY_ENDPOINT", logintest.ServeLoopback(t, func(rw http.ResponseWriter, r *http.Request) {
		logintest.Reply(rw, 200, map[string]any{"access_token": w.next(), "token_type": "Bearer", "resource": r.URL.Query().Get("resource"),
			"expires_on": fmt.Sprint(time.Now().Add(time.Hour).Unix())})
	}))
	run := w.Pull(w.provider().Login, logintest.Artifact("azure", "oci://acme.azurecr.cn/acme/app"))
	if run.Err != nil || len(w.RequestsContaining("exchange")) != 1 || len(w.RequestsContaining("login.")) > 0 {
		t.Errorf("%v, asked %q", run.Err, w.Requests)
	}
}

// TestRefusedPasswordsAreForgotten drops a token that the registry issued and then refuses.
func TestRefusedPasswordsAreForgotten(t *testing.T) {
	w := newRegistryServices(t, applicationEnv("AZURE_CLIENT_SECRET", "s3cret-canary")...)
	login := w.provider().Login
	w.exchangeHandler = func(rw http.ResponseWriter, _ *http.Request) {
		logintest.Reply(rw, 200, map[string]any{"refresh_token": "stale-canary"})
	}
	if run := w.Pull(login, logintest.Artifact("azure", acr)); !errors.Is(run.Err, fs.ErrPermission) {
		t.Error(run.Err)
	}
	w.exchangeHandler = nil
	if run := w.Pull(login, logintest.Artifact("azure", acr)); run.Err != nil || w.Issued != 2 {
		t.Errorf("after a refusal: %v, %d tokens", run.Err, w.Issued)
	}
}

func TestPullFailures(t *testing.T) {
	const provider, auth = "InvalidProviderConfiguration", "AuthenticationFailed"
	secret := slices.Clip(applicationEnv("AZURE_CLIENT_SECRET", "s3cret-canary"))
	for name, c := range map[string]struct {
		vars   []string
		trade  http.HandlerFunc
		change func(*source.OCIRepositorySpec)
		reason string
		say    string
	}{
		"wrong secret":           {applicationEnv("AZURE_CLIENT_SECRET", "other-canary"), nil, nil, provider, "AZURE_CLIENT_SECRET: status 401: invalid_client"},
		"not of the team":        {secret, logintest.Answers(401, `{"errors":[{"code":"UNAUTHORIZED","message":"no role \u001b[0m azure-canary-1"}]}`), nil, provider, "POST https://acme.azurecr.io/oauth2/exchange: status 401 (no role|check that the identity"},
		"message is odd":         {secret, logintest.Answers(403, `{"errors":[7],"error":{"message":7}}`), nil, provider, "status 403"},
		"throttled":              {secret, logintest.Answers(429, `{"errors":[]}`), nil, auth, "status 429"},
		"fails":                  {secret, logintest.Answers(503, `sorry`), nil, auth, "status 503"},
		"redirected":             {secret, logintest.Redirects("/oauth2/exchange?again"), nil, auth, "status 307"},
		"not JSON":               {secret, logintest.Answers(200, `<html>`), nil, auth, "the answer is invalid"},
		"no token":               {secret, logintest.Answers(200, `{}`), nil, auth, "no token that can be sent"},
		"token that cannot pass": {secret, logintest.Answers(200, `{"refresh_token":"can\r\nary"}`), nil, auth, "no token that can be sent"},
		"huge answer":            {secret, logintest.Answers(200, `{"refresh_token":"`+strings.Repeat("x", 4<<20)), nil, auth, "larger than 1048576 bytes"},
		"China":                  {secret, nil, func(s *source.OCIRepositorySpec) { s.URL = "oci://acme.azurecr.cn/app" }, provider, "AZURE_CLIENT_SECRET: the registry is of another cloud|set AZURE_AUTHORITY_HOST to https://login.chinacloudapi.cn/"},
		"job, for government":    {applicationEnv(logintest.Job()...), nil, func(s *source.OCIRepositorySpec) { s.URL = "oci://acme.azurecr.us/app" }, provider, "identity token of the job: the registry is of another cloud"},
		"without TLS":            {secret, nil, func(s *source.OCIRepositorySpec) { s.Insecure = true }, provider, "spec.insecure"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRegistryServices(t, c.vars...)
			w.exchangeHandler = c.trade
			o := logintest.Artifact("azure", acr)
			if c.change != nil {
				c.change(&o.Spec)
			}
			run := w.Pull(w.provider().Login, o)
			run.RequireFailure(t, c.reason, c.say)
			if n := len(w.RequestsContaining("exchange")); n > 1 || c.change != nil && len(w.Requests) > 0 {
				t.Errorf("asked %q", w.Requests)
			}
		})
	}
}
