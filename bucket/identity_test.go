package bucket_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// keyFile returns the key file of the account of s with changed values; nil removes a value.
func keyFile(t *testing.T, s *testenv.Store, nameValue ...any) string {
	t.Helper()
	file := map[string]any{}
	must(t, json.Unmarshal(s.Key(), &file))
	for i := 0; i < len(nameValue); i += 2 {
		if file[nameValue[i].(string)] = nameValue[i+1]; nameValue[i+1] == nil {
			delete(file, nameValue[i].(string))
		}
	}
	text, _ := json.Marshal(file)
	return string(text)
}

// TestBadSecrets checks that the error about an invalid Secret names the wrong key but no
// value, and that no request is sent.
func TestBadSecrets(t *testing.T) {
	s3, gcs, account := aws.start(t, aws.private), google.start(t, google.private), microsoft.start(t, testenv.StoreConfig{CA: testenv.NewCA(t)})
	with := func(nameValue ...any) []string { return []string{"serviceaccount", keyFile(t, gcs, nameValue...)} }
	app := []string{"tenantId", tenant, "clientId", "app"}
	and := func(keyValue ...string) []string { return append(app[:len(app):len(app)], keyValue...) }
	for m, rows := range map[*storeMaker]map[string][]string{
		aws: {
			"key secretkey is missing: S3 needs accesskey and secretkey": {"accesskey", accessKey},
			"key accesskey is missing":                                   {"secretkey", canary},
			"key accesskey is missing; other":                            {"username", "u", "password", canary},
			"key secretkey ends in a line break":                         {"accesskey", accessKey, "secretkey", canary + "\n"},
		},
		google: {
			"is missing":                                {"other", canary},
			"is not JSON":                               {"serviceaccount", "canary"},
			"is not JSON; list":                         {"serviceaccount", "[]"},
			`has the type ""`:                           {"serviceaccount", "null"},
			"has 65537 bytes, at most 16384":            {"serviceaccount", strings.Repeat(" ", 1<<16+1)},
			`has the type "external_account"`:           with("type", "external_account", "credential_source", map[string]any{"executable": map[string]string{"command": "canary"}}),
			"only service_account; developer":           with("type", "authorized_user"),
			"only service_account; impersonation":       with("type", "impersonated_service_account"),
			"only service_account; endless":             with("type", strings.Repeat("x", 10_000)),
			"only service_account; twice":               {"serviceaccount", `{"type":"service_account","TYPE":"external_account"}`},
			"has no client_email":                       with("client_email", nil),
			"nothing was sent":                          with("private_key", nil),
			"nothing was sent; text":                    with("private_key", "canary"),
			"nothing was sent; PEM of nothing":          with("private_key", "-----BEGIN PRIVATE KEY-----\nY2FuYXJ5\n-----END PRIVATE KEY-----\n"),
			"is not an https URL: http is for loopback": with("token_uri", "http://oauth2.googleapis.com/token"),
			"is not an https URL; file":                 with("token_uri", "file:///canary"),
			"is not an https URL; user":                 with("token_uri", "https://canary:canary@oauth2.googleapis.com"),
			"is not an https URL; nowhere":              with("token_uri", "https:///token"),
			"is not an https URL; none":                 with("token_uri", "https://%zz/canary"),
		},
		microsoft: {
			"key accountKey is missing":                                            {"other", canary},
			"key tenantId is missing: clientSecret needs it":                       {"clientSecret", canary},
			"key tenantId is missing: clientSecret needs it; id":                   {"clientSecret", canary, "clientId", "app"},
			"key clientId is missing: clientSecret needs it":                       {"clientSecret", canary, "tenantId", tenant},
			"key tenantId is missing: clientCertificate needs it":                  {"clientCertificate", canary, "clientId", "app"},
			"key clientSecret is missing: tenantId needs it, or clientCertificate": app,
			"key clientId is missing: tenantId needs it":                           {"tenantId", tenant, "accountKey", accountKey},
			"key clientCertificate is missing":                                     and("clientSecret", canary, "clientCertificatePassword", canary),
			"key clientCertificate cannot be used":                                 and("clientCertificate", canary),
			"key clientCertificate cannot be used; empty":                          and("clientCertificate", "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"),
			"invalid tenantID":                                                     {"tenantId", "a/b", "clientId", "app", "clientSecret", canary},
			"key accountKey is not base64":                                         {"accountKey", "cAnArY!"},
			"key sasKey has no sig":                                                {"sasKey", "cAnArY"},
			"is no shared access signature":                                        {"sasKey", "https://acme.example/?" + sas},
			"key sasKey is not the query of a URL":                                 {"sasKey", "sig=cAnArY%zz"},
			"key sasKey ends in a line break":                                      {"sasKey", sas + "\n"},
			"Snapshot, which is no part of a shared access signature":              {"sasKey", sas + "&Snapshot=2020"},
			"key authorityHost is not the URL of an authority":                     and("clientSecret", canary, "authorityHost", "http://login.example/"),
			"key authorityHost is not the URL of an authority; credentials":        and("clientSecret", canary, "authorityHost", "https://cAnArY@login.example/"),
			"key authorityHost is not the URL of an authority; none":               and("clientSecret", canary, "authorityHost", "login.example"),
			"key clientId has a control character":                                 {"clientId", "a\nb"},
		},
	} {
		s := map[*storeMaker]*testenv.Store{aws: s3, google: gcs, microsoft: account}[m]
		for name, keyValue := range rows {
			_, err := m.connect(t.Context(), m.access(s, keyValue...))
			say, _, _ := strings.Cut(name, "; ")
			requireError(t, nil, err, say)
			requireReason(t, err, "AuthenticationFailed", false)
			if s.Count() > 0 {
				t.Errorf("%s, %s: asked %+v", m.provider, name, s.Requests())
			}
		}
	}
	for say, key := range map[string]string{ // errors that only the token service can detect
		"account not found":     keyFile(t, gcs, "client_email", "other@example.com"),
		"Invalid JWT":           keyFile(t, gcs, "private_key_id", "other"),
		"Failed audience check": keyFile(t, gcs, "token_uri", strings.Replace(gcs.TokenURL(), "127.0.0.1", "localhost", 1)),
		"401 Unauthorized":      keyFile(t, gcs, "token_uri", gcs.Base+"/storage/v1/b/app/o"),
	} {
		_, err := google.connect(t.Context(), google.access(gcs, "serviceaccount", key))
		requireError(t, gcs, err, say)
	}
	a := google.access(gcs, "serviceaccount", string(gcs.Key()))
	a.Spec.Endpoint, a.Spec.Insecure = "127.0.0.1:1", false
	_, err := google.connect(t.Context(), a)
	requireError(t, nil, err, "http is for loopback, with spec.insecure")
}

// TestForms checks that the account accepts each form of Secret for Azure, and their precedence.
func TestForms(t *testing.T) {
	t.Parallel()
	ca := testenv.NewCA(t)
	cert, both := certificate(t)
	app := testenv.StoreConfig{CA: ca, Tenant: tenant, Client: "app"}
	bySecret, byCertificate := app, app
	bySecret.Secret, byCertificate.Certificate = canary, cert
	key, signed := testenv.StoreConfig{Key: accountKey}, testenv.StoreConfig{SAS: sas}
	id := []string{"tenantId", tenant, "clientId", "app", "authorityHost", ""}
	and := func(keyValue ...string) []string { return append(slices.Clone(id), keyValue...) }
	for name, c := range map[string]struct {
		config   testenv.StoreConfig
		secret   []string
		endpoint string // appended to the endpoint
	}{
		"key":                        {key, []string{"accountKey", accountKey}, ""},
		"key, line break":            {key, []string{"accountKey", accountKey + "\n"}, "/"},
		"key before signature":       {key, []string{"accountKey", accountKey, "sasKey", sas}, ""},
		"key before URL":             {key, []string{"accountKey", accountKey}, "?" + sas},
		"signature":                  {signed, []string{"sasKey", sas}, ""},
		"signature, question mark":   {signed, []string{"sasKey", "?" + sas}, ""},
		"signature in the URL":       {signed, nil, "/?" + sas},
		"signature before URL":       {signed, []string{"sasKey", sas}, "?sv=2020-01-01&sig=other"},
		"application":                {bySecret, and("clientSecret", canary), ""},
		"application before key":     {bySecret, and("clientSecret", canary, "accountKey", accountKey, "sasKey", sas), ""},
		"secret before certificate":  {bySecret, and("clientSecret", canary, "clientCertificate", "none"), ""},
		"certificate":                {byCertificate, and("clientCertificate", string(both)), ""},
		"certificate with its chain": {byCertificate, and("clientCertificate", string(both), "clientCertificateSendChain", "true"), ""},
	} {
		s := microsoft.filled(t, c.config, "a", "1")
		if i := slices.Index(c.secret, "authorityHost"); i >= 0 {
			c.secret[i+1] = s.Base + "/"
		}
		a := microsoft.access(s, c.secret...)
		a.Transport.TLS = trusting(t, ca, nil)
		a.Spec.Endpoint += c.endpoint
		d := microsoft.connected(t, a)
		if text, err := read(t.Context(), d, object(t, d), 0); text != "1" || err != nil || s.Count(testenv.GetToken) > 1 {
			t.Errorf("%s: %q, %v, %d tokens", name, text, err, s.Count(testenv.GetToken))
		}
		for _, q := range s.Requests() {
			if signed := strings.HasPrefix(q.Authorization, "SharedKey acme:"); q.Phase == testenv.ListObjects && (signed != strings.HasPrefix(name, "key") || q.Header.Get("X-Ms-Version") != "2021-12-02") {
				t.Errorf("Authorization: %.20s, %s", q.Authorization, q.Path)
			}
			_, assertion, found := strings.Cut(string(q.Body), "client_assertion=")
			head, _, _ := strings.Cut(assertion, ".")
			if text, _ := base64.RawURLEncoding.DecodeString(head); found && strings.Contains(string(text), "x5c") != (name == "certificate with its chain") {
				t.Errorf("%s: %s", name, text)
			}
		}
	}
}

// certificate returns a new certificate, and that certificate with its key, as PEM.
func certificate(t *testing.T) (cert, both []byte) {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "app"}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	must(t, err)
	text, _ := x509.MarshalPKCS8PrivateKey(private)
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return cert, append(bytes.Clone(cert), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})...)
}

// TestManagedIdentity checks that tokens of a managed identity are requested from the
// machine's token service without a proxy. A user who writes an object cannot obtain a token
// of the machine with a server, certificate or proxy of their own.
func TestManagedIdentity(t *testing.T) {
	id, requests := rand.Text(), 0 // the SDK caches tokens by ID, for the whole process
	machine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		w.Header().Set("Content-Type", "application/json")
		q := r.URL.Query()
		if r.Header.Get("X-IDENTITY-HEADER") != "header-cAnArY" || q.Get("client_id") != id || q.Get("resource") != "https://storage.azure.com" {
			w.WriteHeader(http.StatusBadRequest)
		}
		json.NewEncoder(w).Encode(map[string]any{"access_token": "managed-cAnArY", "token_type": "Bearer", "resource": q.Get("resource"), "expires_on": fmt.Sprint(time.Now().Add(time.Hour).Unix())})
	}))
	t.Cleanup(machine.Close)
	t.Setenv("IDENTITY_ENDPOINT", machine.URL)
	t.Setenv("IDENTITY_HEADER", "header-cAnArY")
	s := microsoft.filled(t, testenv.StoreConfig{Token: "managed-cAnArY"}, "a", "1")
	nobodys := func(*http.Request) (*url.URL, error) { return nil, errors.New("no way") }
	const azures = "https://acme.blob.core.windows.net"
	for name, edit := range map[string]func(*bucket.Access){
		"another host":       func(a *bucket.Access) { a.Spec.Endpoint = "https://store.example/acme" },
		"host that looks it": func(a *bucket.Access) { a.Spec.Endpoint = azures + ".store.example" },
		"path that looks it": func(a *bucket.Access) { a.Spec.Endpoint = "https://store.example/acme.blob.core.windows.net" },
		"in the clear":       func(a *bucket.Access) { a.Spec.Endpoint = "http://acme.blob.core.windows.net" },
		"own CA":             func(a *bucket.Access) { a.Spec.Endpoint, a.Transport.TLS = azures, trusting(t, testenv.NewCA(t), nil) },
		"by a proxy":         func(a *bucket.Access) { a.Transport.Proxy = nobodys },
	} {
		a := microsoft.access(s, "clientId", id)
		edit(a)
		_, err := microsoft.connect(t.Context(), a)
		if requireReason(t, err, "InvalidProviderConfiguration", false); requests > 0 || !strings.Contains(fmt.Sprint(err), "spec.secretRef: a ") {
			t.Errorf("%s: %v, %d requests", name, err, requests)
		}
	}
	a := microsoft.access(s, "clientId", id)
	a.Transport.Proxy, a.Spec.Endpoint = nobodys, azures
	_, err := list(t.Context(), microsoft.connected(t, a), "")
	requireError(t, s, err, "no way") // the account is behind the proxy
	if object(t, microsoft.connected(t, microsoft.access(s, "clientId", id))); requests != 1 {
		t.Errorf("%d requests", requests)
	}
}

// TestAuthority checks that no secret is sent to a token endpoint without TLS, even if the
// authority names it, and that the challenge of an account does not change the
// requested token.
func TestAuthority(t *testing.T) {
	t.Parallel()
	ca := testenv.NewCA(t)
	s := microsoft.filled(t, testenv.StoreConfig{CA: ca, Tenant: tenant, Client: "app", Secret: canary}, "a", "1")
	access := func(keyValue ...string) *bucket.Access {
		a := microsoft.access(s, keyValue...)
		a.Transport.TLS = trusting(t, ca, nil)
		return a
	}
	for say, keyValue := range map[string][]string{
		"401 Unauthorized: invalid_client: AADSTS7000215: Invalid client secret provided: check the identity": {"tenantId", tenant, "clientId", "app", "clientSecret", "other-" + canary, "authorityHost", s.Base},
		"unauthorized_client": {"tenantId", tenant, "clientId", "other", "clientSecret", canary, "authorityHost", s.Base},
		"get a token":         {"tenantId", "other", "clientId", "app", "clientSecret", canary, "authorityHost", s.Base},
	} {
		_, err := microsoft.connect(t.Context(), access(keyValue...))
		requireError(t, s, err, say)
		requireReason(t, err, "AuthenticationFailed", false)
	}
	for _, challenge := range []string{"Bearer authorization_uri=https://x resource_id=https://management.azure.com", `Bearer error="insufficient_claims", claims="cAnArY"`, "Bearer", "", "Negotiate"} {
		s.Break(nil)
		d := microsoft.connected(t, access(application(s)...))
		s.Reset()
		s.Break(inPhase(testenv.ListObjects, answer(401, "", "Www-Authenticate", challenge)))
		_, err := list(t.Context(), d, "")
		if requireError(t, s, err, "401"); !errors.Is(err, fs.ErrPermission) || s.Count(testenv.GetToken) != 1 || strings.Contains(fmt.Sprint(s.Requests()), "management") {
			t.Errorf("%s: %v, %d tokens", challenge, err, s.Count(testenv.GetToken))
		}
	}
	heard := false
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { heard = true }))
	t.Cleanup(thief.Close)
	s.Break(inPhase(testenv.FindAuthority, answer(200, fmt.Sprintf(`{"issuer":"%s/","authorization_endpoint":"%[1]s/a","token_endpoint":"%s/token"}`, s.Base, thief.URL))))
	_, err := microsoft.connect(t.Context(), access(application(s)...))
	if requireError(t, s, err, "get a token: "); heard {
		t.Errorf("the secret is sent in the clear: %v", err)
	}
	s.Break(&testenv.Defect{Phase: testenv.FindAuthority, Do: testenv.OversizedBody, After: 4 << 20})
	_, err = microsoft.connect(t.Context(), access(application(s)...))
	requireError(t, s, err, "get a token: ")
	a := access(application(s)...)
	a.Spec.Endpoint, a.Spec.Insecure = "http://store.example/acme", true
	_, err = microsoft.connect(t.Context(), a)
	requireError(t, s, err, "a token is shown to servers with TLS only")
}

// TestIdentities checks access without a Secret: a program with an identity uses it for the
// cloud's own hosts over TLS, and for this machine; without one, requests are anonymous.
func TestIdentities(t *testing.T) {
	t.Parallel()
	ca, none := testenv.SystemCA(t), fmt.Errorf("metadata server: %w", source.ErrNoIdentity)
	const googleHost, azureHost, token = "storage.googleapis.com", "acme.blob.core.windows.net", "ya29.cAnArY"
	robots := func(s *source.BucketSpec) { s.ServiceAccountName = "robot" }
	clear := func(s *source.BucketSpec) {
		s.Insecure, s.Endpoint = true, strings.Replace(s.Endpoint, "https", "http", 1)
	}
	good := source.Credential{Username: accessKey, Password: canary, Token: token}
	old := source.Credential{Username: "old", Password: "old-cAnArY", Token: "old-cAnArY"}
	type row struct {
		public bool
		host   string // "" for this machine
		issued []source.Credential
		err    error // of the login
		edit   func(*source.BucketSpec)
		logins int
		reason string // "" for no error
		say    string
	}
	common := func(host string) map[string]row {
		return map[string]row{
			"good":                  {false, host, []source.Credential{good}, nil, nil, 1, "", ""},
			"refused once":          {false, host, []source.Credential{old, good}, nil, nil, 2, "", ""},
			"refused for good":      {false, host, []source.Credential{old, old}, nil, nil, 2, "AuthenticationFailed", ""},
			"login fails":           {true, host, nil, errors.New("out of order"), nil, 1, "AuthenticationFailed", ": out of order"},
			"login is not for that": {true, host, nil, source.ErrProvider, nil, 1, "InvalidProviderConfiguration", "log in with provider "},
			"no token":              {true, host, []source.Credential{{}}, nil, nil, 1, "AuthenticationFailed", "no token that can be sent"},
			"forged token":          {true, host, []source.Credential{{Username: "A\nB", Password: "canary", Token: "a\r\nb"}}, nil, nil, 1, "AuthenticationFailed", "no token that can be sent"},
			"service account":       {false, host, []source.Credential{good}, nil, robots, 1, "", ""},
		}
	}
	all := map[*storeMaker]map[string]row{aws: common(""), google: common(googleHost), microsoft: common(azureHost)}
	all[aws]["no provider"] = row{true, "", nil, errors.ErrUnsupported, nil, 1, "InvalidProviderConfiguration", "this program cannot log in with provider aws: set spec.secretRef"}
	all[aws]["in the clear"] = row{true, "minio.example", nil, nil, clear, 0, "InvalidProviderConfiguration", "spec.insecure: the identity of this program is not shown in the clear"}
	all[aws]["token service"] = row{false, "", []source.Credential{good}, nil, func(s *source.BucketSpec) {
		s.STS = &source.BucketSTSSpec{Provider: "aws", Endpoint: "https://sts.eu-west-1.amazonaws.com"}
	}, 1, "", ""}
	for m, host := range map[*storeMaker]string{google: googleHost, microsoft: azureHost} {
		all[m]["nobody, public"] = row{true, host, nil, none, nil, 1, "", ""}
		all[m]["no provider, public"] = row{true, host, nil, errors.ErrUnsupported, nil, 1, "", ""}
		all[m]["nobody, private"] = row{false, host, nil, none, nil, 1, "AuthenticationFailed", "spec.secretRef"}
		all[m]["nobody, but it should be another"] = row{true, host, nil, none, robots, 1, "AuthenticationFailed", "metadata server"}
	}
	all[google]["in the clear"] = row{true, googleHost, nil, nil, clear, 0, "InvalidProviderConfiguration", "spec.insecure: the identity of this program is not sent in the clear"}
	all[google]["another store"] = row{true, "", nil, errors.New("not to be asked"), nil, 0, "", ""}
	all[google]["another's, for another store"] = row{true, "store.example", nil, none, robots, 1, "AuthenticationFailed", "metadata server"}
	all[microsoft]["this machine"] = row{false, "", []source.Credential{good}, nil, nil, 1, "", ""}
	all[microsoft]["in the clear"] = row{true, azureHost, nil, nil, clear, 0, "BucketOperationFailed", "list objects: "}
	all[microsoft]["robot in the clear"] = row{true, azureHost, nil, nil, func(s *source.BucketSpec) { clear(s); robots(s) }, 0, "InvalidProviderConfiguration", "a token is shown to servers with TLS only"}
	all[microsoft]["secret before identity"] = row{true, "", nil, nil, func(s *source.BucketSpec) { s.SecretRef = ref("key") }, 0, "AuthenticationFailed", "AuthenticationFailed"}
	all[microsoft]["signature before identity"] = row{true, "", nil, nil, func(s *source.BucketSpec) { s.Endpoint += "?" + sas }, 0, "AuthenticationFailed", "AuthenticationFailed"}
	for m, rows := range all {
		for name, c := range rows {
			config := testenv.StoreConfig{Token: token, AccessKey: accessKey, SecretKey: canary, SessionToken: token, Anonymous: c.public}
			secure := config
			secure.CA, secure.Names = ca, []string{googleHost, azureHost, "store.example"}
			b := m.following(m.filled(t, config, "a", "1"))
			held := sourcetest.Secrets{"default/key": sourcetest.Secret("accountKey", accountKey)}
			scheme := map[*storeMaker]string{aws: "s3", google: "gs", microsoft: "azblob"}[m]
			if b.Spec.Provider == "generic" {
				b.Spec.Provider = "aws"
			}
			if c.host != "" {
				s := m.filled(t, secure, "a", "1")
				if name == "in the clear" && m == microsoft {
					s = m.filled(t, config, "a", "1")
				}
				proxy, _ := proxyTo(t, s, c.host)
				held["default/proxy"] = sourcetest.Secret("address", proxy.URL)
				b.Spec.ProxySecretRef, b.Spec.Insecure, b.Spec.Endpoint = ref("proxy"), false, map[bool]string{true: "https://"}[m == microsoft]+c.host
			}
			if c.edit != nil {
				c.edit(&b.Spec)
			}
			logins, forgotten := 0, 0
			login := func(_ context.Context, r source.LoginRequest) (source.Credential, error) {
				if want := scheme + "://" + strings.TrimPrefix(strings.TrimPrefix(b.Spec.Endpoint, "https://"), "http://"); !strings.HasPrefix(r.URL.String(), strings.TrimSuffix(want, "/acme")+"/app") || r.ServiceAccount != b.Spec.ServiceAccountName {
					t.Errorf("%s, %s: asked for %s, %s", m.provider, name, r.URL, r.ServiceAccount)
				}
				if name == "token service" && r.URL.RawQuery != "sts=https%3A%2F%2Fsts.eu-west-1.amazonaws.com" {
					t.Errorf("asked for %s", r.URL)
				}
				if logins++; c.err != nil {
					return source.Credential{}, c.err
				}
				issued := c.issued[min(logins, len(c.issued))-1]
				if m != aws && name != "forged token" {
					issued.Username, issued.Password = "", ""
				}
				issued.Refused = func() { forgotten++ }
				return issued, nil
			}
			o := bucket.New(b, source.Env{Secrets: held, Login: login}, providers)
			_, _, err := o.Resolve(t.Context(), nil)
			if c.reason == "" {
				if err != nil || name == "good" && !slices.Contains(o.Secrets(), token) {
					t.Errorf("%s, %s: %v, or the token is not kept secret", m.provider, name, err)
				}
			} else if requireError(t, nil, err, c.say); err != nil {
				if step, ok := errors.AsType[*source.StepError](err); !ok || step.Reason != c.reason {
					t.Errorf("%s, %s: %+v", m.provider, name, err)
				}
			}
			if want := map[bool]int{true: 1}[strings.HasPrefix(name, "refused")]; logins != c.logins || forgotten != want {
				t.Errorf("%s, %s: %d logins, %d forgotten, %v", m.provider, name, logins, forgotten, err)
			}
		}
	}
}

// TestTokenService tests the token services of S3.
func TestTokenService(t *testing.T) {
	t.Parallel()
	user := []string{"username", "reader", "password", canary}
	sent := func(endpoint string) func(*bucket.Access) {
		return func(a *bucket.Access) { a.Spec.STS.Endpoint = endpoint }
	}
	for name, c := range map[string]struct {
		provider string
		secret   []string
		edit     func(*bucket.Access)
		reason   string
		invalid  bool
		say      string
	}{
		"ldap":             {"ldap", user, nil, "", false, ""},
		"web identity":     {"webidentity", []string{"token", identity}, nil, "", false, ""},
		"role":             {"webidentity", []string{"token", identity, "roleArn", "arn:minio:iam:::role/reader"}, nil, "", false, ""},
		"aws":              {"webidentity", []string{"token", identity}, func(a *bucket.Access) { a.Spec.Provider = "aws" }, "", false, ""},
		"wrong password":   {"ldap", []string{"username", "reader", "password", "other-" + canary}, nil, "AuthenticationFailed", false, "400 Bad Request: InvalidParameterValue: the credentials are not valid: check spec.sts.endpoint, and the Secret of spec.sts.secretRef"},
		"wrong token":      {"webidentity", []string{"token", identity + "x"}, nil, "AuthenticationFailed", false, "InvalidParameterValue"},
		"no password":      {"ldap", user[:2], nil, "AuthenticationFailed", false, "spec.sts.secretRef: secret default/sts: key password is missing: LDAP needs username and password"},
		"no user":          {"ldap", user[2:], nil, "AuthenticationFailed", false, "key username is missing"},
		"no token":         {"webidentity", []string{"username", "x"}, nil, "AuthenticationFailed", false, "key token is missing: it holds the identity token"},
		"bad token":        {"webidentity", []string{"token", "canary\n"}, nil, "AuthenticationFailed", false, "key token ends in a line break"},
		"bad role":         {"webidentity", []string{"token", identity, "roleArn", "a\x00"}, nil, "AuthenticationFailed", false, "key roleArn has a control character"},
		"no Secret":        {"ldap", nil, func(a *bucket.Access) { a.Spec.STS.SecretRef = nil }, "InvalidSTSConfiguration", true, "spec.sts.secretRef is required with provider ldap"},
		"unknown":          {"kerberos", user, nil, "InvalidSTSConfiguration", true, `spec.sts.provider "kerberos" is not known`},
		"in the clear":     {"ldap", user, func(a *bucket.Access) { a.Spec.STS.Endpoint, a.Spec.Insecure = "http://sts.example", false }, "InvalidSTSConfiguration", true, "spec.sts.endpoint would be shown credentials in the clear: use https"},
		"no endpoint":      {"ldap", user, sent("sts.example"), "URLInvalid", true, "spec.sts.endpoint"},
		"no endpoint, aws": {"aws", nil, func(a *bucket.Access) { a.Spec.Provider, a.Spec.STS.Endpoint = "aws", "::canary" }, "URLInvalid", true, "spec.sts.endpoint"},
		"TLS that is none": {"ldap", user, func(a *bucket.Access) {
			a.Spec.STS.Endpoint = strings.Replace(a.Spec.STS.Endpoint, "http:", "https:", 1)
		}, "AuthenticationFailed", false,
			"log in to the token service https://127.0.0.1:|the server speaks no TLS: set spec.insecure, or write http://"},
		"keys of a Secret": {"ldap", []string{"username", "reader", "password", "other-" + canary}, func(a *bucket.Access) {
			a.Spec.SecretRef, a.Secret = ref("keys"), secretOf(a.SecretReader, "keys", "accesskey", accessKey, "secretkey", canary)
		}, "", false, ""},
	} {
		s := aws.filled(t, testenv.StoreConfig{AccessKey: accessKey, SecretKey: canary, LDAPUsername: "reader", LDAPPassword: canary, WebIdentityToken: identity}, "a", "1")
		a := exchanged(s, c.provider, c.secret...)
		if c.edit != nil {
			c.edit(a)
		}
		d, err := aws.connect(t.Context(), a)
		if c.say != "" {
			requireError(t, s, err, c.say)
			if requireReason(t, err, c.reason, c.invalid); t.Failed() {
				t.Fatal(name)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if object(t, d); s.Count(testenv.AssumeRole) != map[bool]int{true: 0, false: 1}[name == "keys of a Secret"] {
			t.Errorf("%s: logged in %d times", name, s.Count(testenv.AssumeRole))
		}
	}
	// Endpoint and token service have separate CAs, and the client certificate of each is
	// sent to that server only.
	ca, other := testenv.NewCA(t), testenv.NewCA(t)
	service := aws.start(t, testenv.StoreConfig{CA: ca, Mutual: true, LDAPUsername: "reader", LDAPPassword: canary})
	a := ldap(service)
	a.Spec.Endpoint, a.Transport.TLS = aws.start(t, testenv.StoreConfig{CA: other}).Host, trusting(t, other, nil)
	_, err := aws.connect(t.Context(), a)
	requireError(t, service, err, "log in to the token service https://|certificate")
	a.STSTransport.TLS = trusting(t, ca, ca)
	if aws.connected(t, a); len(service.Requests()) != 1 || service.Requests()[0].Certificate != "reader" {
		t.Errorf("%+v", service.Requests())
	}
}
