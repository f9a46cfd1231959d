package azure_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

// TestServiceAccount logs in as service accounts, whatever identity the environment gives
// the program.
func TestServiceAccount(t *testing.T) {
	const tenantKey, clientKey, audience = "azure.workload.identity/tenant-id", "azure.workload.identity/client-id", "account api://AzureADTokenExchange"
	both := []string{tenantKey, tenant, clientKey, "app"}
	const at = "login.microsoftonline.com/" + tenant + "/oauth2/v2.0/token app assertion"
	for name, c := range map[string]struct {
		annotations []string
		url         string
		asked       []string
		say         string // of the error
	}{
		"repository":     {both, repository, []string{audience, at}, ""},
		"account":        {both, "azblob://account.blob.core.windows.net/container", []string{audience, at}, ""},
		"no tenant":      {both[2:], repository, nil, "service account default/robot: |annotation " + tenantKey + ": want"},
		"no application": {both[:2], repository, nil, "annotation " + clientKey + ": want"},
		"path as tenant": {[]string{tenantKey, "../x", clientKey, "app"}, repository, nil, "annotation " + tenantKey + ": want"},
		"another cloud":  {both, "azblob://account.blob.core.chinacloudapi.cn/container", nil, "another cloud|AZURE_AUTHORITY_HOST"},
		"refused":        {both, repository, []string{audience}, "status 401|check the annotations of service account default/robot"},
		"no token of it": {both, repository, []string{audience}, "tokens of default/robot are forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newServices(t, "AZURE_TENANT_ID", "other", "AZURE_CLIENT_ID", "other", "AZURE_CLIENT_SECRET", "s3cret-canary")
			w.Revoked = name == "no token of it"
			if name == "refused" {
				w.SetAnswer(func(rw http.ResponseWriter, r *http.Request) {
					logintest.Reply(rw, 401, map[string]any{"error": "invalid_client", "error_description": "AADSTS70021: not " + r.PostFormValue("client_assertion")})
				})
			}
			p := w.provider()
			got, err := w.LogIn(p.Login, "azure", c.url, w.Account(c.annotations...))
			if c.say != "" {
				logintest.Run{Reason: "x", Err: err}.RequireFailure(t, "x", c.say)
			} else if err != nil || got.Token != token(1) {
				t.Fatalf("%+v, %v", got, err)
			}
			hasPrefix := func(got, want string) bool { return strings.HasPrefix(got, want) }
			if !slices.EqualFunc(w.Requests, c.asked, hasPrefix) {
				t.Errorf("asked %q, want %q", w.Requests, c.asked)
			}
			if c.say != "" {
				return
			}
			for i, id := range []string{"app", "app2", ""} {
				want := []string{token(1), token(2), token(3)}[i]
				login := func() (string, error) {
					got, err := w.LogIn(p.Login, "azure", c.url, w.Account(tenantKey, tenant, clientKey, id))
					return got.Token, err
				}
				if id == "" { // the program itself, which does not belong to that tenant
					login = func() (string, error) {
						w.Env["AZURE_TENANT_ID"] = tenant
						got, err := p.Login(t.Context(), w.Request("azure", c.url))
						return got.Token, err
					}
				}
				if got, err := login(); err != nil || got != want {
					t.Errorf("%q got %s, %v, want %s", id, got, err, want)
				}
			}
			w.RequireTunnels("")
		})
	}
}
