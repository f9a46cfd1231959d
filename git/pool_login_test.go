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
