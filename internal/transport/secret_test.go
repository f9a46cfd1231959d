package transport_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// secret makes a Secret of keys and values.
func secret(kv ...string) source.Secret {
	s := source.Secret{Data: map[string][]byte{}}
	for i := 0; i < len(kv); i += 2 {
		s.Data[kv[i]] = []byte(kv[i+1])
	}
	return s
}

// wantError checks that err names the Secret, the key and the problem, and shows no canary.
func wantError(t *testing.T, err error, key, problem string) {
	t.Helper()
	var e *transport.SecretError
	if !errors.As(err, &e) || e.Secret != "default/creds" || e.Key != key || !strings.Contains(err.Error(), problem) {
		t.Errorf("error %v, want one about key %s: %s", err, key, problem)
	}
	if err != nil && strings.Contains(err.Error(), "canary") {
		t.Errorf("error shows a value: %v", err)
	}
}

// TestAuth reads user names and tokens of Secrets in the forms of each kind.
func TestAuth(t *testing.T) {
	git := transport.GitAuth
	repository := transport.RepositoryAuth
	registry := func(name string, s source.Secret) (transport.Auth, error) {
		a, ok, err := transport.UserAuth(name, s)
		if err == nil && ok != (a.Username != "") {
			t.Errorf("%v: %+v, %t", s, a, ok)
		}
		return a, err
	}
	user, alice := transport.Auth{Username: "u", Password: "p"}, transport.Auth{Username: "alice", Password: "p:w"}
	for _, c := range []struct {
		name         string
		read         func(string, source.Secret) (transport.Auth, error)
		in           source.Secret
		want         transport.Auth
		key, problem string
	}{
		{"empty", git, secret(), transport.Auth{}, "", ""},
		{"empty values", git, secret("username", "", "bearerToken", ""), transport.Auth{}, "", ""},
		{"basic", git, secret("username", "alice", "password", "p:w"), alice, "", ""},
		{"user alone", git, secret("username", "token"), transport.Auth{Username: "token"}, "", ""},
		{"bearer", git, secret("bearerToken", "t"), transport.Auth{Bearer: "t"}, "", ""},
		{"other keys", git, secret("identity", "x", "ca.crt", "y"), transport.Auth{}, "", ""},
		{"password alone", git, secret("password", "canary"), transport.Auth{}, "username", "is missing"},
		{"bearer and basic", git, secret("bearerToken", "canary", "username", "canary"), transport.Auth{}, "bearerToken", "exclude each other"},
		{"bearer and password", git, secret("bearerToken", "canary", "password", "canary"), transport.Auth{}, "username", "is missing"},
		{"line break at the end", git, secret("username", "u", "password", "canary\n"), transport.Auth{}, "password", "ends in a line break"},
		{"windows line break", git, secret("bearerToken", "canary\r\n"), transport.Auth{}, "bearerToken", "ends in a line break"},
		{"forged header", git, secret("bearerToken", "canary\r\nHost: x"), transport.Auth{}, "bearerToken", "control character at byte 6"},
		{"control character", git, secret("username", "canary\x00x"), transport.Auth{}, "username", "control character at byte 6"},
		{"colon", git, secret("username", "canary:x"), transport.Auth{}, "username", "has a colon"},

		{"no user for an index", repository, secret(), transport.Auth{}, "", ""},
		{"user for an index", repository, secret("username", "u", "password", "p"), user, "", ""},
		{"user alone for an index", repository, secret("username", "u", "password", ""), transport.Auth{}, "password", "is missing"},
		{"password alone for an index", repository, secret("password", "canary"), transport.Auth{}, "username", "is missing"},
		{"colon for an index", repository, secret("username", "u:v", "password", "canary"), transport.Auth{}, "username", "colon"},

		{"user for a registry", registry, secret("username", "u", "password", "p"), user, "", ""},
		{"docker login wins", registry, secret(".dockerconfigjson", "{}", "username", "u", "password", "p"), transport.Auth{}, "", ""},
		{"old docker login", registry, secret(".dockercfg", "{}"), transport.Auth{}, "", ""},
		{"nothing for a registry", registry, secret(), transport.Auth{}, ".dockerconfigjson", "is missing, and so are username"},
		{"user alone for a registry", registry, secret("username", "u"), transport.Auth{}, "password", "is missing"},
		{"line break for a registry", registry, secret("username", "u", "password", "canary\n"), transport.Auth{}, "password", "line break"},
	} {
		got, err := c.read("default/creds", c.in)
		if c.problem != "" {
			wantError(t, err, c.key, c.problem)
		} else if err != nil || got != c.want {
			t.Errorf("%s: got %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

func TestGitSSH(t *testing.T) {
	got, err := transport.GitSSH("default/creds", secret("identity", "key", "known_hosts", "hosts", "password", "pass", "identity.pub", "ignored"))
	if err != nil || string(got.Identity) != "key" || string(got.KnownHosts) != "hosts" || string(got.Passphrase) != "pass" {
		t.Errorf("got %v, %v", got, err)
	}
	_, err = transport.GitSSH("default/creds", secret("known_hosts", "canary"))
	wantError(t, err, "identity", "is missing")
	_, err = transport.GitSSH("default/creds", secret("identity", "canary"))
	wantError(t, err, "known_hosts", "is missing")
}

func TestTLSKeys(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Client("alice")
	_, otherKey := ca.Client("bob")
	pem1, c1, k1, k2 := string(ca.PEM()), string(cert), string(key), string(otherKey)
	broken := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("canary")}))
	sealed := string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("canary")}))
	legacySealed := string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Headers: map[string]string{"DEK-Info": "AES-128-CBC,00"}, Bytes: []byte("x")}))
	for _, c := range []struct {
		name         string
		in           source.Secret
		git          bool // read as the Secret of a GitRepository
		cas, certs   bool
		key, problem string
	}{
		{"none", secret("username", "x"), true, false, false, "", ""},
		{"ca", secret("ca.crt", pem1), true, true, false, "", ""},
		{"ca among comments and broken ones", secret("ca.crt", "# mine\n"+broken+pem1), true, true, false, "", ""},
		{"legacy ca, git", secret("caFile", pem1), true, true, false, "", ""},
		{"legacy ca", secret("caFile", pem1), false, true, false, "", ""},
		{"pair", secret("tls.crt", c1, "tls.key", k1), true, false, true, "", ""},
		{"chain", secret("tls.crt", c1+pem1, "tls.key", k1), false, false, true, "", ""},
		{"all", secret("ca.crt", pem1, "tls.crt", c1, "tls.key", k1), false, true, true, "", ""},
		{"legacy pair", secret("certFile", c1, "keyFile", k1), false, false, true, "", ""},
		{"legacy pair is not read for git", secret("certFile", c1, "keyFile", k1), true, false, false, "", ""},
		{"newer keys win", secret("ca.crt", pem1, "caFile", "canary", "tls.crt", c1, "certFile", "canary", "tls.key", k1, "keyFile", "canary"), false, true, true, "", ""},
		{"ca is no PEM", secret("ca.crt", "canary"), true, false, false, "ca.crt", "is not PEM"},
		{"legacy ca is no PEM", secret("caFile", "canary"), false, false, false, "caFile", "is not PEM"},
		{"ca is a key", secret("ca.crt", k1), true, false, false, "ca.crt", "holds no CERTIFICATE but PRIVATE KEY"},
		{"ca is broken", secret("ca.crt", broken), true, false, false, "ca.crt", "no certificate that can be parsed"},
		{"no key", secret("tls.crt", c1), true, false, false, "tls.key", "is missing: tls.crt needs it"},
		{"no certificate", secret("tls.key", k1), true, false, false, "tls.crt", "is missing: tls.key needs it"},
		{"certificate is no PEM", secret("tls.crt", "canary", "tls.key", k1), true, false, false, "tls.crt", "is not PEM"},
		{"certificate is broken", secret("tls.crt", broken, "tls.key", k1), true, false, false, "tls.crt", "cannot be parsed"},
		{"key is no PEM", secret("tls.crt", c1, "tls.key", "canary"), true, false, false, "tls.key", "is not PEM"},
		{"key is a certificate", secret("tls.crt", c1, "tls.key", c1), true, false, false, "tls.key", "holds no PRIVATE KEY but CERTIFICATE"},
		{"key is encrypted", secret("tls.crt", c1, "tls.key", sealed), true, false, false, "tls.key", "is encrypted"},
		{"key is encrypted the old way", secret("tls.crt", c1, "tls.key", legacySealed), true, false, false, "tls.key", "is encrypted"},
		{"key of another certificate", secret("tls.crt", c1, "tls.key", k2), false, false, false, "tls.key", "cannot be used with tls.crt: private key does not match public key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			read := transport.CertTLS
			if c.git {
				read = transport.GitTLS
			}
			got, err := read("default/creds", c.in)
			if c.problem != "" {
				wantError(t, err, c.key, c.problem)
				return
			}
			if err != nil || (got != nil) != (c.cas || c.certs) {
				t.Fatalf("got %v, %v", got, err)
			}
			if got != nil && ((got.RootCAs != nil) != c.cas || (len(got.Certificates) == 1) != c.certs || got.MinVersion != 0x303) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestCAIsAddedToTheSystem(t *testing.T) {
	system, err := x509.SystemCertPool()
	must(t, err)
	ca := testenv.NewCA(t)
	got, err := transport.GitTLS("default/creds", secret("ca.crt", string(ca.PEM())))
	must(t, err)
	system.AppendCertsFromPEM(ca.PEM())
	if !got.RootCAs.Equal(system) {
		t.Error("pool is not the system's and the CA")
	}
}

func TestProxyFromSecret(t *testing.T) {
	for _, c := range []struct {
		name         string
		in           source.Secret
		want         string // URL with credentials
		key, problem string
	}{
		{"http", secret("address", "http://proxy.example:3128"), "http://proxy.example:3128", "", ""},
		{"default ports", secret("address", "http://proxy.example"), "http://proxy.example:80", "", ""},
		{"https", secret("address", "https://proxy.example/"), "https://proxy.example:443", "", ""},
		{"socks5", secret("address", "socks5://[::1]"), "socks5://[::1]:1080", "", ""},
		{"credentials", secret("address", "http://p:1", "username", "a@b", "password", "c/d"), "http://a%40b:c%2Fd@p:1", "", ""},
		{"credentials in the address", secret("address", "http://a:b@p:1"), "http://a:b@p:1", "", ""},
		{"keys win", secret("address", "http://a:b@p:1", "username", "c", "password", "d"), "http://c:d@p:1", "", ""},
		{"none", secret(), "", "address", "is missing"},
		{"password alone", secret("address", "http://p:1", "password", "canary"), "", "username", "is missing"},
		{"long", secret("address", "http://p:1/"+strings.Repeat("canary", 400)), "", "address", "has 2411 bytes, at most 2048"},
		{"scheme", secret("address", "ftp://canary:canary@p:1"), "", "address", `scheme "ftp"`},
		{"no scheme", secret("address", "p:3128"), "", "address", "is not a URL"},
		{"no host", secret("address", "http://"), "", "address", "is not a URL"},
		{"port", secret("address", "http://u:canary@p:canary"), "", "address", "is not a URL"},
		{"line break", secret("address", "http://canary:1\n"), "", "address", "ends in a line break"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := transport.ProxyFromSecret("default/creds", c.in, nil)
			if c.problem != "" {
				wantError(t, err, c.key, c.problem)
				return
			}
			must(t, err)
			if u, err := p.For(nil); err != nil || u.String() != c.want {
				t.Errorf("proxy is %s, %v, want %s", u, err, c.want)
			}
			if u, _ := url.Parse(p.String()); u.User != nil {
				t.Errorf("%s shows credentials", p)
			}
		})
	}
}

func TestSplitUser(t *testing.T) {
	u, _ := url.Parse("https://alice:s3cret@host/path?q")
	clean, auth := transport.SplitUser(u)
	if clean.String() != "https://host/path?q" || auth != (transport.Auth{Username: "alice", Password: "s3cret"}) || u.User == nil {
		t.Errorf("got %s, %v", clean, auth)
	}
	if same, none := transport.SplitUser(clean); same.String() != clean.String() || none != (transport.Auth{}) {
		t.Errorf("got %s, %v", same, none)
	}
}

func TestRepositoryTLSKnowsDeprecatedKeysOnly(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Client("user")
	c, deprecated, err := transport.RepositoryTLS("default/s", secret("caFile", string(ca.PEM()), "certFile", string(cert), "keyFile", string(key), "ca.crt", "ignored"))
	if err != nil || c == nil || len(c.Certificates) != 1 || !slices.Equal(deprecated, []string{"caFile", "certFile", "keyFile"}) {
		t.Errorf("%+v %v %v", c, deprecated, err)
	}
	c, deprecated, err = transport.RepositoryTLS("default/s", secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)))
	if err != nil || c != nil || deprecated != nil {
		t.Errorf("%+v %v %v", c, deprecated, err)
	}
	if _, _, err = transport.RepositoryTLS("default/s", secret("certFile", string(cert))); err == nil || !strings.Contains(err.Error(), "keyFile is missing") {
		t.Error(err)
	}
}

func TestGitHubApp(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	private := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	app, err := transport.GitHubApp("default/app", secret("githubAppID", "Iv23liABC", "githubAppInstallationOwner", "acme_corp", "githubAppPrivateKey", "# mine\n"+private, "githubAppBaseURL", "https://a/b"))
	if err != nil || app.ID != "Iv23liABC" || app.Installation != "" || app.Owner != "acme_corp" || app.BaseURL != "https://a/b" || !app.Key.Equal(key) {
		t.Errorf("got %+v, %v", app, err)
	}
	_, err = transport.GitHubApp("default/creds", secret("githubAppID", "1", "githubAppInstallationID", "canary", "githubAppPrivateKey", private))
	wantError(t, err, "githubAppInstallationID", "is not the id of an installation, which is a number")
	t.Setenv("GODEBUG", "rsa1024min=0")
	weak, err := rsa.GenerateKey(rand.Reader, 512)
	must(t, err)
	for say, text := range map[string]string{
		"has 16385 bytes, at most 16384 are allowed": strings.Repeat("x", 16385),
		"is an RSA key of 512 bits":                  string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(weak)})),
	} {
		_, err = transport.GitHubApp("default/creds", secret("githubAppID", "1", "githubAppInstallationID", "1", "githubAppPrivateKey", text))
		wantError(t, err, "githubAppPrivateKey", say)
	}
	for _, c := range []struct {
		pairs []string
		want  bool
	}{
		{nil, false},
		{[]string{"username", "a", "password", "b"}, false},
		{[]string{"githubAppID", ""}, false},
		{[]string{"githubAppID", "1"}, true},
		{[]string{"githubAppPrivateKey", "x"}, true},
	} {
		testenv.Equal(t, transport.IsApp(secret(c.pairs...)), c.want, c.pairs)
	}
}

// TestRefused calls Refused for responses to the credentials, and for no others.
func TestRefused(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for code, want := range map[int]int{200: 0, 401: 1, 403: 1, 404: 0, 500: 0} {
		origin, calls := newRecordingServer(t, nil, status(code)), 0
		other := newRecordingServer(t, nil, status(code))
		c := transport.Config{Origin: origin.url(), Auth: transport.Auth{Bearer: "t"}, Refused: func() { calls++ }}
		for _, u := range []string{other.URL, origin.URL} {
			must(t, second(get(t, c, u)))
		}
		c.Auth = transport.Auth{} // without credentials there is no call
		must(t, second(get(t, c, origin.URL)))
		if calls != want {
			t.Errorf("status %d: called %d times, want %d", code, calls, want)
		}
	}
}

func TestSameOrigin(t *testing.T) {
	parse := func(s string) *url.URL {
		u, err := url.Parse(s)
		must(t, err)
		return u
	}
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"https://example.com/a", "https://EXAMPLE.com:443/b?c", true},
		{"http://example.com:80", "http://example.com", true},
		{"https://example.com", "http://example.com", false},
		{"https://example.com", "https://example.com:8443", false},
		{"https://example.com", "https://example.com.evil.example", false},
		{"https://example.com", "https://www.example.com", false},
		{"ssh://example.com", "ssh://git@example.com/x", true},
		{"https://i.example", "https://\u0130.example", false}, // ToLower turns this letter into an i
	} {
		testenv.Equal(t, transport.SameOrigin(parse(c.a), parse(c.b)), c.want, "%s and %s", c.a, c.b)
	}
}

func TestAzureKeys(t *testing.T) {
	read := func(keyValue ...string) (transport.Azure, error) {
		return transport.AzureKeys("default/blobs", secret(keyValue...))
	}
	z, err := read("tenantId", "t", "clientId", "c", "clientCertificate", "pem", "clientCertificatePassword", "p", "clientCertificateSendChain", "1", "authorityHost", "https://login.example/adfs", "accountKey", "a2V5")
	if err != nil || z.Application == nil || z.Application.Secret != "" || string(z.Application.Certificate) != "pem" || z.Application.Password != "p" || !z.Application.Chain ||
		z.Account != "" || z.Authority.String() != "https://login.example/adfs/" {
		t.Errorf("%+v, %v", z, err)
	}
	z, err = read("tenantId", "t", "clientId", "c", "clientSecret", "s", "clientCertificate", "pem")
	if err != nil || z.Application.Secret != "s" || z.Application.Certificate != nil {
		t.Errorf("%+v, %v", z, err)
	}
	z, err = read("clientId", "c", "accountKey", "a2V5", "clientSecret", "")
	if err != nil || z.Application != nil || z.Managed != "c" || z.Account != "" {
		t.Errorf("%+v, %v", z, err)
	}
	z, err = read("accountKey", "a2V5\n", "sasKey", "sig=x")
	if err != nil || z.Account != "a2V5" || z.SAS != "" {
		t.Errorf("%+v, %v", z, err)
	}
	z, err = read("sasKey", "?sv=1&sig=x")
	if err != nil || z.SAS != "sv=1&sig=x" {
		t.Errorf("%+v, %v", z, err)
	}
	if err := z.BadCertificate("it is none"); err.Error() != "secret default/blobs: key clientCertificate cannot be used: it is none" {
		t.Error(err)
	}
}
