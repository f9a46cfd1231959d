package git_test

import (
	"net/http"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// What was fetched with what a provider issued is not for a submodule of
// another object, which reaches the same repository without credentials.
func TestLoginsShareNothing(t *testing.T) {
	private, public := testenv.NewRepo(t), testenv.NewRepo(t)
	pin := linked(private, map[string]string{"secret": "1"})
	guarded := testenv.ServeAll(t, testenv.HTTP{Allow: func(r *http.Request) bool {
		return r.Header.Get("Authorization") == "Bearer t0ken-canary"
	}}, map[string]*testenv.Repo{"app.git": private})
	open := testenv.ServeAll(t, testenv.HTTP{}, map[string]*testenv.Repo{"app.git": public})
	linked(public, map[string]string{"a": "1"}, link{"stolen", guarded.URL + "/app.git", pin})

	i := &issuer{credential: source.Credential{Token: "t0ken-canary"}}
	env := source.Env{Login: i.login, Cache: newCache(t, t.TempDir())}
	owner, other := recursing(guarded.URL+"/app.git"), recursing(open.URL+"/app.git")
	owner.Spec.Provider, other.Spec.Provider = "azure", "azure"
	fetch(t, owner, env)
	_, _, _, err := try(t.Context(), other, env)
	wantFailure(t, err, auth, `submodule "stolen"|no credentials were sent`)
}

// A program that runs as somebody else now gets nothing out of the cache that
// the server would not give it, not even a commit that is pinned.
func TestLoginIsAsked(t *testing.T) {
	repo := one(t)
	server := testenv.ServeHTTP(t, testenv.HTTP{Bearer: "t0ken-canary"}, repo)
	env := source.Env{Cache: newCache(t, t.TempDir())}
	g := object(server.Repo(), source.GitRepositoryRef{Commit: repo.ID("main")})
	g.Spec.Provider = "azure"
	env.Login = (&issuer{credential: source.Credential{Token: "t0ken-canary"}}).login
	fetch(t, g, env)
	server.Reset()
	if fetch(t, g, env); len(packRequests(server)) > 0 {
		t.Errorf("fetched what is held: %q", packRequests(server))
	}
	env.Login = (&issuer{credential: source.Credential{Token: "somebody else"}}).login
	_, _, _, err := try(t.Context(), g, env)
	wantReason(t, err, auth)
}
