package transport_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/transport"
)

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
		if got := transport.IsApp(secret(c.pairs...)); got != c.want {
			t.Errorf("%q: %v", c.pairs, got)
		}
	}
}

// Refused is told of the answers to the credentials, and of no others.
func TestRefused(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for code, want := range map[int]int{200: 0, 401: 1, 403: 1, 404: 0, 500: 0} {
		own, told := newHost(t, nil, status(code)), 0
		other := newHost(t, nil, status(code))
		c := transport.Config{Origin: own.url(), Auth: transport.Auth{Bearer: "t"}, Refused: func() { told++ }}
		for _, u := range []string{other.URL, own.URL} {
			must(t, second(get(t, c, u)))
		}
		c.Auth = transport.Auth{} // who showed none is told nothing
		must(t, second(get(t, c, own.URL)))
		if told != want {
			t.Errorf("status %d: told %d times, want %d", code, told, want)
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
		{"https://i.example", "https://\u0130.example", false}, // a letter that ToLower makes an i
	} {
		if got := transport.SameOrigin(parse(c.a), parse(c.b)); got != c.want {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
}
