package oci_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/testenv"
)

// What a token service answers is as hostile as all else.
// A registry wants another token for every page of an endless list, and no token is small.
func TestTokensWithoutEnd(t *testing.T) {
	var mu sync.Mutex
	var used string
	issued := 0
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	g.Break(serve("", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		shown := r.Header.Get("Authorization")
		switch {
		case r.URL.Path == "/token":
			issued++
			fmt.Fprintf(w, `{"token":"%060000d"}`, issued)
		case shown == "" || shown == used:
			w.Header().Set("Www-Authenticate", `Bearer realm="`+g.Base+`/token"`)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			used = shown
			w.Header().Set("Link", fmt.Sprintf(`<?last=%d>; rel="next"`, issued))
			io.WriteString(w, `{"tags":["a"]}`)
		}
	}))
	if err := tagsOf(plain(t, g)); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes of tokens") || issued > 20 {
		t.Error(err, issued)
	}
}

func TestTokenAnswers(t *testing.T) {
	for name, row := range map[string]struct{ body, want string }{
		"of 1 MB":             {`{"token":"` + strings.Repeat("t", 1<<20) + `"}`, "more than"},
		"of 100 KB":           {`{"token":"` + strings.Repeat("t", 100<<10) + `"}`, "the token has 102400 bytes"},
		"with a line break":   {`{"token":"a\r\nX-Evil: 1"}`, "characters"},
		"empty":               {`{"token":""}`, "no token"},
		"missing":             {`{}`, "no token"},
		"no JSON":             {`<html>secret</html>`, "no JSON"},
		"no object":           {`["token"]`, "no JSON"},
		"called access_token": {`{"access_token":"x"}`, "401"},
		"wrong":               {`{"token":"x","access_token":"x"}`, "401"},
	} {
		t.Run(name, func(t *testing.T) {
			g := guard(t, testenv.NewCA(t), &testenv.Bearer{})
			g.Break(&testenv.Defect{Phase: testenv.GetToken, Status: http.StatusOK, Body: row.body})
			access, env := g.access()
			r, _ := connect(t, access, env)
			_, err := r.Head(t.Context(), "v1")
			if err == nil || !strings.Contains(err.Error(), row.want) || len(err.Error()) > 500 || strings.Contains(err.Error(), "secret<") {
				t.Error(err)
			}
		})
	}
}

// Whoever gets the request for a token gets the password, so it is not passed on.
func TestTokenRedirect(t *testing.T) {
	ca := testenv.NewCA(t)
	for kind, config := range map[string]string{
		"password":      `{"username":"ann","password":"` + password + `"}`,
		"refresh token": `{"username":"ann","identitytoken":"` + password + `"}`,
	} {
		for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
			g, other := guard(t, ca, &testenv.Bearer{IdentityToken: password}), guard(t, ca, &testenv.Bearer{})
			g.config = `{"auths":{"` + g.Host + `":` + config + `}}`
			g.Break(&testenv.Defect{Phase: testenv.GetToken, Status: status, Header: http.Header{"Location": {other.Base}}})
			access, env := g.access()
			r, _ := connect(t, access, env)
			if _, err := r.Head(t.Context(), "v1"); err == nil || !strings.Contains(err.Error(), "redirects to") || other.Count() > 0 {
				t.Error(kind, status, err, other.Requests())
			}
		}
	}
}

func TestTokens(t *testing.T) {
	ca := testenv.NewCA(t)
	for name, row := range map[string]struct {
		bearer   testenv.Bearer
		login    string
		requests int // for tokens
	}{
		"password":        {testenv.Bearer{}, `"username":"ann","password":"` + password + `"`, 1},
		"identity token":  {testenv.Bearer{IdentityToken: "refresh me"}, `"identitytoken":"refresh me"`, 1},
		"used up":         {testenv.Bearer{Uses: 1}, `"username":"ann","password":"` + password + `"`, 3},
		"identity, again": {testenv.Bearer{IdentityToken: "refresh me", Uses: 1}, `"auth":"MDAwMDo=","identitytoken":"refresh me"`, 3},
	} {
		t.Run(name, func(t *testing.T) {
			g := guard(t, ca, &row.bearer)
			g.config = `{"auths":{"` + g.Host + `":{` + row.login + `}}}`
			d := g.Push("team/app", "v1", layer("x"))
			access, env := g.access()
			r, v := connect(t, access, env)
			for range 3 {
				if _, _, err := r.Manifest(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}
			if n := g.Count(testenv.GetToken); n != row.requests {
				t.Errorf("%d tokens were asked for, want %d", n, row.requests)
			}
			for _, token := range g.Tokens() {
				if got := redact.String("x "+token+" y", v.Values()...); strings.Contains(got, token) {
					t.Error("a token is not kept out of texts")
				}
			}
		})
	}
}

// A registry token is shown to the registry, and no token is asked for.
func TestRegistryToken(t *testing.T) {
	ca := testenv.NewCA(t)
	g := guarded{testenv.StartRegistry(t, testenv.RegistryConfig{CA: ca, Bearer: &testenv.Bearer{Realm: "https://tokens.example/"},
		Allow: func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer given" }}), ca, ""}
	g.config = `{"auths":{"` + g.Host + `":{"registrytoken":"given"}}}`
	g.Push("team/app", "v1", layer("x"))
	access, env := g.access()
	r, _ := connect(t, access, env)
	if _, err := r.Head(t.Context(), "v1"); err != nil {
		t.Error(err)
	}
}
