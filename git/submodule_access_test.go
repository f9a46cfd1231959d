package git_test

import (
	"encoding/base64"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// shown returns the credentials that requests below path had, each once.
func shown(s *testenv.Server, path string) (all []string) {
	for _, q := range s.Requests() {
		if strings.HasPrefix(q.Path, path) && !slices.Contains(all, q.Authorization) {
			all = append(all, q.Authorization)
		}
	}
	return all
}

// two is a server with app.git and own.git, which is a submodule of it, and a
// server with sub.git, which is another.
type two struct {
	app *testenv.Repo
	pin string
	own *testenv.Server
	sub *testenv.Server
}

func newTwo(t *testing.T, own, sub testenv.HTTP) two {
	app, inner, outer := testenv.NewRepo(t), testenv.NewRepo(t), testenv.NewRepo(t)
	w := two{app: app, pin: linked(inner, map[string]string{"x": "1"})}
	linked(outer, map[string]string{"x": "1"})
	w.own = testenv.ServeAll(t, own, map[string]*testenv.Repo{"app.git": app, "own.git": inner})
	w.sub = testenv.ServeAll(t, sub, map[string]*testenv.Repo{"sub.git": outer})
	linked(app, map[string]string{"a": "1"}, link{"own", "../own.git", w.pin}, link{"vendor/sub", w.sub.URL + "/sub.git", w.pin})
	return w
}

func (w two) object(ref string) *source.GitRepository {
	g := recursing(w.own.URL + "/app.git")
	if ref != "" {
		g.Spec.SecretRef = &source.LocalReference{Name: ref}
	}
	return g
}

// wantFailure checks reason and text of an error; say holds parts separated by |.
func wantFailure(t *testing.T, err error, reason, say string) {
	t.Helper()
	var step *source.StepError
	if !errors.As(err, &step) || step.Step != source.StepFetch || !slices.Contains(strings.Split(reason, "|"), step.Reason) {
		t.Errorf("%v: want a failure of the fetch with reason %s", err, reason)
		return
	}
	if errors.Is(err, source.ErrInvalid) {
		t.Errorf("%v: stalls, though a commit can mend it", err)
	}
	for part := range strings.SplitSeq(say, "|") {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v: does not say %s", err, part)
		}
	}
}

// Credentials are shown to the origin they were given for, and to no other.
func TestSubmoduleCredentials(t *testing.T) {
	alice, bob := testenv.HTTP{Username: "alice", Password: "al1ce-canary"}, testenv.HTTP{Username: "bob", Password: "b0b-canary"}
	secrets := sourcetest.Secrets{
		"default/alice": sourcetest.Secret("username", "alice", "password", "al1ce-canary"),
		"default/bob":   sourcetest.Secret("username", "bob", "password", "b0b-canary"),
		"default/carol": sourcetest.Secret("bearerToken", "car0l-canary"),
	}
	entry := func(s *testenv.Server, name string) source.GitSubmoduleCredential {
		return source.GitSubmoduleCredential{URL: s.URL, SecretRef: source.LocalReference{Name: name}}
	}
	asAlice, asBob := basic("alice", "al1ce-canary"), basic("bob", "b0b-canary")
	for _, row := range []struct {
		name     string
		own, sub testenv.HTTP
		change   func(two, *source.GitRepository)
		shown    [3]string // to app.git, own.git, sub.git; "-" for none
		reason   string
		say      string // SUB stands for the URL of sub
	}{
		{"public submodule", alice, testenv.HTTP{}, nil, [3]string{asAlice, asAlice, ""}, "", ""},
		{"entry for the other origin", alice, bob, func(w two, g *source.GitRepository) {
			g.Spec.SubmoduleCredentials = []source.GitSubmoduleCredential{entry(w.sub, "bob")}
		}, [3]string{asAlice, asAlice, asBob}, "", ""},
		{"entry for the own origin", testenv.HTTP{}, bob, func(w two, g *source.GitRepository) {
			g.Spec.SubmoduleCredentials = []source.GitSubmoduleCredential{entry(w.own, "carol"), entry(w.sub, "bob")}
		}, [3]string{asAlice, "Bearer car0l-canary", asBob}, "", ""},
		{"in the URL", alice, testenv.HTTP{}, func(w two, g *source.GitRepository) {
			g.Spec.URL, g.Spec.SecretRef = strings.Replace(g.Spec.URL, "://", "://alice:al1ce-canary@", 1), nil
		}, [3]string{asAlice, asAlice, ""}, "", ""},
		{"private submodule", alice, bob, nil, [3]string{asAlice, asAlice, ""}, auth,
			`submodule "vendor/sub" at SUB/sub.git|no credentials were sent|spec.submoduleCredentials|url SUB and a secretRef`},
		{"wrong entry", alice, bob, func(w two, g *source.GitRepository) {
			g.Spec.SubmoduleCredentials = []source.GitSubmoduleCredential{entry(w.sub, "carol")}
		}, [3]string{asAlice, asAlice, "Bearer car0l-canary"}, auth, `submodule "vendor/sub" at SUB/sub.git|check the credentials`},
		{"entry without its Secret", alice, bob, func(w two, g *source.GitRepository) {
			g.Spec.SubmoduleCredentials = []source.GitSubmoduleCredential{entry(w.sub, "absent")}
		}, [3]string{asAlice, asAlice, "-"}, auth, `submodule "vendor/sub"|spec.submoduleCredentials[0].secretRef|default/absent`},
		{"gone", alice, testenv.HTTP{Defect: testenv.Status(404)}, nil, [3]string{asAlice, asAlice, ""}, gitf,
			`submodule "vendor/sub" at SUB/sub.git|not found|if it is private|url SUB`},
		{"broken", alice, testenv.HTTP{Defect: testenv.Status(500)}, nil, [3]string{asAlice, asAlice, ""}, gitf, `submodule "vendor/sub"|500`},
		{"truncated", alice, testenv.HTTP{Defect: &testenv.Defect{Phase: testenv.Pack, Do: testenv.End, After: 80}}, nil,
			[3]string{asAlice, asAlice, ""}, gitf, `submodule "vendor/sub"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newTwo(t, row.own, row.sub)
			g := w.object("alice")
			if row.change != nil {
				row.change(w, g)
			}
			_, archive, _, err := try(t.Context(), g, source.Env{Secrets: secrets})
			if row.reason != "" {
				wantFailure(t, err, row.reason, strings.ReplaceAll(row.say, "SUB", w.sub.URL))
			} else if err != nil || contents(t, archive)["vendor/sub/x"] != "1" {
				t.Errorf("%v", err)
			}
			if err != nil && (strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), w.own.URL)) {
				t.Errorf("%v: shows a secret or blames the repository itself", err)
			}
			for i, got := range [][]string{shown(w.own, "/app.git"), shown(w.own, "/own.git"), shown(w.sub, "/")} {
				if row.shown[i] == "-" && len(got) == 0 || i == 1 && len(got) == 0 && err != nil {
					continue
				}
				if len(got) != 1 || got[0] != row.shown[i] {
					t.Errorf("server %d was shown %q, want %q", i, got, row.shown[i])
				}
			}
		})
	}
}

// What a submodule redirects to gets nothing, even if it is the repository's own origin.
func TestSubmoduleRedirect(t *testing.T) {
	w := newTwo(t, testenv.HTTP{Username: "alice", Password: "al1ce-canary"}, testenv.HTTP{})
	w.sub.Break(testenv.Redirect(w.own.URL))
	_, _, _, err := try(t.Context(), w.object("alice"), source.Env{Secrets: sourcetest.Secrets{"default/alice": sourcetest.Secret("username", "alice", "password", "al1ce-canary")}})
	wantFailure(t, err, auth, `submodule "vendor/sub"`)
	if got := append(shown(w.own, "/sub.git"), shown(w.sub, "/")...); len(got) != 2 || got[0]+got[1] != "" {
		t.Errorf("shown %q", got)
	}
}

// Authorities and client certificates are bound to an origin, too.
func TestSubmoduleTLS(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Client("alice")
	subCert, subKey := ca.Client("bob")
	w := newTwo(t, testenv.HTTP{CA: ca, Mutual: true}, testenv.HTTP{CA: ca, Mutual: true})
	secrets := sourcetest.Secrets{
		"default/alice": sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)),
		"default/bob":   sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(subCert), "tls.key", string(subKey)),
	}
	g := w.object("alice")
	_, _, _, err := try(t.Context(), g, source.Env{Secrets: secrets})
	wantFailure(t, err, gitf, `submodule "vendor/sub"|certificate`)
	g.Spec.SubmoduleCredentials = []source.GitSubmoduleCredential{{URL: w.sub.URL + "/", SecretRef: source.LocalReference{Name: "bob"}}}
	if _, _, _, err := try(t.Context(), g, source.Env{Secrets: secrets}); err != nil {
		t.Error(err)
	}
	for _, q := range slices.Concat(w.own.Requests(), w.sub.Requests()) {
		if want := map[bool]string{true: "bob", false: "alice"}[strings.HasPrefix(q.Path, "/sub.git")]; q.Certificate != want {
			t.Errorf("%s: certificate of %q, want %q", q.Path, q.Certificate, want)
		}
	}
}

// Submodules over ssh in a repository over http, and the other way round.
func TestSubmodulesOverBoth(t *testing.T) {
	app, sub := testenv.NewRepo(t), testenv.NewRepo(t)
	pin := linked(sub, map[string]string{"x": "1"})
	identity, public := testenv.UserKey(t, "")
	shell := testenv.ServeAllSSH(t, testenv.SSH{Users: []ssh.PublicKey{public}}, map[string]*testenv.Repo{"app.git": app, "sub.git": sub})
	web := testenv.ServeAll(t, testenv.HTTP{}, map[string]*testenv.Repo{"app.git": app, "sub.git": sub})
	private := testenv.ServeAll(t, testenv.HTTP{Bearer: "t0ken"}, map[string]*testenv.Repo{"sub.git": sub})
	at := "ssh://" + shell.Addr
	env := source.Env{Secrets: sourcetest.Secrets{"default/keys": sourcetest.Secret("identity", string(identity), "known_hosts", string(shell.KnownHosts(false)))}}

	linked(app, nil, link{"s", "ssh://git@" + shell.Addr + "/sub.git", pin})
	g := recursing(web.URL + "/app.git")
	_, _, _, err := try(t.Context(), g, env)
	wantFailure(t, err, auth, `submodule "s" at ssh://`+shell.Addr+`/sub.git|ssh needs a key|spec.url are not for this host|spec.submoduleCredentials, with url `+at+`|identity and known_hosts`)
	if n := len(shell.Sessions()); n != 0 {
		t.Errorf("%d sessions without a key", n)
	}
	g.Spec.SubmoduleCredentials = []source.GitSubmoduleCredential{{URL: at, SecretRef: source.LocalReference{Name: "keys"}}}
	if _, archive, _, err := try(t.Context(), g, env); err != nil || contents(t, archive)["s/x"] != "1" {
		t.Errorf("ssh in http: %v", err)
	}

	linked(app, nil, link{"s", web.URL + "/sub.git", pin}, link{"t", "../sub.git", pin}, link{"u", at + "/sub.git", pin})
	over := recursing("ssh://git@" + shell.Addr + "/app.git")
	if _, archive, _, err := try(t.Context(), over, env); err != nil || contents(t, archive)["s/x"]+contents(t, archive)["t/x"]+contents(t, archive)["u/x"] != "111" {
		t.Errorf("http in ssh: %v", err)
	}
	linked(app, nil, link{"s", private.URL + "/sub.git", pin})
	_, _, _, err = try(t.Context(), over, env)
	wantFailure(t, err, auth, `submodule "s"|no credentials were sent|with url `+private.URL+`|username and password`)
}

// The proxy is for everything.
func TestSubmodulesThroughProxy(t *testing.T) {
	w := newTwo(t, testenv.HTTP{}, testenv.HTTP{})
	p := testenv.ServeProxy(t, testenv.Proxy{Username: "proxy", Password: "pr0xy-pass"})
	g := w.object("")
	g.Spec.ProxySecretRef = &source.LocalReference{Name: "proxy"}
	fetch(t, g, source.Env{Secrets: sourcetest.Secrets{"default/proxy": sourcetest.Secret("address", p.URL, "username", "proxy", "password", "pr0xy-pass")}})
	for _, s := range []*testenv.Server{w.own, w.sub} {
		if u, _ := url.Parse(s.URL); !slices.ContainsFunc(p.Seen(), func(seen string) bool { return strings.Contains(seen, u.Host) }) {
			t.Errorf("the proxy saw %q and not %s", p.Seen(), u.Host)
		}
	}
}

// A spec whose entries were never validated stalls.
func TestSubmoduleCredentialsInvalid(t *testing.T) {
	w := newTwo(t, testenv.HTTP{}, testenv.HTTP{})
	g := w.object("")
	g.Spec.SubmoduleCredentials = []source.GitSubmoduleCredential{{URL: "http://[::1"}}
	_, _, _, err := try(t.Context(), g, source.Env{})
	if !errors.Is(err, source.ErrInvalid) || !strings.Contains(err.Error(), "spec.submoduleCredentials[0].url") {
		t.Errorf("%v: want ErrInvalid that names the entry", err)
	}
}

// A repository elsewhere cannot have us reach services of this machine, unless
// the spec names them.
func TestSubmoduleOnThisMachine(t *testing.T) {
	app, sub := testenv.NewRepo(t), testenv.NewRepo(t)
	server := testenv.ServeAll(t, testenv.HTTP{}, map[string]*testenv.Repo{"sub.git": sub})
	linked(app, map[string]string{"a": "1"}, link{"s", server.URL + "/sub.git", linked(sub, map[string]string{"x": "1"})})
	const at = "https://wide.example/app"
	testenv.Resolve(t, "wide.example", "203.0.113.7")
	env := source.Env{Local: map[string]string{at: app.Dir}, Secrets: sourcetest.Secrets{"default/any": sourcetest.Secret("username", "u", "password", "p4ss-canary")}}
	g := recursing(at)
	_, _, _, err := try(t.Context(), g, env)
	wantFailure(t, err, gitf, `submodule "s" at `+server.URL+"/sub.git|an address of this machine|spec.submoduleCredentials, with url "+server.URL)
	if list := server.Requests(); len(list) > 0 {
		t.Errorf("%d requests", len(list))
	}
	g.Spec.SubmoduleCredentials = []source.GitSubmoduleCredential{{URL: server.URL, SecretRef: source.LocalReference{Name: "any"}}}
	if _, archive, _ := fetch(t, g, env); contents(t, archive)["s/x"] != "1" {
		t.Error("with an entry the submodule is not there")
	}
}
