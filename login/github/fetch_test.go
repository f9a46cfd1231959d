package github_test

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/login/github"
	"github.com/headgate-io/headgate/source"
)

// secrets are Secrets of namespace default by name.
type secrets map[string]map[string]string

func (m secrets) Secret(_ context.Context, _, name string) (source.Secret, error) {
	s := source.Secret{Data: map[string][]byte{}}
	for k, v := range m[name] {
		s.Data[k] = []byte(v)
	}
	return s, nil
}

func (m secrets) PullSecrets(context.Context, string, string) ([]source.Secret, error) {
	return nil, nil
}

// A world has github.com, which is reached through a proxy.
type world struct {
	api     *testenv.GitHubServer
	git     *testenv.Server
	proxy   *testenv.ProxyServer
	secrets secrets
	login   source.LoginFunc
}

func newWorld(t *testing.T) *world {
	ca := testenv.NewCA(t)
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: fstest.MapFS{"a": {Data: []byte("1"), Mode: 0o644}}})
	w := &world{login: github.New(nil).Login}
	w.api = testenv.ServeGitHub(t, testenv.GitHub{
		CA: ca, Names: []string{"api.github.com"}, App: "4711", Key: &key().PublicKey,
		Installations: map[string]string{"orgs/acme": "1001"}, Repositories: []string{"app"},
	})
	w.git = testenv.ServeAll(t, testenv.HTTP{CA: ca, Names: []string{"github.com", "evil.example"}, Allow: w.api.Allow},
		map[string]*testenv.Repo{"acme/app.git": repo})
	w.proxy = testenv.ServeProxy(t, testenv.Proxy{Hosts: map[string]string{
		"github.com:443": hostOf(w.git.URL), "evil.example:443": hostOf(w.git.URL), "api.github.com:443": hostOf(w.api.URL)}})
	w.secrets = secrets{
		"proxy": {"address": w.proxy.URL},
		"app":   {"githubAppID": "4711", "githubAppInstallationOwner": "acme", "githubAppPrivateKey": pkcs1(key()), "ca.crt": string(ca.PEM())},
	}
	return w
}

func hostOf(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u.Host
}

func (w *world) object(url string) *source.GitRepository {
	g := &source.GitRepository{
		Header: source.Header{APIVersion: "source.toolkit.fluxcd.io/v1", Kind: "GitRepository", Metadata: source.Metadata{Name: "app", Namespace: "default", Generation: 1}},
		Spec: source.GitRepositorySpec{
			URL: url, Provider: "github", Ref: &source.GitRepositoryRef{Branch: "main"},
			SecretRef: &source.LocalReference{Name: "app"}, ProxySecretRef: &source.LocalReference{Name: "proxy"},
			Timeout: source.Duration(time.Minute), Interval: source.Duration(time.Minute),
		},
	}
	return g
}

func (w *world) fetch(ctx context.Context, g *source.GitRepository) (*git.Origin, error) {
	o := git.New(g, source.Env{Secrets: w.secrets, Login: w.login})
	rev, _, err := o.Resolve(ctx, nil)
	if err != nil {
		return o, err
	}
	c, err := o.Open(ctx, rev)
	if err != nil {
		return o, err
	}
	defer c.Close()
	_, err = c.WriteTo(ctx, new(bytes.Buffer))
	return o, err
}

func TestFetch(t *testing.T) {
	w := newWorld(t)
	o, err := w.fetch(t.Context(), w.object("https://github.com/acme/app.git"))
	if err != nil {
		t.Fatal(err)
	}
	if tokens := w.api.Tokens(); len(tokens) != 1 || !slices.Contains(o.Secrets(), tokens[0]) {
		t.Errorf("%d tokens for one fetch, or one that is not kept secret", len(tokens))
	}
	if seen := strings.Join(w.proxy.Seen(), " "); !strings.Contains(seen, "CONNECT api.github.com:443") || !strings.Contains(seen, "CONNECT github.com:443") {
		t.Errorf("not through the proxy: %s", seen)
	}
}

// A token that the server no longer accepts is not used by the next run.
func TestFetchAfterRevocation(t *testing.T) {
	w := newWorld(t)
	g := w.object("https://github.com/acme/app.git")
	if _, err := w.fetch(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	w.api.Revoke()
	var step *source.StepError
	if _, err := w.fetch(t.Context(), g); !errors.As(err, &step) || step.Reason != "AuthenticationFailed" {
		t.Fatalf("with a revoked token: %v", err)
	}
	if _, err := w.fetch(t.Context(), g); err != nil {
		t.Fatal(err)
	}
}

// The token of an app on github.com is for no other host.
func TestFetchFromElsewhere(t *testing.T) {
	w := newWorld(t)
	w.secrets["app"]["githubAppBaseURL"] = "https://api.github.com"
	_, err := w.fetch(t.Context(), w.object("https://evil.example/acme/app"))
	var step *source.StepError
	if !errors.As(err, &step) || step.Reason != "InvalidProviderConfiguration" || len(w.api.Requests())+len(w.git.Requests()) > 0 {
		t.Errorf("%v, after %q", err, w.api.Requests())
	}
}
