package github_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/github"
)

func TestSecrets(t *testing.T) {
	f := newFixture(t)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	block := func(kind string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte("canary")}))
	}
	for name, c := range map[string]struct {
		changes []string
		say     string
	}{
		"no app":                    {[]string{"githubAppID", ""}, "githubAppID is missing"},
		"no installation":           {[]string{"githubAppInstallationID", ""}, "githubAppInstallationID is missing: set it, or githubAppInstallationOwner"},
		"both installations":        {[]string{"githubAppInstallationOwner", "acme"}, "exclude each other"},
		"no key":                    {[]string{"githubAppPrivateKey", ""}, "githubAppPrivateKey is missing"},
		"key that is no PEM":        {[]string{"githubAppPrivateKey", "canary"}, "githubAppPrivateKey is not PEM"},
		"broken PKCS 1 key":         {[]string{"githubAppPrivateKey", block("RSA PRIVATE KEY")}, "githubAppPrivateKey holds a private key that cannot be parsed"},
		"broken PKCS 8 key":         {[]string{"githubAppPrivateKey", block("PRIVATE KEY")}, "cannot be parsed"},
		"encrypted key":             {[]string{"githubAppPrivateKey", block("ENCRYPTED PRIVATE KEY")}, "is encrypted"},
		"certificate":               {[]string{"githubAppPrivateKey", block("CERTIFICATE")}, "holds no PRIVATE KEY but CERTIFICATE"},
		"public key":                {[]string{"githubAppPrivateKey", block("PUBLIC KEY")}, "holds no PRIVATE KEY but PUBLIC KEY"},
		"key of an elliptic curve":  {[]string{"githubAppPrivateKey", pkcs8(curve)}, "is not an RSA key"},
		"broken key of a curve":     {[]string{"githubAppPrivateKey", block("EC PRIVATE KEY")}, "cannot be parsed"},
		"line break":                {[]string{"githubAppID", "4711\n"}, "githubAppID ends in a line break"},
		"app with a slash":          {[]string{"githubAppID", "47/11"}, "githubAppID is not the id of an app"},
		"installation with a path":  {[]string{"githubAppInstallationID", "1/../../x"}, "githubAppInstallationID is not the id"},
		"owner with a path":         {[]string{"githubAppInstallationID", "", "githubAppInstallationOwner", "../app"}, "githubAppInstallationOwner is not the name"},
		"owner with a query":        {[]string{"githubAppInstallationID", "", "githubAppInstallationOwner", "a?b"}, "githubAppInstallationOwner is not the name"},
		"base URL that is none":     {[]string{"githubAppBaseURL", "api.github.com"}, "githubAppBaseURL is not the URL of an API"},
		"base URL in the clear":     {[]string{"githubAppBaseURL", "http://github.example/api/v3"}, "githubAppBaseURL is not the URL of an API"},
		"base URL with credentials": {[]string{"githubAppBaseURL", "https://canary:canary@github.example"}, "githubAppBaseURL is not the URL of an API"},
		"base URL with a query":     {[]string{"githubAppBaseURL", "https://github.example/?a=canary"}, "githubAppBaseURL is not the URL of an API"},
		"base URL that is broken":   {[]string{"githubAppBaseURL", "https://canary:x"}, "githubAppBaseURL is not the URL of an API"},
		"no base URL":               {[]string{"githubAppBaseURL", ""}, "githubAppBaseURL is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			r := f.request("/acme/app", c.changes...)
			_, err := f.Login(t.Context(), r)
			wantError(t, err, true, "default/app|"+c.say, r)
			if errors.Is(err, source.ErrInvalid) {
				t.Errorf("%v: is about the spec", err)
			}
		})
	}
	r := f.request("/acme/app")
	r.SecretName, r.Secret = "", source.Secret{}
	_, err = f.Login(t.Context(), r)
	if wantError(t, err, true, "spec.secretRef", r); !errors.Is(err, source.ErrInvalid) {
		t.Errorf("%v: is not about the spec", err)
	}
	r = f.request("/acme/app")
	r.ServiceAccount = "robot"
	_, err = f.Login(t.Context(), r)
	wantError(t, err, true, "spec.serviceAccountName", r)
	if requests := f.Requests(); len(requests) > 0 {
		t.Errorf("requests %q", requests)
	}
}

// TestHosts sends a token only to the host of the API that issued it.
func TestHosts(t *testing.T) {
	f := newFixture(t)
	f.client = &http.Client{Transport: refusingTransport{}}
	for _, c := range []struct {
		repository, base string
		good             bool
	}{
		{"https://github.com/acme/app", "", true},
		{"https://GitHub.com/acme/app", "", true},
		{"https://github.com:443/acme/app", "https://API.github.com", true},
		{"https://github.example/acme/app", "https://github.example/api/v3", true},
		{"https://github.example:8443/acme/app", "https://github.example:8443/api/v3", true},
		{"https://acme.ghe.com/acme/app", "https://api.acme.ghe.com", true},
		{"http://127.0.0.1:3000/acme/app", "http://127.0.0.1:3000/api/v3", true},
		{"https://github.com.evil.example/acme/app", "", false},
		{"https://github.com.evil.example/acme/app", "https://api.github.com", false},
		{"https://evil.example/github.com/app", "https://api.github.com", false},
		{"https://api.github.com.evil.example/acme/app", "https://api.github.com", false},
		{"https://other.github.com/acme/app", "https://api.github.com", false},
		{"https://github.example/acme/app", "https://api.github.com", false},
		{"https://github.com/acme/app", "https://github.example/api/v3", false},
		{"https://github.com:8443/acme/app", "https://api.github.com", false},
		{"http://github.com/acme/app", "https://api.github.com", false},
		{"http://github.com/acme/app", "", false},
		{"http://127.0.0.1:3000/acme/app", "http://127.0.0.1:3001/api/v3", false},
		{"https://github.example/acme/app", "https://api.api.github.example", false},
	} {
		r := f.request("/", "githubAppBaseURL", c.base)
		r.URL, _ = url.Parse(c.repository)
		_, err := f.Login(t.Context(), r)
		testenv.Equal(t, errors.Is(err, errReached) || strings.Contains(fmt.Sprint(err), "connection refused"), c.good, "%s with the API at %q: %v", c.repository, c.base, err)
		if !c.good && !errors.Is(err, source.ErrProvider) {
			t.Errorf("%v: does not wrap ErrProvider", err)
		}
	}
}

// refusingTransport fails all requests that would leave the machine.
type refusingTransport struct{}

var errReached = errors.New("reached")

func (refusingTransport) RoundTrip(*http.Request) (*http.Response, error) { return nil, errReached }

func TestAnswers(t *testing.T) {
	answer := func(status int, body string, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	for name, c := range map[string]struct {
		answer        http.HandlerFunc
		configuration bool
		say           string
	}{
		"unauthorised": {answer(401, `{"message":"A JSON web token could not be decoded"}`), true, "status 401|could not be decoded|githubAppPrivateKey"},
		"suspended":    {answer(403, `{"message":"This installation has been suspended"}`), true, "status 403|suspended"},
		"not found":    {answer(404, `{"message":"Integration not found"}`), true, "status 404|githubAppInstallationID"},
		"not allowed":  {answer(422, `{"message":"The permissions requested are not granted"}`), true, "status 422|not granted"},
		"limited":      {answer(403, `{"message":"API rate limit exceeded"}`, "X-RateLimit-Remaining", "0"), false, "status 403|rate limit"},
		"again later":  {answer(403, `{"message":"secondary rate limit"}`, "Retry-After", "60"), false, "status 403|secondary"},
		"too many":     {answer(429, ``), false, "status 429"},
		"server error": {answer(502, `<html>bad gateway</html>`), false, "status 502"},
		"echo": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			fmt.Fprintf(w, `{"message":"got %s"}`, r.Header.Get("Authorization"))
		}, false, "status 500|got"},
		"control characters":  {answer(500, `{"message":"a\u001b[31m\nb"}`), false, "a; b"},
		"long message":        {answer(500, `{"message":"`+strings.Repeat("m", 5000)+`"}`), false, "mmm…"},
		"not JSON":            {answer(201, `<html>`), false, "the answer is invalid"},
		"cut":                 {answer(201, `{"token":"ghs_canary`), false, "the answer is invalid"},
		"no token":            {answer(201, `{"expires_at":"2026-01-01T01:00:00Z"}`), false, "holds no token"},
		"forged header":       {answer(201, `{"token":"ghs_canary\r\nHost: evil"}`), false, "holds no token"},
		"wrong type":          {answer(201, `{"token":["ghs_canary"]}`), false, "the answer is invalid"},
		"wrong time":          {answer(201, `{"token":"ghs_canary","expires_at":"tomorrow"}`), false, "the answer is invalid"},
		"endless time":        {answer(201, `{"token":"ghs_canary","expires_at":"`+strings.Repeat("9", 9000)+`"}`), false, "the answer is invalid"},
		"huge":                {answer(201, `{"token":"`+strings.Repeat("x", 4<<20)+`"}`), false, "larger than 1048576 bytes"},
		"huge error":          {answer(500, `{"message":"`+strings.Repeat("x", 4<<20)+`"}`), false, "status 500"},
		"redirect elsewhere":  {answer(http.StatusTemporaryRedirect, ``, "Location", "https://evil.example/token"), false, "redirect to another host refused"},
		"redirect to nowhere": {answer(http.StatusTemporaryRedirect, ``, "Location", "http://[::1"+strings.Repeat("x", 9000)), false, "redirect without a valid address"},
		"redirect for ever": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		}, false, "more than 5 redirects"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.SetAnswer(c.answer)
			r := f.request("/acme/app")
			_, err := f.Login(t.Context(), r)
			wantError(t, err, c.configuration, c.say, r)
			if len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			f.SetAnswer(nil)
			if _, err := f.Login(t.Context(), r); err != nil {
				t.Errorf("once that is mended: %v", err)
			}
		})
	}
}

func TestOwners(t *testing.T) {
	for name, c := range map[string]struct {
		owner, answer string
		configuration bool
		say           string
	}{
		"nowhere":   {"somebody", ``, true, "not installed for somebody|githubAppInstallationOwner"},
		"no id":     {"acme", `{}`, false, "no id of the installation"},
		"bad id":    {"acme", `{"id":1.5}`, false, "no id of the installation"},
		"id 0":      {"acme", `{"id":0}`, false, "no id of the installation"},
		"not an id": {"acme", `{"id":"../x"}`, false, "the answer is invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if c.answer != "" {
				f.SetAnswer(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.answer) })
			}
			r := f.request("/acme/app", "githubAppInstallationID", "", "githubAppInstallationOwner", c.owner)
			_, err := f.Login(t.Context(), r)
			wantError(t, err, c.configuration, c.say, r)
		})
	}
}

func TestRedirectOnSameHost(t *testing.T) {
	f := newFixture(t)
	f.SetAnswer(func(w http.ResponseWriter, r *http.Request) {
		f.SetAnswer(nil)
		http.Redirect(w, r, strings.TrimPrefix(r.URL.Path, "/api/v3"), http.StatusTemporaryRedirect)
	})
	if f.login(t, "/acme/app"); len(f.Requests()) != 2 {
		t.Errorf("asked %q", f.Requests())
	}
}

// TestSkew accepts clocks that differ by half a minute at most.
func TestSkew(t *testing.T) {
	for skew, accepted := range map[time.Duration]bool{-90 * time.Second: true, 25 * time.Second: true, 40 * time.Second: false, -3 * time.Minute: false} {
		f := newFixture(t)
		f.Provider = &github.Provider{Now: func() time.Time { return f.clock.Now().Add(skew) }}
		r := f.request("/acme/app")
		_, err := f.Login(t.Context(), r)
		if accepted && err != nil {
			t.Errorf("%s: %v", skew, err)
		} else if !accepted {
			wantError(t, err, true, "clock", r)
		}
	}
}

// TestUnknownCA refuses an API whose CA is not trusted.
func TestUnknownCA(t *testing.T) {
	f := newFixture(t)
	f.client = transport.Client(transport.Config{})
	defer f.client.CloseIdleConnections()
	r := f.request("/acme/app")
	_, err := f.Login(t.Context(), r)
	wantError(t, err, false, "certificate", r)
	r.Client = nil
	_, err = f.Login(t.Context(), r)
	wantError(t, err, false, "certificate", r)
}
