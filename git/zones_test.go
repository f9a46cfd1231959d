package git_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// under returns the URL of a server under the name of another host.
func under(s *testenv.Server, host string) string {
	u, _ := url.Parse(s.URL)
	return u.Scheme + "://" + host + ":" + u.Port()
}

// hrefsAt has objects downloaded from another server.
func hrefsAt(base string) func(*testenv.LFSAnswer) {
	return func(a *testenv.LFSAnswer) {
		action := a.Actions["download"]
		u, _ := url.Parse(action.Href)
		action.Href = base + u.Path
		a.Actions["download"] = action
	}
}

// A repository at a public address leads nowhere that is narrower: by a redirect,
// a submodule, a redirect of a submodule, a link of LFS or a redirect of one;
// unless the user opens the host.
func TestZones(t *testing.T) {
	testenv.Resolve(t, "wide.example", "203.0.113.7")
	testenv.Resolve(t, "other.example", "203.0.113.8")
	for _, n := range testenv.Narrows(t) {
		objects := new(testenv.LFS)
		app, sub := testenv.NewRepo(t), testenv.NewRepo(t)
		pin := linked(sub, map[string]string{"x": "1"})
		served := map[string]*testenv.Repo{"app.git": app, "sub.git": sub, "repo.git": app}
		target := testenv.ServeAll(t, testenv.HTTP{LFS: objects}, served)
		other := testenv.ServeAll(t, testenv.HTTP{}, served)
		inside := under(target, n.Host)
		for name, lead := range map[string]func(*testenv.Server){
			"redirect":  func(s *testenv.Server) { s.Break(testenv.Redirect(inside)) },
			"submodule": func(*testenv.Server) { linked(app, nil, link{"s", inside + "/sub.git", pin}) },
			"redirect of a submodule": func(*testenv.Server) {
				other.Break(testenv.Redirect(inside))
				linked(app, nil, link{"s", under(other, "other.example") + "/sub.git", pin})
			},
			"link of LFS": func(*testenv.Server) { objects.Edit = hrefsAt(inside) },
			"redirect of LFS": func(s *testenv.Server) {
				objects.Edit = hrefsAt(under(s, "wide.example"))
				d := testenv.Redirect(inside)
				d.Phase = testenv.LFSObject
				s.Break(d)
			},
		} {
			objects.Edit = nil
			other.Break(nil)
			app.Commit(testenv.Commit{Branch: "main", Files: files(".gitattributes", "*.bin filter=lfs\n", "a.bin", objects.Add("content"))})
			server := testenv.ServeAll(t, testenv.HTTP{LFS: objects}, served)
			lead(server)
			g := recursing(under(server, "wide.example") + "/app.git")
			g.Spec.LFS = strings.Contains(name, "LFS")
			target.Reset()
			_, _, _, err := try(t.Context(), g, source.Env{})
			var refused *transport.ZoneError
			if !errors.As(err, &refused) || refused.Metadata != n.Metadata || strings.Contains(err.Error(), "--allow-network") == n.Metadata {
				t.Errorf("%s to %s: %v", name, n.Host, err)
			}
			if asked := target.Requests(); len(asked) > 0 {
				t.Errorf("%s to %s: %d requests", name, n.Host, len(asked))
			}
			if n.Metadata {
				continue
			}
			networks, err := source.ParseNetworks(n.Host)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, _, err := try(t.Context(), g, source.Env{Networks: networks}); err != nil || len(target.Requests()) == 0 {
				t.Errorf("%s to %s, which the user opens: %v", name, n.Host, err)
			}
		}
	}
}

// A forge inside has the submodules of a public repository, and those of its own
// repositories; what these redirect to is judged from there.
func TestSubmoduleInside(t *testing.T) {
	testenv.Resolve(t, "wide.example", "203.0.113.7")
	testenv.Resolve(t, "forge.example", "10.0.0.7")
	testenv.Resolve(t, "near.example", "10.0.0.8")
	app, sub, deep := testenv.NewRepo(t), testenv.NewRepo(t), testenv.NewRepo(t)
	server := testenv.ServeAll(t, testenv.HTTP{}, map[string]*testenv.Repo{"app.git": app, "sub.git": sub, "deep.git": deep})
	forge := under(server, "forge.example")
	linked(sub, nil, link{"d", under(server, "near.example") + "/deep.git", linked(deep, map[string]string{"x": "1"})})
	linked(app, nil, link{"s", forge + "/sub.git", linked(sub, nil, link{"d", under(server, "near.example") + "/deep.git", linked(deep, map[string]string{"x": "1"})})})
	env := source.Env{Secrets: sourcetest.Secrets{"default/any": sourcetest.Secret("username", "u", "password", "p4ss-canary")}}
	g := recursing(under(server, "wide.example") + "/app.git")
	_, _, _, err := try(t.Context(), g, env)
	wantFailure(t, err, gitf, `submodule "s" at `+forge+"/sub.git|an address of a private network|--allow-network forge.example, or add an entry to spec.submoduleCredentials, with url "+forge)
	g.Spec.SubmoduleCredentials = []source.GitSubmoduleCredential{{URL: forge, SecretRef: source.LocalReference{Name: "any"}}}
	if _, archive, _ := fetch(t, g, env); contents(t, archive)["s/d/x"] != "1" {
		t.Error("with an entry the submodules are not there")
	}
	if _, archive, _ := fetch(t, recursing(forge+"/app.git"), env); contents(t, archive)["s/d/x"] != "1" {
		t.Error("in one network the submodules are not there")
	}
}
