package git_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// issuer is a provider that issues one credential and notes who asks.
type issuer struct {
	credential source.Credential
	err        error
	requests   []source.LoginRequest
	refused    int
}

func (i *issuer) login(ctx context.Context, r source.LoginRequest) (source.Credential, error) {
	i.requests = append(i.requests, r)
	if r.Client == nil || ctx.Err() != nil {
		return source.Credential{}, errors.New("no client, or too late")
	}
	c := i.credential
	c.Refused = func() { i.refused++ }
	return c, i.err
}

func TestLogin(t *testing.T) {
	ca := testenv.NewCA(t)
	for name, c := range map[string]struct {
		config testenv.HTTP
		issued source.Credential
		reason string
	}{
		"bearer token":       {testenv.HTTP{Bearer: "t0ken-canary"}, source.Credential{Token: "t0ken-canary", Expires: time.Now()}, ""},
		"password":           {testenv.HTTP{Username: "AKIA%session", Password: "p4ss-canary"}, source.Credential{Username: "AKIA%session", Password: "p4ss-canary"}, ""},
		"what is not wanted": {testenv.HTTP{Bearer: "other"}, source.Credential{Token: "t0ken-canary"}, auth},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.CA = ca
			server := testenv.ServeHTTP(t, c.config, one(t))
			g := object(server.Repo(), source.GitRepositoryRef{Branch: "main"})
			g.Spec.Provider, g.Spec.SecretRef, g.Spec.ServiceAccountName = "azure", &source.LocalReference{Name: "login"}, "robot"
			i := &issuer{credential: c.issued}
			env := source.Env{Login: i.login, Secrets: sourcetest.Secrets{"default/login": sourcetest.Secret("ca.crt", string(ca.PEM()), "username", "not", "password", "used")}}
			o := git.New(g, env)
			_, _, err := o.Resolve(t.Context(), nil)
			wantReason(t, err, c.reason)
			if refused := i.refused > 0; refused != (c.reason != "") {
				t.Errorf("told to be refused: %v", refused)
			}
			for _, s := range []string{c.issued.Username, c.issued.Password, c.issued.Token} {
				if s != "" && !slices.Contains(o.Secrets(), s) {
					t.Errorf("%q is not kept secret", s)
				}
			}
			r := i.requests[0]
			if r.Provider != "azure" || r.URL.String() != server.Repo() || r.SecretName != "default/login" || r.Namespace != "default" || r.ServiceAccount != "robot" || !r.OwnTrust {
				t.Errorf("asked for %+v", r)
			}
			if resp, err := r.Client.Get(server.URL); err != nil || resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("the client is refused by the CA, or has credentials: %v, %v", resp, err)
			} else {
				resp.Body.Close()
			}
		})
	}
}

func wantReason(t *testing.T, err error, reason string) {
	t.Helper()
	var step *source.StepError
	if reason == "" && err == nil {
		return
	}
	if !errors.As(err, &step) || step.Reason != reason {
		t.Errorf("%v: want reason %q", err, reason)
	}
}

func TestLoginFailures(t *testing.T) {
	const provider = "InvalidProviderConfiguration"
	server := testenv.ServeHTTP(t, testenv.HTTP{}, one(t))
	app := sourcetest.Secret("githubAppID", "1", "githubAppPrivateKey", "canary")
	for _, c := range []struct {
		name    string
		change  func(*source.GitRepository)
		secret  source.Secret
		err     error
		without bool // Env.Login
		reason  string
		stalled bool
		say     string
	}{
		{name: "no provider is known", without: true, reason: provider, stalled: true, say: "knows no provider azure"},
		{name: "ssh", change: func(g *source.GitRepository) { g.Spec.URL = "ssh://git@example.com/x" }, reason: provider, stalled: true, say: "not with ssh"},
		{name: "user information", change: func(g *source.GitRepository) { g.Spec.URL = "https://canary:canary@example.com/x" }, reason: provider, stalled: true, say: "without user information"},
		{name: "misconfigured", err: fmt.Errorf("%w: no key", source.ErrProvider), reason: provider, say: "provider azure|no key"},
		{name: "hopeless", err: fmt.Errorf("%w: %w: no key", source.ErrInvalid, source.ErrProvider), reason: provider, stalled: true, say: "no key"},
		{name: "down", err: errors.New("token service is down"), reason: auth, say: "provider azure|token service is down"},
		{name: "bad CA", secret: sourcetest.Secret("ca.crt", "canary"), reason: auth, say: "default/login|ca.crt"},
		{name: "app without its provider", secret: app, change: func(g *source.GitRepository) { g.Spec.Provider = "generic" }, reason: provider, stalled: true, say: "default/login|provider github"},
		{name: "app without any provider", secret: app, change: func(g *source.GitRepository) { g.Spec.Provider = "" }, reason: provider, stalled: true, say: "default/login|provider github"},
		{name: "app with another provider", secret: app, reason: provider, stalled: true, say: "default/login|provider github"},
		{name: "service account without provider", change: func(g *source.GitRepository) { g.Spec.Provider, g.Spec.ServiceAccountName = "", "robot" }, reason: provider, stalled: true, say: "spec.serviceAccountName"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := object(server.Repo(), source.GitRepositoryRef{Branch: "main"})
			g.Spec.Provider = "azure"
			if c.secret.Data != nil {
				g.Spec.SecretRef = &source.LocalReference{Name: "login"}
			}
			if c.change != nil {
				c.change(g)
			}
			env := source.Env{Login: (&issuer{err: c.err}).login, Secrets: sourcetest.Secrets{"default/login": c.secret}}
			if c.without {
				env.Login = nil
			}
			_, _, err := git.New(g, env).Resolve(t.Context(), nil)
			wantReason(t, err, c.reason)
			if err == nil || errors.Is(err, source.ErrInvalid) != c.stalled || strings.Contains(err.Error(), "canary") {
				t.Fatalf("%v: stalled should be %v", err, c.stalled)
			}
			for s := range strings.SplitSeq(c.say, "|") {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%v: does not say %s", err, s)
				}
			}
		})
	}
	if n := len(server.Requests()); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// What a provider issues is for the origin of spec.url, each submodule with its
// own login; what a Secret is given for comes first.
func TestLoginOfSubmodules(t *testing.T) {
	app, lib, other, public := testenv.NewRepo(t), testenv.NewRepo(t), testenv.NewRepo(t), one(t)
	allow := func(r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		if strings.HasPrefix(r.URL.Path, "/other.git") && r.Header.Get("Authorization") != "" {
			return user == "alice" && password == "s3cret-canary"
		}
		return r.Header.Get("Authorization") == "Bearer t0ken-canary"
	}
	server := testenv.ServeAll(t, testenv.HTTP{Allow: allow}, map[string]*testenv.Repo{"app.git": app, "lib.git": lib})
	guarded := testenv.ServeAll(t, testenv.HTTP{Allow: allow}, map[string]*testenv.Repo{"other.git": other})
	foreign := testenv.ServeHTTP(t, testenv.HTTP{}, public)
	inLib := linked(lib, map[string]string{"l": "1"})
	linked(app, map[string]string{"a": "1"}, link{"lib", "../lib.git", inLib},
		link{"again", strings.Replace(server.URL, "://", "://me@", 1) + "/lib.git", inLib},
		link{"other", guarded.URL + "/other.git", linked(other, map[string]string{"o": "1"})},
		link{"foreign", foreign.Repo(), public.Commit(testenv.Commit{Branch: "main", Files: files("f", "1")})})
	g := recursing(server.URL + "/app.git")
	g.Spec.Provider = "azure"
	g.Spec.SubmoduleCredentials = []source.GitSubmoduleCredential{{URL: guarded.URL, SecretRef: source.LocalReference{Name: "other"}}}
	i := &issuer{credential: source.Credential{Token: "t0ken-canary"}}
	_, archive, _, err := try(t.Context(), g, source.Env{Login: i.login, Secrets: sourcetest.Secrets{"default/other": sourcetest.Secret("username", "alice", "password", "s3cret-canary")}})
	if err != nil {
		t.Fatal(err)
	}
	if got := contents(t, archive); got["a"]+got["lib/l"]+got["again/l"]+got["other/o"]+got["foreign/f"] != "11111" {
		t.Errorf("content %v", got)
	}
	var asked []string
	for _, r := range i.requests {
		asked = append(asked, strings.TrimPrefix(r.URL.String(), server.URL))
	}
	slices.Sort(asked)
	if want := []string{"/app.git", "/app.git", "/lib.git"}; !slices.Equal(slices.Compact(asked), slices.Compact(want)) {
		t.Errorf("logged in for %q", asked)
	}
	for _, q := range foreign.Requests() {
		if q.Authorization != "" {
			t.Errorf("another origin was shown %q", q.Authorization)
		}
	}
	// Instead of the provider's, on the origin of spec.url.
	g.Spec.SubmoduleCredentials = append(g.Spec.SubmoduleCredentials, source.GitSubmoduleCredential{URL: server.URL, SecretRef: source.LocalReference{Name: "other"}})
	if _, _, _, err := try(t.Context(), g, source.Env{Login: i.login, Secrets: sourcetest.Secrets{"default/other": sourcetest.Secret("bearerToken", "wr0ng-canary")}}); err == nil || !strings.Contains(err.Error(), "submodule") {
		t.Errorf("with other credentials for submodules: %v", err)
	}
}
