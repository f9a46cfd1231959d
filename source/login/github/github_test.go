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
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/github"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
	"github.com/headgate-io/headgate/source/sourcetest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// key is made once: it takes a while.
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

// A fixture is an API and somebody who logs in there.
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
	f.GitHubServer = testenv.ServeGitHub(t, testenv.GitHub{
		CA: ca, App: "4711", Key: &key().PublicKey, Now: f.clock.Now,
		Installations: map[string]string{"orgs/acme": "1001", "users/alice": "1002"},
		Repositories:  []string{"app", "other"},
	})
	f.Provider = github.New(f.clock.Now)
	f.client = transport.Client(transport.Config{TLS: &tls.Config{RootCAs: ca.Pool()}})
	t.Cleanup(f.client.CloseIdleConnections)
	f.secret = map[string]string{
		"githubAppID": "4711", "githubAppInstallationID": "1001", "githubAppPrivateKey": pkcs1(key()), "githubAppBaseURL": f.URL + "/api/v3",
	}
	return f
}

// request returns a request for a repository on the host of the API, with the
// Secret of f changed: "" removes a key.
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
	narrow = `POST /api/v3/app/installations/1001/access_tokens {"repositories":["app"],"permissions":{"contents":"read"}}`
	wide   = `POST /api/v3/app/installations/1001/access_tokens {"permissions":{"contents":"read"}}`
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
		{"installation", "/acme/app", nil, []string{narrow}},
		{"suffix", "/acme/app.git", nil, []string{narrow}},
		{"PKCS 8", "/acme/app", []string{"githubAppPrivateKey", pkcs8(key())}, []string{narrow}},
		{"slash at the end of the base URL", "/acme/app", []string{"githubAppBaseURL", "-/api/v3/"}, []string{narrow}},
		{"organisation", "/acme/app", byOwner("acme"), []string{"GET /api/v3/orgs/acme/installation", narrow}},
		{"user", "/alice/app", byOwner("alice"), []string{
			"GET /api/v3/orgs/alice/installation", "GET /api/v3/users/alice/installation", strings.Replace(narrow, "1001", "1002", 1)}},
		{"repository that the installation cannot name", "/somebody/public", nil, []string{strings.Replace(narrow, `"app"`, `"public"`, 1), wide}},
		{"no repository in the URL", "/", nil, []string{wide}},
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
			if asked := f.Requests(); !slices.Equal(asked, c.want) {
				t.Errorf("asked %q, want %q", asked, c.want)
			}
		})
	}
}

// wantError checks that err is one of the configuration or not, says each part
// of say (separated by |), and none of the secrets of r.
func wantError(t *testing.T, err error, configuration bool, say string, r source.LoginRequest) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if errors.Is(err, source.ErrProvider) != configuration {
		t.Errorf("%v: wraps ErrProvider: %v", err, !configuration)
	}
	for s := range strings.SplitSeq(say, "|") {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%v: does not say %s", err, s)
		}
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

// A world has github.com, which is reached through a proxy.
type world struct {
	api     *testenv.GitHubServer
	git     *testenv.Server
	proxy   *testenv.ProxyServer
	secrets logintest.Secrets
	login   source.LoginFunc
}

func newWorld(t *testing.T, repo *testenv.Repo) *world {
	ca := testenv.NewCA(t)
	w := &world{login: github.New(nil).Login}
	w.api = testenv.ServeGitHub(t, testenv.GitHub{
		CA: ca, Names: []string{"api.github.com"}, App: "4711", Key: &key().PublicKey,
		Installations: map[string]string{"orgs/acme": "1001"}, Repositories: []string{"app"},
	})
	w.git = logintest.Serve(t, ca, "acme/app.git", repo, w.api.Allow, "github.com", "evil.example")
	w.proxy = testenv.ServeProxy(t, testenv.Proxy{Hosts: map[string]string{
		"github.com:443": logintest.Host(w.git.URL), "evil.example:443": logintest.Host(w.git.URL), "api.github.com:443": logintest.Host(w.api.URL)}})
	w.secrets = logintest.Secrets{
		"proxy": {"address": w.proxy.URL},
		"app":   {"githubAppID": "4711", "githubAppInstallationOwner": "acme", "githubAppPrivateKey": pkcs1(key()), "ca.crt": string(ca.PEM())},
	}
	return w
}

// fetch fetches a repository, and checks that no secret shows.
func (w *world) fetch(t *testing.T, url string) logintest.Run {
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
	w := newWorld(t, logintest.Repo(t))
	run := w.fetch(t, "https://github.com/acme/app.git")
	if run.Err != nil {
		t.Fatal(run.Err)
	}
	if tokens := w.api.Tokens(); len(tokens) != 1 || !slices.Contains(run.Secrets, tokens[0]) {
		t.Errorf("%d tokens for one fetch, or one that is not kept secret", len(tokens))
	}
	if seen := strings.Join(w.proxy.Seen(), " "); !strings.Contains(seen, "CONNECT api.github.com:443") || !strings.Contains(seen, "CONNECT github.com:443") {
		t.Errorf("not through the proxy: %s", seen)
	}
}

// A git server that repeats the token that it was shown puts it into no text.
func TestFetchFromLeakingServer(t *testing.T) {
	w := newWorld(t, logintest.Repo(t))
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

// A token that the server no longer accepts is not used by the next run.
func TestFetchAfterRevocation(t *testing.T) {
	w := newWorld(t, logintest.Repo(t))
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

// The token of an app on github.com is for no other host.
func TestFetchFromElsewhere(t *testing.T) {
	w := newWorld(t, logintest.Repo(t))
	w.secrets["app"]["githubAppBaseURL"] = "https://api.github.com"
	run := w.fetch(t, "https://evil.example/acme/app.git")
	if run.Reason != "InvalidProviderConfiguration" || len(w.api.Requests())+len(w.git.Requests()) > 0 {
		t.Errorf("%s, %v, after %q", run.Reason, run.Err, w.api.Requests())
	}
}

// A repository of GitHub is asked as a GitHub App, whose key is in the Secret.
func Example() {
	app := &source.GitRepository{Spec: source.GitRepositorySpec{Provider: "github", URL: "https://github.com/team/app", SecretRef: &source.LocalReference{Name: "app"}}}
	origin := git.New(app, source.Env{Secrets: source.DirSecrets("secrets"), Login: github.New(nil).Login})
	revision, _, err := origin.Resolve(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(revision.ID)
}

// forge is a repository on github.com that a GitHub App reads.
type forge struct {
	*world
	repo   *testenv.Repo
	defect sourcetest.Defect
}

func newForge(t *testing.T) *forge {
	repo := testenv.NewRepo(t)
	return &forge{world: newWorld(t, repo), repo: repo}
}

func (f *forge) Publish(tree fstest.MapFS) error {
	f.repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	return nil
}

var defects = map[sourcetest.Defect]*testenv.Defect{
	sourcetest.Gone:         testenv.Status(http.StatusNotFound),
	sourcetest.Denied:       testenv.Status(http.StatusForbidden),
	sourcetest.StallResolve: {Phase: testenv.LsRefs, Do: testenv.Stall, After: -1}, // of a server that is known, which is not greeted
	sourcetest.StallFetch:   {Phase: testenv.Pack, Do: testenv.Stall, After: 100},
}

func (f *forge) Break(d sourcetest.Defect) <-chan struct{} {
	f.defect = d
	f.login = github.New(nil).Login // keeps nothing yet
	f.api.Answer(nil)
	switch d {
	case sourcetest.Leaking:
		return f.git.Break(&testenv.Defect{Status: http.StatusInternalServerError, Header: http.Header{"Content-Type": {"text/plain"}},
			Body: fmt.Sprintf("not x-access-token:ghs_canary%06d", len(f.api.Tokens())+1)})
	case "no installation":
		f.api.Answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	case "unavailable":
		f.api.Answer(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			w.Write([]byte(`{"message":"you sent ` + r.Header.Get("Authorization") + `"}`))
		})
	}
	return f.git.Break(defects[d])
}

func (f *forge) Object() source.Object {
	g := logintest.Repository("github", "https://github.com/acme/app.git")
	g.Spec.SecretRef = &source.LocalReference{Name: "app"}
	g.Metadata.Generation = 0
	g.Spec.Interval = source.Duration(time.Hour)
	switch f.defect {
	case sourcetest.NoSecret:
		g.Spec.SecretRef.Name = "absent"
	case sourcetest.Invalid:
		g.Spec.SecretRef = nil
	}
	return g
}

func (f *forge) Origin(obj source.Object) source.Origin {
	return git.New(obj.(*source.GitRepository), source.Env{Secrets: f.secrets, Login: f.login})
}

func (f *forge) Traffic() (t sourcetest.Traffic) {
	for _, q := range f.git.Requests() {
		t.Requests++
		if q.Phase == testenv.Pack {
			t.Content++
		}
	}
	return t
}

func (f *forge) Secrets() []string { return append(f.api.Tokens(), "BEGIN RSA PRIVATE KEY", "eyJ") }

func TestConformance(t *testing.T) {
	t.Parallel()
	const fetch = "FetchFailed"
	sourcetest.Run(t, sourcetest.Kind{
		Name: "GitRepository of a GitHub App",
		Open: func(tb sourcetest.TB) sourcetest.Upstream { return newForge(tb.(*testing.T)) }, Variant: true,
		Drift: func(obj source.Object) {
			ignore := "/nothing-of-that-name\n"
			obj.(*source.GitRepository).Spec.Ignore = &ignore
		},
		Failures: []sourcetest.Failure{
			{Defect: sourcetest.Gone, Outcome: source.Failed, Condition: fetch, Reason: "GitOperationFailed", Message: "not found"},
			{Defect: sourcetest.Denied, Outcome: source.Failed, Condition: fetch, Reason: "AuthenticationFailed", Message: "authentication failed"},
			{Defect: sourcetest.NoSecret, Outcome: source.Failed, Condition: fetch, Reason: "AuthenticationFailed", Message: "default/absent"},
			{Defect: sourcetest.Invalid, Outcome: source.Stalled, Condition: fetch, Reason: "InvalidProviderConfiguration", Message: "spec.secretRef"},
			{Defect: sourcetest.Leaking, Outcome: source.Failed, Condition: fetch, Reason: "GitOperationFailed", Message: "500"},
			{Defect: "no installation", Outcome: source.Failed, Condition: fetch, Reason: "InvalidProviderConfiguration", Message: "not installed for acme"},
			{Defect: "unavailable", Outcome: source.Failed, Condition: fetch, Reason: "AuthenticationFailed", Message: "status 503"},
		},
		Stalls:       []sourcetest.Defect{sourcetest.StallResolve, sourcetest.StallFetch},
		Hostile:      []string{"../up", ".git/config"},
		IgnoreFile:   ".sourceignore",
		IgnoreNested: true,
	})
}

var must = testenv.Must
