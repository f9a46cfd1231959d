package github_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/github"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// key is generated once, because that takes a while.
var key = sync.OnceValue(func() *rsa.PrivateKey { return newKey() })

func newKey() *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return k
}

func pkcs1(k *rsa.PrivateKey) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)}))
}

func pkcs8(k any) string {
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// A fixture is an API and a provider that logs in to it.
type fixture struct {
	*testenv.GitHubServer
	*github.Provider
	clock  *logintest.Clock // of both
	client *http.Client
	secret map[string]string
}

func newFixture(t *testing.T) *fixture {
	ca := testenv.NewCA(t)
	f := &fixture{clock: logintest.NewClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	f.GitHubServer = testenv.ServeGitHub(t, testenv.GitHubConfig{
		CA: ca, App: "4711", Key: &key().PublicKey, Now: f.clock.Now,
		Installations: map[string]string{"orgs/acme": "1001", "users/alice": "1002"},
		Repositories:  []string{"app", "other"},
	})
	f.Provider = (&github.Provider{Now: f.clock.Now})
	f.client = transport.Client(transport.Config{TLS: &tls.Config{RootCAs: ca.Pool()}})
	t.Cleanup(f.client.CloseIdleConnections)
	f.secret = map[string]string{
		"githubAppID": "4711", "githubAppInstallationID": "1001", "githubAppPrivateKey": pkcs1(key()), "githubAppBaseURL": f.URL + "/api/v3",
	}
	return f
}

// request returns a request for a repository on the host of the API. changes are keys and
// values for the Secret of f; the value "" removes a key.
func (f *fixture) request(path string, changes ...string) source.LoginRequest {
	u, err := url.Parse(f.URL + path)
	if err != nil {
		panic(err)
	}
	values := maps.Clone(f.secret)
	for i := 0; i < len(changes); i += 2 {
		values[changes[i]] = changes[i+1]
	}
	s := source.Secret{Data: map[string][]byte{}}
	for k, v := range values {
		s.Data[k] = []byte(v)
	}
	return source.LoginRequest{Provider: "github", URL: u, Secret: s, SecretName: "default/app", Namespace: "default", Client: f.client}
}

func (f *fixture) login(t *testing.T, path string, changes ...string) source.Credential {
	t.Helper()
	c, err := f.Login(t.Context(), f.request(path, changes...))
	must(t, err)
	return c
}

const (
	oneRepoRequest  = `POST /api/v3/app/installations/1001/access_tokens {"repositories":["app"],"permissions":{"contents":"read"}}`
	allReposRequest = `POST /api/v3/app/installations/1001/access_tokens {"permissions":{"contents":"read"}}`
)

func TestLogin(t *testing.T) {
	byOwner := func(name string) []string {
		return []string{"githubAppInstallationID", "", "githubAppInstallationOwner", name}
	}
	for _, c := range []struct {
		name    string
		path    string
		changes []string
		want    []string // requests
	}{
		{"installation", "/acme/app", nil, []string{oneRepoRequest}},
		{"suffix", "/acme/app.git", nil, []string{oneRepoRequest}},
		{"PKCS 8", "/acme/app", []string{"githubAppPrivateKey", pkcs8(key())}, []string{oneRepoRequest}},
		{"slash at the end of the base URL", "/acme/app", []string{"githubAppBaseURL", "-/api/v3/"}, []string{oneRepoRequest}},
		{"organisation", "/acme/app", byOwner("acme"), []string{"GET /api/v3/orgs/acme/installation", oneRepoRequest}},
		{"user", "/alice/app", byOwner("alice"), []string{
			"GET /api/v3/orgs/alice/installation", "GET /api/v3/users/alice/installation", strings.Replace(oneRepoRequest, "1001", "1002", 1)}},
		{"repository that the installation cannot name", "/somebody/public", nil, []string{strings.Replace(oneRepoRequest, `"app"`, `"public"`, 1), allReposRequest}},
		{"no repository in the URL", "/", nil, []string{allReposRequest}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			for i, v := range c.changes {
				c.changes[i] = strings.Replace(v, "-/", f.URL+"/", 1)
			}
			got := f.login(t, c.path, c.changes...)
			if got.Username != "x-access-token" || got.Password != f.Tokens()[0] || got.Token != "" || !got.Expires.Equal(f.clock.Now().Add(time.Hour)) {
				t.Errorf("got %+v", got)
			}
			if requests := f.Requests(); !slices.Equal(requests, c.want) {
				t.Errorf("requests %q, want %q", requests, c.want)
			}
		})
	}
}

// wantError checks whether err is a configuration error, that it contains each part of say
// (separated by |), and that it contains none of the secrets of r.
func wantError(t *testing.T, err error, configuration bool, say string, r source.LoginRequest) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if errors.Is(err, source.ErrProvider) != configuration {
		t.Errorf("%v: wraps ErrProvider: %v", err, !configuration)
	}
	for s := range strings.SplitSeq(say, "|") {
		testenv.ErrorSays(t, err, s)
	}
	for _, secret := range []string{"canary", "eyJ"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%v: shows %s", err, secret)
		}
	}
	for line := range bytes.Lines(r.Secret.Data["githubAppPrivateKey"]) {
		if len(line) > 40 && strings.Contains(err.Error(), strings.TrimSpace(string(line))) {
			t.Errorf("%v: shows the key", err)
		}
	}
}

// services are the servers of github.com, which is reached through a proxy.
type services struct {
	api     *testenv.GitHubServer
	git     *testenv.GitServer
	proxy   *testenv.ProxyServer
	secrets logintest.Secrets
	login   source.LoginFunc
}

func newServices(t *testing.T, repo *testenv.Repo) *services {
	ca := testenv.NewCA(t)
	w := &services{login: new(github.Provider).Login}
	w.api = testenv.ServeGitHub(t, testenv.GitHubConfig{
		CA: ca, Names: []string{"api.github.com"}, App: "4711", Key: &key().PublicKey,
		Installations: map[string]string{"orgs/acme": "1001"}, Repositories: []string{"app"},
	})
	w.git = logintest.Serve(t, ca, "acme/app.git", repo, w.api.Allow, "github.com", "evil.example")
	w.proxy = testenv.ServeProxy(t, testenv.ProxyConfig{Hosts: map[string]string{
		"github.com:443": logintest.Host(w.git.URL), "evil.example:443": logintest.Host(w.git.URL), "api.github.com:443": logintest.Host(w.api.URL)}})
	w.secrets = logintest.Secrets{
		"proxy": {"address": w.proxy.URL},
		"app":   {"githubAppID": "4711", "githubAppInstallationOwner": "acme", "githubAppPrivateKey": pkcs1(key()), "ca.crt": string(ca.PEM())},
	}
	return w
}

// fetch fetches a repository, and checks that no secret shows.
func (w *services) fetch(t *testing.T, url string) logintest.Run {
	t.Helper()
	g := logintest.Repository("github", url)
	g.Spec.SecretRef = &source.LocalReference{Name: "app"}
	run := logintest.Reconcile(t, g, w.secrets, w.login)
	if strings.Contains(run.Texts, "canary") || strings.Contains(run.Texts, "eyJ") || strings.Contains(run.Texts, "BEGIN") {
		t.Errorf("a secret shows: %s", run.Texts)
	}
	return run
}

func TestFetch(t *testing.T) {
	w := newServices(t, logintest.Repo(t))
	run := w.fetch(t, "https://github.com/acme/app.git")
	if run.Err != nil {
		t.Fatal(run.Err)
	}
	if tokens := w.api.Tokens(); len(tokens) != 1 || !slices.Contains(run.Secrets, tokens[0]) {
		t.Errorf("%d tokens for one fetch, or one that is not kept secret", len(tokens))
	}
	if seen := strings.Join(w.proxy.Requests(), " "); !strings.Contains(seen, "CONNECT api.github.com:443") || !strings.Contains(seen, "CONNECT github.com:443") {
		t.Errorf("not through the proxy: %s", seen)
	}
}

// TestFetchFromLeakingServer shows no token, even if the git server repeats it.
func TestFetchFromLeakingServer(t *testing.T) {
	w := newServices(t, logintest.Repo(t))
	w.git.Break(&testenv.Defect{Do: testenv.Leak, Status: http.StatusInternalServerError})
	run := w.fetch(t, "https://github.com/acme/app.git")
	if run.Reason != "GitOperationFailed" {
		t.Errorf("%s, %v", run.Reason, run.Err)
	}
	for _, token := range w.api.Tokens() {
		if strings.Contains(run.Texts, token) {
			t.Errorf("shows a token: %s", run.Texts)
		}
	}
}

// TestFetchAfterRevocation does not use a refused token in the next run.
func TestFetchAfterRevocation(t *testing.T) {
	w := newServices(t, logintest.Repo(t))
	if run := w.fetch(t, "https://github.com/acme/app.git"); run.Err != nil {
		t.Fatal(run.Err)
	}
	w.api.Revoke()
	if run := w.fetch(t, "https://github.com/acme/app.git"); run.Reason != "AuthenticationFailed" {
		t.Fatalf("with a revoked token: %s, %v", run.Reason, run.Err)
	}
	if run := w.fetch(t, "https://github.com/acme/app.git"); run.Err != nil {
		t.Fatal(run.Err)
	}
}

// TestFetchRefused checks that the error names what refused the login.
func TestFetchRefused(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"message":"you sent %s"}`, r.Header.Get("Authorization"))
		}
	}
	for name, c := range map[string]struct {
		url    string
		change func(w *services)
		reason string
		say    string
		asked  bool // whether the API received requests
	}{
		"elsewhere": {"https://evil.example/acme/app.git", func(w *services) { w.secrets["app"]["githubAppBaseURL"] = "https://api.github.com" }, // its token is for no other host
			"InvalidProviderConfiguration", "evil.example", false},
		"no installation": {"https://github.com/acme/app.git", func(w *services) { w.api.SetAnswer(status(http.StatusNotFound)) }, "InvalidProviderConfiguration", "not installed for acme", true},
		"unavailable":     {"https://github.com/acme/app.git", func(w *services) { w.api.SetAnswer(status(http.StatusServiceUnavailable)) }, "AuthenticationFailed", "status 503", true},
		"no Secret":       {"https://github.com/acme/app.git", func(w *services) { delete(w.secrets, "app") }, "AuthenticationFailed", "default/app", false},
	} {
		w := newServices(t, logintest.Repo(t))
		c.change(w)
		run := w.fetch(t, c.url)
		if run.RequireFailure(t, c.reason, c.say); (len(w.api.Requests()) > 0) != c.asked || len(w.git.Requests()) > 0 {
			t.Errorf("%s: the API was asked %q, the repository %d times", name, w.api.Requests(), len(w.git.Requests()))
		}
	}
}

// A GitHub App, whose key is in the Secret, gives access to a repository of GitHub.
func Example() {
	app := &source.GitRepository{Spec: source.GitRepositorySpec{Provider: "github", URL: "https://github.com/team/app", SecretRef: &source.LocalReference{Name: "app"}}}
	origin := git.New(app, source.Env{Secrets: source.DirSecrets("secrets"), Login: new(github.Provider).Login})
	revision, _, err := origin.Resolve(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(revision.ID)
}

var must = testenv.Must
