package git_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

func newOneFileRepo(t *testing.T) *testenv.Repo {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "1")})
	return repo
}

// A credentialTest is a fetch with some credentials. Without a reason it succeeds;
// otherwise the error has the reason and contains each part of say, separated by |.
type credentialTest struct {
	name   string
	secret source.Secret
	reason string
	say    string
}

func (a credentialTest) run(t *testing.T, url string, change func(*source.GitRepository, sourcetest.Secrets)) {
	t.Run(a.name, func(t *testing.T) {
		g := object(url, source.GitRepositoryRef{Branch: "main"})
		secrets := sourcetest.Secrets{}
		if a.secret.Data != nil {
			g.Spec.SecretRef = &source.LocalReference{Name: "login"}
			secrets["default/login"] = a.secret
		}
		if change != nil {
			change(g, secrets)
		}
		_, archive, _, err := try(t.Context(), g, source.Env{Secrets: secrets})
		if a.reason == "" {
			if err != nil || contents(t, archive)["a"] != "1" {
				t.Fatalf("fetch: %v", err)
			}
			return
		}
		wantStep(t, err, a.reason, a.say)
		for key, value := range a.secret.Data {
			if len(value) > 4 && key != "username" && strings.Contains(err.Error(), strings.TrimSpace(string(value))) {
				t.Errorf("%v: shows the value of %s", err, key)
			}
		}
	})
}

const (
	authFailed = "AuthenticationFailed"
	gitFailed  = "GitOperationFailed"
	// In TLS 1.3 a server refuses a client certificate after the handshake. Its
	// reason may be lost when the client is still writing.
	authOrGitFailed = authFailed + "|" + gitFailed
)

func TestBasicAuth(t *testing.T) {
	url := testenv.ServeGit(t, testenv.GitConfig{Username: "alice", Password: "s3cret pass"}, newOneFileRepo(t)).Repo()
	for _, a := range []credentialTest{
		{"right", sourcetest.Secret("username", "alice", "password", "s3cret pass"), "", ""},
		{"wrong password", sourcetest.Secret("username", "alice", "password", "wrong-password"), authFailed, "authentication failed|check the credentials in the Secret"},
		{"none", source.Secret{}, authFailed, "authentication failed"},
		{"empty secret", sourcetest.Secret("other", "x"), authFailed, "authentication failed"},
		{"password alone", sourcetest.Secret("password", "s3cret pass"), authFailed, "default/login|username"},
		{"both", sourcetest.Secret("username", "alice", "password", "s3cret pass", "bearerToken", "token"), authFailed, "default/login|bearerToken"},
	} {
		a.run(t, url, nil)
	}
	bearer := testenv.ServeGit(t, testenv.GitConfig{Bearer: "t0ken-canary"}, newOneFileRepo(t)).Repo()
	credentialTest{"bearer token", sourcetest.Secret("bearerToken", "t0ken-canary"), "", ""}.run(t, bearer, nil)
	credentialTest{"wrong bearer token", sourcetest.Secret("bearerToken", "other-token"), authFailed, "authentication failed"}.run(t, bearer, nil)
	credentialTest{name: "in the URL"}.run(t, strings.Replace(url, "://", "://alice:s3cret%20pass@", 1), nil)
	credentialTest{"absent secret", source.Secret{}, authFailed, "spec.secretRef|default/absent"}.run(t, url, func(g *source.GitRepository, _ sourcetest.Secrets) {
		g.Spec.SecretRef = &source.LocalReference{Name: "absent"}
	})
	_, _, err := git.New(func() *source.GitRepository {
		g := object(url, source.GitRepositoryRef{})
		g.Spec.SecretRef = &source.LocalReference{Name: "login"}
		return g
	}(), source.Env{}).Resolve(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "default/login") {
		t.Errorf("without any Secrets: %v", err)
	}
}

func TestTLS(t *testing.T) {
	ca, other := testenv.NewCA(t), testenv.NewCA(t)
	cert, key := ca.Client("tester")
	otherCert, otherKey := other.Client("stranger")
	repo := newOneFileRepo(t)
	private := testenv.ServeGit(t, testenv.GitConfig{CA: ca}, repo).Repo()
	mutual := testenv.ServeGit(t, testenv.GitConfig{CA: ca, Mutual: true}, repo).Repo()
	full := testenv.ServeGit(t, testenv.GitConfig{CA: ca, Mutual: true, Username: "alice", Password: "s3cret"}, repo).Repo()
	for _, row := range []struct {
		url string
		credentialTest
	}{
		{private, credentialTest{"ca.crt", sourcetest.Secret("ca.crt", string(ca.PEM())), "", ""}},
		{private, credentialTest{"caFile", sourcetest.Secret("caFile", string(ca.PEM())), "", ""}},
		{private, credentialTest{"no ca", source.Secret{}, gitFailed, "certificate|ca.crt"}},
		{private, credentialTest{"wrong ca", sourcetest.Secret("ca.crt", string(other.PEM())), gitFailed, "certificate|ca.crt"}},
		{private, credentialTest{"ca that is none", sourcetest.Secret("ca.crt", "rubbish"), authFailed, "default/login|ca.crt"}},
		{mutual, credentialTest{"client certificate", sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)), "", ""}},
		{mutual, credentialTest{"no client certificate", sourcetest.Secret("ca.crt", string(ca.PEM())), authOrGitFailed, "git advertisement"}},
		{mutual, credentialTest{"other client certificate", sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(otherCert), "tls.key", string(otherKey)), authOrGitFailed, "git advertisement"}},
		{mutual, credentialTest{"certificate without key", sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert)), authFailed, "default/login|tls.key"}},
		{mutual, credentialTest{"key of another", sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(otherKey)), authFailed, "default/login|tls"}},
		{full, credentialTest{"all", sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key), "username", "alice", "password", "s3cret"), "", ""}},
		{full, credentialTest{"all but the password", sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)), authFailed, "authentication failed"}},
	} {
		row.run(t, row.url, nil)
	}
}

func TestSSH(t *testing.T) {
	repo := newOneFileRepo(t)
	identity, public := testenv.UserKey(t, "")
	locked, lockedPublic := testenv.UserKey(t, "open sesame")
	stranger, _ := testenv.UserKey(t, "")
	s := testenv.ServeSSH(t, testenv.SSHConfig{Users: []ssh.PublicKey{public, lockedPublic}}, map[string]*testenv.Repo{"repo.git": repo})
	id, known := string(identity), string(s.KnownHosts(false))
	_, other := testenv.UserKey(t, "")
	elsewhere := strings.Fields(known)[0] + " " + string(ssh.MarshalAuthorizedKey(other))
	for _, a := range []credentialTest{
		{"key", sourcetest.Secret("identity", id, "known_hosts", known), "", ""},
		{"hashed hosts", sourcetest.Secret("identity", id, "known_hosts", string(s.KnownHosts(true))), "", ""},
		{"passphrase", sourcetest.Secret("identity", string(locked), "known_hosts", known, "password", "open sesame"), "", ""},
		{"no passphrase", sourcetest.Secret("identity", string(locked), "known_hosts", known), authFailed, "passphrase"},
		{"stranger", sourcetest.Secret("identity", string(stranger), "known_hosts", known), authFailed, "authentication failed"},
		{"no identity", sourcetest.Secret("known_hosts", known), authFailed, "default/login|identity"},
		{"no known_hosts", sourcetest.Secret("identity", id), authFailed, "default/login|known_hosts"},
		{"unknown host", sourcetest.Secret("identity", id, "known_hosts", strings.Replace(known, "127.0.0.1", "127.0.0.9", -1)), authFailed, "known_hosts|SHA256:"},
		{"changed host key", sourcetest.Secret("identity", id, "known_hosts", elsewhere), authFailed, "SHA256:|" + ssh.FingerprintSHA256(s.HostKeys[0].PublicKey())},
	} {
		a.run(t, s.Repo(), nil)
	}
	_, _, _, err := try(t.Context(), object(s.Repo(), source.GitRepositoryRef{}), source.Env{})
	if !errors.Is(err, source.ErrInvalid) || !strings.Contains(err.Error(), "identity and known_hosts") {
		t.Errorf("without secretRef: %v", err)
	}
}

func TestProxies(t *testing.T) {
	repo := newOneFileRepo(t)
	ca := testenv.NewCA(t)
	identity, public := testenv.UserKey(t, "")
	plain := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	secure := testenv.ServeGit(t, testenv.GitConfig{CA: ca}, repo)
	shell := testenv.ServeSSH(t, testenv.SSHConfig{Users: []ssh.PublicKey{public}}, map[string]*testenv.Repo{"repo.git": repo})
	for _, scheme := range []string{"http", "https", "socks5"} {
		p := testenv.ServeProxy(t, testenv.ProxyConfig{Scheme: scheme, CA: ca, Username: "proxy", Password: "pr0xy-pass"})
		for _, target := range []struct {
			url   string
			login source.Secret
		}{
			{plain.Repo(), sourcetest.Secret("ca.crt", string(ca.PEM()))},
			{secure.Repo(), sourcetest.Secret("ca.crt", string(ca.PEM()))},
			{shell.Repo(), sourcetest.Secret("identity", string(identity), "known_hosts", string(shell.KnownHosts(false)), "ca.crt", string(ca.PEM()))},
		} {
			withProxy := func(pairs ...string) func(*source.GitRepository, sourcetest.Secrets) {
				return func(g *source.GitRepository, m sourcetest.Secrets) {
					g.Spec.ProxySecretRef = &source.LocalReference{Name: "proxy"}
					m["default/proxy"] = sourcetest.Secret(pairs...)
				}
			}
			name := scheme + " to " + target.url[:5]
			before := len(p.Requests())
			credentialTest{name: name, secret: target.login}.run(t, target.url, withProxy("address", p.URL, "username", "proxy", "password", "pr0xy-pass"))
			if seen := p.Requests(); len(seen) == before || strings.HasPrefix(seen[len(seen)-1], "refused") {
				t.Errorf("%s: the proxy saw %v", name, seen)
			}
			refusal := map[string]string{"http": "proxy", "https": "proxy", "socks5": "socks"}[scheme]
			credentialTest{name + " wrong password", target.login, gitFailed, refusal}.run(t, target.url, withProxy("address", p.URL, "username", "proxy", "password", "wr0ng-pass"))
			credentialTest{name + " no address", target.login, authFailed, "default/proxy|address"}.run(t, target.url, withProxy("username", "proxy"))
		}
	}
}

// An issuer is a provider that issues one credential and records the requests for it.
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
		config testenv.GitConfig
		issued source.Credential
		reason string
	}{
		"bearer token":       {testenv.GitConfig{Bearer: "t0ken-canary"}, source.Credential{Token: "t0ken-canary", Expires: time.Now()}, ""},
		"password":           {testenv.GitConfig{Username: "AKIA%session", Password: "p4ss-canary"}, source.Credential{Username: "AKIA%session", Password: "p4ss-canary"}, ""},
		"what is not wanted": {testenv.GitConfig{Bearer: "other"}, source.Credential{Token: "t0ken-canary"}, authFailed},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.CA = ca
			server := testenv.ServeGit(t, c.config, newOneFileRepo(t))
			g := object(server.Repo(), source.GitRepositoryRef{Branch: "main"})
			g.Spec.Provider, g.Spec.SecretRef, g.Spec.ServiceAccountName = "azure", &source.LocalReference{Name: "login"}, "robot"
			i := &issuer{credential: c.issued}
			env := source.Env{Login: i.login, Secrets: sourcetest.Secrets{"default/login": sourcetest.Secret("ca.crt", string(ca.PEM()), "username", "not", "password", "used")}}
			o := git.New(g, env)
			_, _, err := o.Resolve(t.Context(), nil)
			wantStep(t, err, c.reason, "")
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

func TestLoginFailures(t *testing.T) {
	const provider = "InvalidProviderConfiguration"
	server := testenv.ServeGit(t, testenv.GitConfig{}, newOneFileRepo(t))
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
		{name: "ssh", change: func(g *source.GitRepository) { g.Spec.URL = "ssh://git@example.com/x" }, reason: provider, stalled: true, say: "not ssh"},
		{name: "user information", change: func(g *source.GitRepository) { g.Spec.URL = "https://canary:canary@example.com/x" }, reason: provider, stalled: true, say: "without user information"},
		{name: "misconfigured", err: fmt.Errorf("%w: no key", source.ErrProvider), reason: provider, say: "provider azure|no key"},
		{name: "hopeless", err: fmt.Errorf("%w: %w: no key", source.ErrInvalid, source.ErrProvider), reason: provider, stalled: true, say: "no key"},
		{name: "down", err: errors.New("token service is down"), reason: authFailed, say: "provider azure|token service is down"},
		{name: "bad CA", secret: sourcetest.Secret("ca.crt", "canary"), reason: authFailed, say: "default/login|ca.crt"},
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
			wantStep(t, err, c.reason, c.say)
			testenv.Equal(t, errors.Is(err, source.ErrInvalid), c.stalled, "%v: stalled", err)
		})
	}
	testenv.Equal(t, len(server.Requests()), 0, "requests")
}

// The credentials of a provider are used on the origin of spec.url, and each
// submodule there logs in by itself; an entry of spec.submoduleCredentials takes
// precedence.
func TestLoginOfSubmodules(t *testing.T) {
	app, lib, other, public := testenv.NewRepo(t), testenv.NewRepo(t), testenv.NewRepo(t), newOneFileRepo(t)
	allow := func(r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		if strings.HasPrefix(r.URL.Path, "/other.git") && r.Header.Get("Authorization") != "" {
			return user == "alice" && password == "s3cret-canary"
		}
		return r.Header.Get("Authorization") == "Bearer t0ken-canary"
	}
	server := testenv.ServeRepos(t, testenv.GitConfig{Allow: allow}, map[string]*testenv.Repo{"app.git": app, "lib.git": lib})
	guarded := testenv.ServeRepos(t, testenv.GitConfig{Allow: allow}, map[string]*testenv.Repo{"other.git": other})
	foreign := testenv.ServeGit(t, testenv.GitConfig{}, public)
	inLib := commitFiles(lib, map[string]string{"l": "1"})
	commitFiles(app, map[string]string{"a": "1"}, submodule{"lib", "../lib.git", inLib},
		submodule{"again", strings.Replace(server.URL, "://", "://me@", 1) + "/lib.git", inLib},
		submodule{"other", guarded.URL + "/other.git", commitFiles(other, map[string]string{"o": "1"})},
		submodule{"foreign", foreign.Repo(), public.Commit(testenv.Commit{Branch: "main", Files: files("f", "1")})})
	g := recursiveObject(server.URL + "/app.git")
	g.Spec.Provider = "azure"
	g.Spec.SubmoduleCredentials = []source.GitSubmoduleCredential{{URL: guarded.URL, SecretRef: source.LocalReference{Name: "other"}}}
	i := &issuer{credential: source.Credential{Token: "t0ken-canary"}}
	_, archive, _, err := try(t.Context(), g, source.Env{Login: i.login, Secrets: sourcetest.Secrets{"default/other": sourcetest.Secret("username", "alice", "password", "s3cret-canary")}})
	must(t, err)
	if got := contents(t, archive); got["a"]+got["lib/l"]+got["again/l"]+got["other/o"]+got["foreign/f"] != "11111" {
		t.Errorf("content %v", got)
	}
	var urls []string
	for _, r := range i.requests {
		urls = append(urls, strings.TrimPrefix(r.URL.String(), server.URL))
	}
	slices.Sort(urls)
	if want := []string{"/app.git", "/app.git", "/lib.git"}; !slices.Equal(slices.Compact(urls), slices.Compact(want)) {
		t.Errorf("logged in for %q", urls)
	}
	for _, q := range foreign.Requests() {
		testenv.Equal(t, q.Authorization, "", "another origin was shown")
	}
	// An entry replaces the provider's credentials on the origin of spec.url too.
	g.Spec.SubmoduleCredentials = append(g.Spec.SubmoduleCredentials, source.GitSubmoduleCredential{URL: server.URL, SecretRef: source.LocalReference{Name: "other"}})
	if _, _, _, err := try(t.Context(), g, source.Env{Login: i.login, Secrets: sourcetest.Secrets{"default/other": sourcetest.Secret("bearerToken", "wr0ng-canary")}}); err == nil || !strings.Contains(err.Error(), "submodule") {
		t.Errorf("with other credentials for submodules: %v", err)
	}
}

// A server that is known to speak protocol 2 gets no greeting: a check is one
// request, a fetch one more.
func TestKnownServer(t *testing.T) {
	repo := newOneFileRepo(t)
	v2, v0 := testenv.ServeGit(t, testenv.GitConfig{}, repo), testenv.ServeGit(t, testenv.GitConfig{V0: true}, repo)
	old := false // whether the server speaks version 0 now
	server := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		to := v2.URL
		if old {
			to = v0.URL
		}
		u, _ := url.Parse(to)
		r.SetURL(u)
	}})
	defer server.Close()
	g := object(server.URL+strings.TrimPrefix(v2.Repo(), v2.URL), source.GitRepositoryRef{Branch: "main"})
	var state source.State
	for _, step := range []struct {
		name, check, fetch string
		do                 func()
	}{
		{"unknown", "1 advertisements, 1 lists, 0 packs", "1 advertisements, 1 lists, 1 packs", nil},
		{"unchanged", "0 advertisements, 1 lists, 0 packs", "0 advertisements, 1 lists, 1 packs", nil},
		{"changed", "0 advertisements, 1 lists, 0 packs", "0 advertisements, 1 lists, 1 packs", func() { repo.Commit(testenv.Commit{Branch: "main"}) }},
		{"with nonsense for a state", "1 advertisements, 1 lists, 0 packs", "1 advertisements, 1 lists, 1 packs", func() {
			state = source.State(`{"server":{"url":"` + g.Spec.URL + `","capabilities":"fetch=\nobject-format=md5\nls-refs="}}`)
		}},
		{"of another URL", "1 advertisements, 1 lists, 0 packs", "1 advertisements, 1 lists, 1 packs", func() {
			state = source.State(strings.Replace(string(state), "http://", "http://other.", 1))
		}},
	} {
		if step.do != nil {
			step.do()
		}
		v2.Reset()
		o := git.New(g, source.Env{})
		rev, next, err := o.Resolve(t.Context(), state)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		testenv.Equal(t, counts(v2), step.check, "%s: a check", step.name)
		c, err := o.Open(t.Context(), rev)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		c.Close()
		testenv.Equal(t, counts(v2), step.fetch, "%s: a fetch", step.name)
		state = next
	}

	old = true
	if rev, next, err := git.New(g, source.Env{}).Resolve(t.Context(), state); err != nil || rev.ID == "" || strings.Contains(string(next), "capabilities") {
		t.Errorf("a server that speaks version 0 now: %v, state %s", err, next)
	}
}

// If a known server refuses a request, it gets a greeting, and the error reports its
// answer to that.
func TestKnownServerRefuses(t *testing.T) {
	repo := newOneFileRepo(t)
	server := testenv.ServeGit(t, testenv.GitConfig{Allow: func(r *http.Request) bool {
		_, password, _ := r.BasicAuth()
		return password == "good-canary"
	}}, repo)
	g := object(server.Repo(), source.GitRepositoryRef{Branch: "main"})
	g.Spec.SecretRef = &source.LocalReference{Name: "login"}
	resolve := func(password string, state source.State) (source.State, error) {
		env := source.Env{Secrets: sourcetest.Secrets{"default/login": sourcetest.Secret("username", "alice", "password", password)}}
		_, state, err := git.New(g, env).Resolve(t.Context(), state)
		return state, err
	}
	state, err := resolve("good-canary", nil)
	if err != nil || strings.Contains(string(state), "canary") {
		t.Fatalf("state %s, %v", state, err)
	}
	server.Reset()
	_, err = resolve("bad-canary", state)
	wantStep(t, err, authFailed, "")
	testenv.Equal(t, counts(server), "1 advertisements, 1 lists, 0 packs", "a refusal")
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests} {
		server.Break(&testenv.Defect{Phase: testenv.LsRefs, Status: status})
		server.Reset()
		if _, err := resolve("good-canary", state); err == nil || !strings.HasPrefix(counts(server), "0 advertisements") {
			t.Errorf("status %d: %v after %s", status, err, counts(server))
		}
	}
}
