package testenv

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
)

// Bearer says how a [Registry] uses bearer tokens. The zero value gives them
// for the user name and password of the [RegistryConfig] alone.
type Bearer struct {
	// Realm is where clients are sent for tokens; "" is the registry itself,
	// which gives them at [Registry.TokenURL]. Tokens of every registry of the
	// process are good at every other.
	Realm   string
	Service string // "" is "testenv"

	Anonymous     bool   // tokens for pulling are given to everybody
	IdentityToken string // the refresh token that a token is given for, besides Username and Password
	Uses          int    // how many requests a token is good for; 0: any number
}

const tokenPath = "/token"

// tokenKey marks the tokens of this process.
var tokenKey = rand.Text()

// TokenURL returns the realm of the registry's own issuer.
func (g *Registry) TokenURL() string { return g.Base + tokenPath }

// Tokens returns the bearer tokens that were used so far.
func (g *Registry) Tokens() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []string
	for token := range g.tokens {
		all = append(all, token)
	}
	slices.Sort(all)
	return all
}

// allowed reports whether a request comes with the credentials wanted.
func (g *Registry) allowed(r *http.Request, phase Phase) bool {
	switch c := g.config; {
	case c.Allow != nil:
		return c.Allow(r)
	case c.Bearer != nil:
		return g.admits(r.Header.Get("Authorization"), r, phase)
	default:
		return c.Username == "" && c.Password == "" || g.knows(r)
	}
}

// knows reports whether a request has the user's name and password.
func (g *Registry) knows(r *http.Request) bool {
	user, password, _ := r.BasicAuth()
	return same(user, g.config.Username) && same(password, g.config.Password)
}

// admits reports whether the token in a header is good for a request.
func (g *Registry) admits(header string, r *http.Request, phase Phase) bool {
	token, ok := strings.CutPrefix(header, "Bearer ")
	key, rest, _ := strings.Cut(token, ".")
	if !ok || !same(key, tokenKey) {
		return false
	}
	encoded, _, _ := strings.Cut(rest, ".")
	scopes, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return false
	}
	g.mu.Lock()
	g.tokens[token]++
	used := g.tokens[token]
	g.mu.Unlock()
	if limit := g.config.Bearer.Uses; limit > 0 && used > limit {
		return false
	}
	return phase == Ping || slices.ContainsFunc(strings.Fields(string(scopes)), func(scope string) bool { return covers(scope, scopeOf(r, phase)) })
}

// covers reports whether a scope that was given includes all that is wanted.
func covers(given, want string) bool {
	return given == want || given == want+",push"
}

// scopeOf returns the scope that a request needs.
func scopeOf(r *http.Request, phase Phase) string {
	path := strings.TrimPrefix(r.URL.Path, "/v2/")
	for _, mark := range []string{"/blobs/", "/manifests/", "/tags/", "/referrers/"} {
		if at := strings.LastIndex(path, mark); at >= 0 {
			path = path[:at]
			break
		}
	}
	if phase == PutBlob || phase == PutManifest {
		return "repository:" + path + ":pull,push"
	}
	return "repository:" + path + ":pull"
}

func (g *Registry) challenge(w http.ResponseWriter, r *http.Request, phase Phase) {
	header := `Basic realm="testenv"`
	if b := g.config.Bearer; b != nil {
		realm := b.Realm
		if realm == "" {
			realm = g.TokenURL()
		}
		header = `Bearer realm="` + realm + `",service="` + b.service() + `"`
		if phase != Ping {
			header += `,scope="` + scopeOf(r, phase) + `"`
		}
	}
	w.Header().Set("WWW-Authenticate", header)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnauthorized)
	w.Write([]byte(`{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`))
}

func (b *Bearer) service() string {
	if b.Service == "" {
		return "testenv"
	}
	return b.Service
}

// issue gives a token, by GET with basic authentication or by POST of a form.
func (g *Registry) issue(w http.ResponseWriter, r *http.Request) {
	b := g.config.Bearer
	if b == nil {
		http.NotFound(w, r)
		return
	}
	scopes := r.FormValue("scope")
	if r.Method == http.MethodGet {
		scopes = strings.Join(r.URL.Query()["scope"], " ")
	}
	anonymous := b.Anonymous && r.Method == http.MethodGet && r.Header.Get("Authorization") == ""
	switch known := g.grants(r); {
	case !known && !anonymous:
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
		return
	case !known:
		scopes = strings.ReplaceAll(scopes, ",push", "")
	}
	token := tokenKey + "." + base64.RawURLEncoding.EncodeToString([]byte(scopes)) + "." + rand.Text()
	writeJSON(w, "application/json", map[string]any{"token": token, "access_token": token, "expires_in": 300})
}

// grants reports whether a request for a token comes with credentials.
func (g *Registry) grants(r *http.Request) bool {
	if r.Method == http.MethodGet {
		return g.config.Username != "" && g.knows(r)
	}
	refresh := g.config.Bearer.IdentityToken
	return refresh != "" && r.FormValue("grant_type") == "refresh_token" && same(r.FormValue("refresh_token"), refresh)
}
