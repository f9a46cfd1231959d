package azure_test

import (
	"context"
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

// A registryWorld is a world with a registry, under the names of two clouds. It
// exchanges tokens of Entra for those that its token service accepts.
type registryWorld struct {
	*world
	trade http.HandlerFunc // in place of the exchange
	life  time.Duration    // of what is exchanged
}

// refresh is what the registry issues; its claims say when it ends.
func (w *registryWorld) refresh() string {
	claims := fmt.Sprintf(`{"aud":"acme.azurecr.io","exp":%d,"sub":"canary"}`, w.clock.Now().Add(w.life).Unix())
	return "eyJhbGciOiJSUzI1NiJ9." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".canary-refresh"
}

func newRegistryWorld(t *testing.T, vars ...string) *registryWorld {
	ca := testenv.SystemCA(t)
	w := &registryWorld{world: &world{t: t, env: map[string]string{}, clock: logintest.NewClock(time.Now())}, life: 3 * time.Hour}
	for i := 0; i < len(vars); i += 2 {
		w.env[vars[i]] = vars[i+1]
	}
	names := []string{"acme.azurecr.io", "acme.azurecr.cn", "acme.azurecr.us"}
	entra := logintest.ServeTLS(t, ca, w.entra, "login.microsoftonline.com", "login.microsoftonline.us", "login.chinacloudapi.cn")
	runner := logintest.ServeTLS(t, ca, w.runner, "runner.example")
	hosts := map[string]string{"login.microsoftonline.com:443": entra, "login.microsoftonline.us:443": entra, "login.chinacloudapi.cn:443": entra, "runner.example:443": runner}
	for _, name := range names {
		hosts[name+":443"] = w.registry(ca, name)
	}
	w.proxy = testenv.ServeProxy(t, testenv.Proxy{Hosts: hosts})
	w.secrets = logintest.Secrets{"proxy": {"address": w.proxy.URL}, "ca": {"ca.crt": string(ca.PEM())}}
	return w
}

// registry runs a registry at host: what a client exchanges, and what it pulls, are on one.
func (w *registryWorld) registry(ca *testenv.CA, host string) string {
	inner := logintest.Registry(w.t, testenv.RegistryConfig{
		Username: "00000000-0000-0000-0000-000000000000", Password: w.refresh(),
		Bearer: &testenv.Bearer{Realm: "https://" + host + "/token", Service: host},
	}, "acme/app")
	base, err := url.Parse(inner.Base)
	if err != nil {
		w.t.Fatal(err)
	}
	pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(base) }}
	return logintest.ServeTLS(w.t, ca, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/oauth2/exchange" {
			w.exchange(rw, r)
			return
		}
		pass.ServeHTTP(rw, r)
	}, host)
}

// exchange answers POST /oauth2/exchange.
func (w *registryWorld) exchange(rw http.ResponseWriter, r *http.Request) {
	token := r.PostFormValue("access_token")
	w.note("exchange %s %s %s %s", r.Method, r.Host, r.PostFormValue("grant_type"), r.PostFormValue("service"))
	w.mu.Lock()
	known := w.issued > 0 && token == fmt.Sprintf("azure-canary-%d", w.issued) && !w.revoked
	w.mu.Unlock()
	switch {
	case w.trade != nil:
		w.trade(rw, r)
	case !known || r.PostFormValue("service") != r.Host || r.PostFormValue("grant_type") != "access_token":
		reply(rw, 401, map[string]any{"errors": []any{map[string]any{"code": "UNAUTHORIZED", "message": "authentication required, not " + token}}})
	default:
		reply(rw, 200, map[string]any{"refresh_token": w.refresh()})
	}
}

func (w *registryWorld) pull(login source.LoginFunc, o *source.OCIRepository) logintest.Run {
	w.t.Helper()
	run := logintest.Pull(w.t, o, w.secrets, login)
	if strings.Contains(run.Texts, "canary") || strings.Contains(run.Texts, "eyJ") {
		w.t.Errorf("a secret shows: %s", run.Texts)
	}
	return run
}

// at returns what was asked of a host.
func (w *registryWorld) at(host string) (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.asked {
		if strings.Contains(a, host) {
			all = append(all, a)
		}
	}
	return all
}

func TestPull(t *testing.T) {
	secret := slices.Clip(application("AZURE_CLIENT_SECRET", "s3cret-canary"))
	for name, c := range map[string]struct {
		url, authority string
		vars           []string
	}{
		"secret":      {acr, "login.microsoftonline.com", secret},
		"job":         {acr, "login.microsoftonline.com", application(job()...)},
		"China":       {"oci://acme.azurecr.cn/acme/app", "login.chinacloudapi.cn", append(secret, "AZURE_AUTHORITY_HOST", "https://login.chinacloudapi.cn/")},
		"government":  {"oci://acme.azurecr.us/acme/app", "login.microsoftonline.us", append(secret, "AZURE_AUTHORITY_HOST", "https://login.microsoftonline.us/")},
		"environment": {acr, "login.microsoftonline.us", append(secret, "AZURE_AUTHORITY_HOST", "https://login.microsoftonline.us/")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRegistryWorld(t, c.vars...)
			run := w.pull(w.provider().Login, logintest.Artifact("azure", c.url))
			if run.Err != nil {
				t.Fatal(run.Err)
			}
			asked, host := w.at(c.authority), strings.Split(c.url, "/")[2]
			if len(asked) != 1 || !strings.Contains(asked[0], registries) || w.issued != 1 {
				t.Errorf("asked %q", w.asked)
			}
			if got := w.at("exchange"); !slices.Equal(got, []string{"exchange POST " + host + " access_token " + host}) {
				t.Errorf("asked %q", got)
			}
			if !slices.Contains(run.Secrets, w.refresh()) {
				t.Error("the token is not kept secret")
			}
		})
	}
}

// A managed identity is of the machine's cloud, whatever that is.
func TestManagedIdentityOfAnotherCloud(t *testing.T) {
	w := newRegistryWorld(t, "AZURE_CLIENT_ID", rand.Text()) // the SDK keeps its tokens by that
	t.Setenv("IDENTITY_HEADER", "header-canary")
	t.Setenv("IDENTITY_ENDPOINT", serve(t, func(rw http.ResponseWriter, r *http.Request) {
		reply(rw, 200, map[string]any{"access_token": w.next(), "token_type": "Bearer", "resource": r.URL.Query().Get("resource"),
			"expires_on": fmt.Sprint(time.Now().Add(time.Hour).Unix())})
	}))
	run := w.pull(w.provider().Login, logintest.Artifact("azure", "oci://acme.azurecr.cn/acme/app"))
	if run.Err != nil || len(w.at("exchange")) != 1 || len(w.at("login.")) > 0 {
		t.Errorf("%v, asked %q", run.Err, w.asked)
	}
}

func TestPasswordsAreKept(t *testing.T) {
	w := newRegistryWorld(t, application("AZURE_CLIENT_SECRET", "s3cret-canary")...)
	login := w.provider().Login
	credential := func(u string) source.Credential {
		t.Helper()
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		c, err := login(t.Context(), source.LoginRequest{Provider: "azure", URL: parsed, Client: w.client()})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := credential(acr)
	if first.Username != "00000000-0000-0000-0000-000000000000" || first.Password != w.refresh() || first.Token != "" || first.Refresh != "" {
		t.Errorf("got %+v", first)
	}
	if life := first.Expires.Sub(w.clock.Now()); life < 3*time.Hour-time.Minute || life > 3*time.Hour {
		t.Errorf("expires after %s", life)
	}
	credential("oci://acme.azurecr.io/other")
	if n := len(w.at("exchange")); n != 1 || w.issued != 1 {
		t.Errorf("%d exchanges, %d tokens for two repositories", n, w.issued)
	}
	w.clock.Advance(49 * time.Minute) // of an hour of the token
	credential(acr)
	if n := len(w.at("exchange")); n != 1 || w.issued != 1 {
		t.Errorf("%d exchanges, %d tokens after 49 minutes", n, w.issued)
	}
	w.clock.Advance(11 * time.Minute)
	last := credential(acr)
	if n := len(w.at("exchange")); n != 2 || w.issued != 2 {
		t.Errorf("%d exchanges, %d tokens after an hour", n, w.issued)
	}
	last.Refused()
	if credential(acr); w.issued != 3 {
		t.Errorf("%d tokens after a refusal", w.issued)
	}
}

// What says nothing of its end is good as long as what it was exchanged for.
func TestOpaquePasswords(t *testing.T) {
	for _, refresh := range []string{"opaque-canary", "a.b.c", "a.e30.c", "a.eyJleHAiOi0xfQ.c", "a.eyJleHAiOiJ4In0.c"} {
		w := newRegistryWorld(t, application("AZURE_CLIENT_SECRET", "s3cret-canary")...)
		w.trade = func(rw http.ResponseWriter, _ *http.Request) {
			reply(rw, 200, map[string]any{"refresh_token": refresh})
		}
		u, _ := url.Parse(acr)
		c, err := w.provider().Login(t.Context(), source.LoginRequest{Provider: "azure", URL: u, Client: w.client()})
		if life := c.Expires.Sub(w.clock.Now()); err != nil || c.Password != refresh || life < 50*time.Minute || life > time.Hour+time.Minute {
			t.Errorf("%s: %+v, %v", refresh, c, err)
		}
	}
}

// client goes through the proxy.
func (w *registryWorld) client() *http.Client {
	c := &http.Client{Transport: &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return url.Parse(w.proxy.URL) }}}
	w.t.Cleanup(c.CloseIdleConnections)
	return c
}

// A registry that does not accept what it issued makes the program forget it.
func TestRefusedPasswordsAreForgotten(t *testing.T) {
	w := newRegistryWorld(t, application("AZURE_CLIENT_SECRET", "s3cret-canary")...)
	login := w.provider().Login
	w.trade = func(rw http.ResponseWriter, _ *http.Request) {
		reply(rw, 200, map[string]any{"refresh_token": "stale-canary"})
	}
	if run := w.pull(login, logintest.Artifact("azure", acr)); !errors.Is(run.Err, fs.ErrPermission) {
		t.Error(run.Err)
	}
	w.trade = nil
	if run := w.pull(login, logintest.Artifact("azure", acr)); run.Err != nil || w.issued != 2 {
		t.Errorf("after a refusal: %v, %d tokens", run.Err, w.issued)
	}
}

func TestPullFailures(t *testing.T) {
	const provider, auth = "InvalidProviderConfiguration", "AuthenticationFailed"
	secret := slices.Clip(application("AZURE_CLIENT_SECRET", "s3cret-canary"))
	answer := func(status int, body string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(status)
			fmt.Fprint(rw, body)
		}
	}
	for name, c := range map[string]struct {
		vars   []string
		trade  http.HandlerFunc
		change func(*source.OCIRepositorySpec)
		reason string
		say    string
	}{
		"wrong secret":    {application("AZURE_CLIENT_SECRET", "other-canary"), nil, nil, provider, "AZURE_CLIENT_SECRET: status 401: invalid_client"},
		"not of the team": {secret, answer(401, `{"errors":[{"code":"UNAUTHORIZED","message":"no role \u001b[0m azure-canary-1"}]}`), nil, provider, "POST https://acme.azurecr.io/oauth2/exchange: status 401 (no role|check that the identity"},
		"message is odd":  {secret, answer(403, `{"errors":[7],"error":{"message":7}}`), nil, provider, "status 403"},
		"throttled":       {secret, answer(429, `{"errors":[]}`), nil, auth, "status 429"},
		"fails":           {secret, answer(503, `sorry`), nil, auth, "status 503"},
		"redirected": {secret, func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "/oauth2/exchange?again", http.StatusTemporaryRedirect)
		}, nil, auth, "status 307"},
		"sent away": {secret, func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "https://acme.azurecr.us/oauth2/exchange", http.StatusTemporaryRedirect)
		}, nil, auth, "status 307"},
		"not JSON":               {secret, answer(200, `<html>`), nil, auth, "the answer is not what it should be"},
		"no token":               {secret, answer(200, `{}`), nil, auth, "no token that can be sent"},
		"token that cannot pass": {secret, answer(200, `{"refresh_token":"can\r\nary"}`), nil, auth, "no token that can be sent"},
		"huge answer":            {secret, answer(200, `{"refresh_token":"`+strings.Repeat("x", 4<<20)), nil, auth, "larger than 1048576 bytes"},
		"CA of the object":       {secret, nil, func(s *source.OCIRepositorySpec) { s.CertSecretRef = &source.LocalReference{Name: "ca"} }, provider, "spec.certSecretRef: ca.crt"},
		"China":                  {secret, nil, func(s *source.OCIRepositorySpec) { s.URL = "oci://acme.azurecr.cn/app" }, provider, "AZURE_CLIENT_SECRET: the registry is of another cloud|set AZURE_AUTHORITY_HOST to https://login.chinacloudapi.cn/"},
		"job, for government":    {application(job()...), nil, func(s *source.OCIRepositorySpec) { s.URL = "oci://acme.azurecr.us/app" }, provider, "identity token of the job: the registry is of another cloud"},
		"service account":        {secret, nil, func(s *source.OCIRepositorySpec) { s.ServiceAccountName = "robot" }, provider, "spec.serviceAccountName: only a cluster"},
		"without TLS":            {secret, nil, func(s *source.OCIRepositorySpec) { s.Insecure = true }, provider, "spec.insecure"},
		"stranger":               {secret, nil, func(s *source.OCIRepositorySpec) { s.URL = "oci://acme.azurecr.io.evil.example/app" }, provider, "oci://NAME.azurecr.io/REPOSITORY"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRegistryWorld(t, c.vars...)
			w.trade = c.trade
			o := logintest.Artifact("azure", acr)
			if c.change != nil {
				c.change(&o.Spec)
			}
			run := w.pull(w.provider().Login, o)
			if run.Err == nil || run.Reason != c.reason {
				t.Fatalf("%s, %v", run.Reason, run.Err)
			}
			for s := range strings.SplitSeq(c.say, "|") {
				if !strings.Contains(run.Err.Error(), s) {
					t.Errorf("%v: does not say %s", run.Err, s)
				}
			}
			if n := len(w.at("exchange")); n > 1 || c.change != nil && len(w.asked) > 0 {
				t.Errorf("asked %q", w.asked)
			}
		})
	}
}

func TestPullStall(t *testing.T) {
	w := newRegistryWorld(t, application("AZURE_CLIENT_SECRET", "s3cret-canary")...)
	ctx, cancel := context.WithCancelCause(t.Context())
	w.trade = logintest.Stall(func() { cancel(errors.New("given up")) })
	u, err := url.Parse(acr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.provider().Login(ctx, source.LoginRequest{Provider: "azure", URL: u, Client: w.client()}); err == nil || !strings.Contains(err.Error(), "given up") {
		t.Error(err)
	}
}
