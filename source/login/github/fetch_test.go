package github_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/github"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

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
