package azure_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/azure"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

var contents = map[string]string{"a.txt": "a", "dir/b": "b"}

// start runs an account whose container content holds contents.
func start(t *testing.T, c testenv.AzblobConfig) *testenv.Azblob {
	s := testenv.StartAzblob(t, c)
	s.Container("content").Replace(contents)
	return s
}

// Each form of a Secret is what the account wants, and wins over those behind it.
func TestForms(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, both := application(t)
	app := testenv.AzblobConfig{CA: ca, Tenant: tenant, Client: "app"}
	bySecret, byCertificate := app, app
	bySecret.Secret, byCertificate.Certificate = password, cert
	for name, c := range map[string]struct {
		config   testenv.AzblobConfig
		secret   []string
		endpoint string // added to
		sign     bool
	}{
		"key":                        {testenv.AzblobConfig{Key: key}, []string{"accountKey", key}, "", true},
		"key, line break":            {testenv.AzblobConfig{Key: key}, []string{"accountKey", key + "\n"}, "/", true},
		"key before signature":       {testenv.AzblobConfig{Key: key}, []string{"accountKey", key, "sasKey", sas}, "", true},
		"key before URL":             {testenv.AzblobConfig{Key: key}, []string{"accountKey", key}, "?" + sas, true},
		"signature":                  {testenv.AzblobConfig{SAS: sas}, []string{"sasKey", sas}, "", false},
		"signature, question mark":   {testenv.AzblobConfig{SAS: sas}, []string{"sasKey", "?" + sas}, "", false},
		"signature in the URL":       {testenv.AzblobConfig{SAS: sas}, nil, "/?" + sas, false},
		"signature before URL":       {testenv.AzblobConfig{SAS: sas}, []string{"sasKey", sas}, "?sv=2020-01-01&sig=other", false},
		"application":                {bySecret, []string{"tenantId", tenant, "clientId", "app", "clientSecret", password, "authorityHost", ""}, "", false},
		"application before key":     {bySecret, []string{"tenantId", tenant, "clientId", "app", "clientSecret", password, "authorityHost", "", "accountKey", key, "sasKey", sas}, "", false},
		"secret before certificate":  {bySecret, []string{"tenantId", tenant, "clientId", "app", "clientSecret", password, "authorityHost", "", "clientCertificate", "none"}, "", false},
		"certificate":                {byCertificate, []string{"tenantId", tenant, "clientId", "app", "clientCertificate", string(both), "authorityHost", ""}, "", false},
		"certificate with its chain": {byCertificate, []string{"tenantId", tenant, "clientId", "app", "clientCertificate", string(both), "clientCertificateSendChain", "true", "authorityHost", ""}, "", false},
		"nobody":                     {testenv.AzblobConfig{}, nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, c.config)
			for i, v := range c.secret {
				if v == "authorityHost" {
					c.secret[i+1] = s.Base + "/"
				}
			}
			a := trusting(access(s, c.secret...), ca)
			a.Spec.Endpoint += c.endpoint
			got, err := read(t, connect(t, a))
			if err != nil || !maps.Equal(got, contents) {
				t.Fatalf("%v, %v", got, err)
			}
			for _, q := range s.Requests() {
				if signed := strings.HasPrefix(q.Authorization, "SharedKey acme:"); q.Phase == testenv.ListObjects && signed != c.sign {
					t.Errorf("Authorization: %.20s, %s", q.Authorization, q.Path)
				}
				if name == "certificate with its chain" && q.Phase == testenv.GetToken && !hasChain(t, q.Body) {
					t.Error("the chain was not sent")
				}
			}
			if n := s.Count(testenv.GetToken); n > 1 {
				t.Errorf("%d tokens", n)
			}
		})
	}
}

// hasChain reports whether an assertion in a request has a chain of certificates.
func hasChain(t *testing.T, body []byte) bool {
	_, assertion, _ := strings.Cut(string(body), "client_assertion=")
	head, _, _ := strings.Cut(assertion, ".")
	text, err := base64.RawURLEncoding.DecodeString(head)
	var fields map[string]any
	if err != nil || json.Unmarshal(text, &fields) != nil {
		t.Fatalf("%q, %v", text, err)
	}
	return fields["x5c"] != nil
}

// The managed identity of an id is asked for at the service of the machine, directly.
func TestManagedIdentity(t *testing.T) {
	s := start(t, testenv.AzblobConfig{Bearer: []string{"managed-cAnArY"}})
	m := newMachine(t, "managed-cAnArY")
	a := access(s, "clientId", m.id)
	a.Way.Proxy, a.Spec.Endpoint = nobodys, "https://acme.blob.core.windows.net"
	d, err := azure.Connect(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	if m.asked != 1 {
		t.Errorf("asked %d times", m.asked)
	}
	_, err = keys(t.Context(), d, "")
	if err == nil || !strings.Contains(err.Error(), "no way") { // the account is behind the proxy
		t.Error(err)
	}
	got, err := read(t, connect(t, access(s, "clientId", m.id)))
	if err != nil || !maps.Equal(got, contents) {
		t.Errorf("%v, %v", got, err)
	}
}

// Who writes an object gets no token of the machine by naming a server of his
// own, nor by a certificate or a proxy.
func TestManagedIdentityElsewhere(t *testing.T) {
	m := newMachine(t, "managed-cAnArY")
	ca := testenv.NewCA(t)
	const azures = "https://acme.blob.core.windows.net"
	for name, edit := range map[string]func(*bucket.Access){
		"another host":       func(a *bucket.Access) { a.Spec.Endpoint = "https://store.example/acme" },
		"host that looks it": func(a *bucket.Access) { a.Spec.Endpoint = azures + ".store.example" },
		"path that looks it": func(a *bucket.Access) { a.Spec.Endpoint = "https://store.example/acme.blob.core.windows.net" },
		"in the clear":       func(a *bucket.Access) { a.Spec.Endpoint = "http://acme.blob.core.windows.net" },
		"own CA":             func(a *bucket.Access) { trusting(a, ca).Spec.Endpoint = azures },
		"by a proxy":         func(a *bucket.Access) { a.Way.Proxy = nobodys },
	} {
		a := access(start(t, testenv.AzblobConfig{}), "clientId", m.id)
		a.Spec.Insecure = true
		edit(a)
		_, err := azure.Connect(t.Context(), a)
		step, ok := errors.AsType[*source.StepError](err)
		if !ok || step.Reason != "InvalidProviderConfiguration" || !strings.Contains(err.Error(), "spec.secretRef: a ") || m.asked > 0 {
			t.Errorf("%s: %v, asked %d times", name, err, m.asked)
		}
	}
}

// A Secret that cannot be used says which key is wrong, and no value.
func TestBadSecrets(t *testing.T) {
	app := []string{"tenantId", tenant, "clientId", "app"}
	for name, c := range map[string]struct {
		secret []string
		say    string
	}{
		"empty":                          {[]string{"other", "cAnArY"}, "key accountKey is missing"},
		"client secret alone":            {[]string{"clientSecret", password}, "key tenantId is missing: clientSecret needs it"},
		"client secret without tenant":   {[]string{"clientSecret", password, "clientId", "app"}, "key tenantId is missing: clientSecret needs it"},
		"client secret without id":       {[]string{"clientSecret", password, "tenantId", tenant}, "key clientId is missing: clientSecret needs it"},
		"certificate without tenant":     {[]string{"clientCertificate", password, "clientId", "app"}, "key tenantId is missing: clientCertificate needs it"},
		"application without proof":      {app, "key clientSecret is missing: tenantId needs it, or clientCertificate"},
		"tenant alone":                   {[]string{"tenantId", tenant, "accountKey", key}, "key clientId is missing: tenantId needs it"},
		"password without certificate":   {append(app, "clientSecret", password, "clientCertificatePassword", password), "key clientCertificate is missing"},
		"certificate that is none":       {append(app, "clientCertificate", password), "key clientCertificate cannot be used"},
		"certificate, empty PEM":         {append(app, "clientCertificate", "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), "key clientCertificate cannot be used"},
		"tenant that is none":            {[]string{"tenantId", "a/b", "clientId", "app", "clientSecret", password}, "invalid tenantID"},
		"key that is not base64":         {[]string{"accountKey", "cAnArY!"}, "key accountKey is not base64"},
		"signature without sig":          {[]string{"sasKey", "cAnArY"}, "key sasKey has no sig"},
		"signature that is a URL":        {[]string{"sasKey", "https://acme.example/?" + sas}, "is no shared access signature"},
		"signature, bad escapes":         {[]string{"sasKey", "sig=cAnArY%zz"}, "key sasKey is not the query of a URL"},
		"signature, line break":          {[]string{"sasKey", sas + "\n"}, "key sasKey ends in a line break"},
		"signature, own parameters":      {[]string{"sasKey", sas + "&Snapshot=2020"}, "Snapshot, which is no part of a shared access signature"},
		"authority in the clear":         {append(app, "clientSecret", password, "authorityHost", "http://login.example/"), "key authorityHost is not the URL of an authority"},
		"authority with credentials":     {append(app, "clientSecret", password, "authorityHost", "https://cAnArY@login.example/"), "key authorityHost is not the URL of an authority"},
		"authority that is no URL":       {append(app, "clientSecret", password, "authorityHost", "login.example"), "key authorityHost is not the URL of an authority"},
		"control character in client id": {[]string{"clientId", "a\nb"}, "key clientId has a control character"},
	} {
		t.Run(name, func(t *testing.T) {
			s := testenv.StartAzblob(t, testenv.AzblobConfig{CA: testenv.NewCA(t)})
			_, err := azure.Connect(t.Context(), access(s, c.secret...))
			step, ok := errors.AsType[*source.StepError](err)
			if !ok || step.Reason != "AuthenticationFailed" || !strings.Contains(err.Error(), c.say) || !strings.Contains(err.Error(), "spec.secretRef") {
				t.Errorf("%v", err)
			}
			clean(t, err)
			if s.Count() > 0 {
				t.Errorf("asked %+v", s.Requests())
			}
		})
	}
}

// A token is shown neither in the clear nor by redirects, and not to whom the authority does not know.
func TestTokenRefused(t *testing.T) {
	ca := testenv.NewCA(t)
	config := testenv.AzblobConfig{CA: ca, Tenant: tenant, Client: "app", Secret: password}
	good := []string{"tenantId", tenant, "clientId", "app", "clientSecret", password}
	for name, c := range map[string]struct {
		secret []string
		defect *testenv.Defect
		say    string
	}{
		"wrong secret":      {[]string{"tenantId", tenant, "clientId", "app", "clientSecret", "other-cAnArY"}, nil, "401 Unauthorized: invalid_client: AADSTS7000215: Invalid client secret provided"},
		"unknown client":    {[]string{"tenantId", tenant, "clientId", "other", "clientSecret", password}, nil, "unauthorized_client"},
		"unknown tenant":    {[]string{"tenantId", "other", "clientId", "app", "clientSecret", password}, nil, "get a token"},
		"authority fails":   {good, &testenv.Defect{Status: 503, Header: map[string][]string{"Retry-After": {"0"}}}, "get a token"},
		"redirected":        {good, &testenv.Defect{Phase: testenv.GetToken, Status: 307, Header: map[string][]string{"Location": {"https://other.example/token"}}}, "get a token"},
		"repeats secrets":   {good, &testenv.Defect{Phase: testenv.GetToken, Do: testenv.Leak, Status: 400}, "get a token"},
		"no JSON":           {good, &testenv.Defect{Phase: testenv.GetToken, Status: 200, Body: "<html>"}, "get a token"},
		"no token":          {good, &testenv.Defect{Phase: testenv.GetToken, Status: 200, Body: "{}"}, "get a token"},
		"hangs up":          {good, &testenv.Defect{Phase: testenv.GetToken, Do: testenv.Cut, After: -1}, "get a token"},
		"odd token":         {good, &testenv.Defect{Phase: testenv.GetToken, Status: 200, Body: `{"access_token":"a\r\nb","expires_in":3600,"token_type":"Bearer"}`}, "no token that can be sent"},
		"endless discovery": {good, &testenv.Defect{Phase: testenv.FindAuthority, Do: testenv.Swell, After: 4 << 20}, "body too large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, config)
			s.Break(c.defect)
			_, err := azure.Connect(t.Context(), trusting(access(s, append(c.secret, "authorityHost", s.Base)...), ca))
			step, ok := errors.AsType[*source.StepError](err)
			if !ok || step.Reason != "AuthenticationFailed" || !strings.Contains(err.Error(), c.say) {
				t.Errorf("%v", err)
			}
			clean(t, err)
			if s.Count(testenv.ListObjects) > 0 {
				t.Errorf("asked %v", s.Requests())
			}
		})
	}
	s := start(t, config)
	heard := false
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { heard = true }))
	t.Cleanup(thief.Close)
	s.Break(&testenv.Defect{Phase: testenv.FindAuthority, Status: 200, Body: fmt.Sprintf(`{"issuer":"%s/","authorization_endpoint":"%[1]s/a","token_endpoint":"%s/token"}`, s.Base, thief.URL)})
	_, err := azure.Connect(t.Context(), trusting(access(s, append(good, "authorityHost", s.Base)...), ca))
	if err == nil || !strings.Contains(err.Error(), "without TLS") || heard {
		t.Errorf("the secret is sent in the clear: %v, %v", heard, err)
	}
	s = start(t, testenv.AzblobConfig{})
	a := access(s, append(good, "authorityHost", "https://login.example/")...)
	a.Spec.Endpoint = "http://store.example/acme"
	if _, err := azure.Connect(t.Context(), a); err == nil || !strings.Contains(err.Error(), "a token is shown to servers with TLS only") {
		t.Errorf("in the clear: %v", err)
	}
}

var _ bucket.Provider = azure.Connect

// The challenge of an account has no say in what token it is shown, and breaks nothing.
func TestChallenge(t *testing.T) {
	ca := testenv.NewCA(t)
	for _, challenge := range []string{
		"Bearer authorization_uri=https://x resource_id=https://management.azure.com",
		`Bearer authorization_uri="https://login.example/t/oauth2/authorize" resource_id="https://graph.example"`,
		`Bearer error="insufficient_claims", claims="cAnArY"`,
		"Bearer", "", "Negotiate",
	} {
		s := start(t, testenv.AzblobConfig{CA: ca, Tenant: tenant, Client: "app", Secret: password})
		d := connect(t, trusting(access(s, "tenantId", tenant, "clientId", "app", "clientSecret", password, "authorityHost", s.Base), ca))
		s.Break(&testenv.Defect{Phase: testenv.ListObjects, Status: 401, Header: map[string][]string{"Www-Authenticate": {challenge}}})
		_, err := keys(t.Context(), d, "")
		if !errors.Is(err, fs.ErrPermission) || s.Count(testenv.GetToken) != 2 {
			t.Errorf("%s: %v, %d tokens", challenge, err, s.Count(testenv.GetToken))
		}
		clean(t, err)
		for _, q := range s.Requests() {
			if q.Phase == testenv.GetToken && (strings.Contains(string(q.Body), "management") || strings.Contains(string(q.Body), "graph")) {
				t.Errorf("%s: asked for %s", challenge, q.Body)
			}
		}
	}
}

// A token that ends or is refused while the container is read is issued again, once.
func TestTokenEnds(t *testing.T) {
	ca := testenv.NewCA(t)
	for name, c := range map[string]struct {
		uses     int
		lifetime time.Duration
		expire   bool
		tokens   int
		fails    bool
	}{
		"lasts":            {0, 0, false, 1, false},
		"ends early":       {2, 0, false, 2, false},
		"short":            {0, time.Minute, false, 1, false}, // which is used for 48 seconds
		"revoked":          {0, 0, true, 2, false},
		"never good":       {1, 0, false, 3, false},
		"refused for good": {-2, 0, true, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			config := testenv.AzblobConfig{CA: ca, Tenant: tenant, Client: "app", Secret: password, Uses: c.uses, Lifetime: c.lifetime}
			if c.fails {
				config.Uses = 1
			}
			s := start(t, config)
			d := connect(t, trusting(access(s, "tenantId", tenant, "clientId", "app", "clientSecret", password, "authorityHost", s.Base), ca))
			if c.expire {
				s.Expire()
			}
			if c.fails {
				s.Break(testenv.AzureFailure(401, "InvalidAuthenticationInfo", "no"))
				s.Break(&testenv.Defect{Phase: testenv.ListObjects, Status: 401})
			}
			got, err := read(t, d)
			if c.fails != (err != nil) || !c.fails && !maps.Equal(got, contents) || c.fails && !errors.Is(err, fs.ErrPermission) {
				t.Errorf("%v, %v", got, err)
			}
			if n := s.Count(testenv.GetToken); n != c.tokens {
				t.Errorf("%d tokens, want %d", n, c.tokens)
			}
			clean(t, err, s.Issued()...)
		})
	}
}
