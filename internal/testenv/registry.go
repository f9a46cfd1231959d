package testenv

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// The phases of requests to a [Registry].
const (
	Ping          Phase = "ping" // /v2/
	HeadManifest  Phase = "head manifest"
	GetManifest   Phase = "get manifest"
	PutManifest   Phase = "put manifest"
	HeadBlob      Phase = "head blob"
	GetBlob       Phase = "get blob"
	PutBlob       Phase = "put blob" // all requests of an upload
	ListTags      Phase = "list tags"
	ListReferrers Phase = "list referrers"
	GetToken      Phase = "get token"
)

// RegistryConfig says how [StartRegistry] serves. The zero value is a public
// registry without TLS that has the referrers API.
type RegistryConfig struct {
	CA     *CA      // serve TLS with a certificate of this authority
	Names  []string // host names besides localhost and 127.0.0.1
	Mutual bool     // also require client certificates of CA

	Username, Password string                   // require basic authentication
	Bearer             *Bearer                  // require bearer tokens
	Allow              func(*http.Request) bool // decide instead, if set

	NoReferrers bool // have no referrers API, but the referrers tag
	PageSize    int  // maximum number of tags per page; 0 means all of them

	Defect *Defect
}

// A Registry is a running registry of OCI artifacts. It holds them in memory.
type Registry struct {
	fakeServer

	t         testing.TB
	config    RegistryConfig
	inner     http.Handler
	mu        sync.Mutex
	overrides map[string]override
	tokens    map[string]int // how often each token was used
}

// StartRegistry runs a registry until the test ends.
func StartRegistry(t testing.TB, c RegistryConfig) *Registry {
	t.Helper()
	g := &Registry{
		fakeServer: fakeServer{defectState: newDefectState(c.Defect), defectHandler: serveRegistryDefect, refuse: refuseOCI}, t: t, config: c,
		inner:     registry.New(registry.Logger(discardLogger), registry.WithReferrersSupport(true)),
		overrides: map[string]override{}, tokens: map[string]int{},
	}
	g.listen(t, g.serve, tlsConfig(c.CA, c.Mutual, c.Names), true)
	return g
}

// URL returns oci://HOST/PATH.
func (g *Registry) URL(path string) string { return "oci://" + g.Host + "/" + path }

func (g *Registry) serve(w http.ResponseWriter, r *http.Request) {
	phase := registryPhase(r)
	var body []byte
	if phase == GetToken {
		var err error
		if body, err = bodyOf(w, r); err != nil {
			return
		}
	}
	w = g.record(w, r, phase, body, phase == GetBlob)
	if phase != GetToken && !g.allowed(r, phase) {
		g.challenge(w, r, phase)
		return
	}
	g.respond(w, r, phase, func(w http.ResponseWriter, r *http.Request) { g.answer(w, r, phase) })
}

// answer serves one request correctly.
func (g *Registry) answer(w http.ResponseWriter, r *http.Request, phase Phase) {
	if g.serveOverride(w, r) {
		return
	}
	switch phase {
	case GetToken:
		g.issue(w, r)
	case ListTags:
		g.listTags(w, r)
	case ListReferrers:
		g.listReferrers(w, r)
	case PutManifest:
		g.putManifest(w, r)
	case PutBlob, HeadBlob, GetBlob, Ping:
		g.inner.ServeHTTP(w, r)
	default:
		replay(w, g.innerAnswer(r)) // the inner registry holds a lock while it writes
	}
}

// innerAnswer returns the answer of the inner registry.
func (g *Registry) innerAnswer(r *http.Request) *httptest.ResponseRecorder {
	return recordAnswer(g.inner, r)
}

// registryPhases maps requests to phases by a part of the path and, unless it is "",
// the method. The first match decides.
var registryPhases = []struct {
	part, method string
	phase        Phase
}{
	{"/blobs/uploads", "", PutBlob},
	{"/blobs/", http.MethodGet, GetBlob},
	{"/blobs/", "", HeadBlob},
	{"/manifests/", http.MethodGet, GetManifest},
	{"/manifests/", http.MethodHead, HeadManifest},
	{"/manifests/", "", PutManifest},
	{"/tags/list", "", ListTags},
	{"/referrers/", "", ListReferrers},
	{tokenPath, "", GetToken},
}

func registryPhase(r *http.Request) Phase {
	for _, p := range registryPhases {
		if strings.Contains(r.URL.Path, p.part) && (p.method == "" || p.method == r.Method) {
			return p.phase
		}
	}
	return Ping
}

// serveRegistryDefect serves the defect [OversizedBody] of a registry.
func serveRegistryDefect(w http.ResponseWriter, r *http.Request, d Defect, next http.Handler) {
	d.writeOversized(w, recordAnswer(next, r), []byte(`{"schemaVersion":2,"annotations":{"a":"`))
}

// refuseOCI answers with an error in the format of a registry.
func refuseOCI(w http.ResponseWriter, _ *http.Request, status int, message string) {
	code := cmp.Or(map[int]string{http.StatusUnauthorized: "UNAUTHORIZED"}[status], "UNKNOWN")
	writeJSON(w, status, map[string]any{"errors": []any{map[string]string{"code": code, "message": message}}})
}

// listTags answers with one page, and with the Link to the next one that the inner
// registry does not send.
func (g *Registry) listTags(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	size, _ := strconv.Atoi(query.Get("n"))
	if limit := g.config.PageSize; limit > 0 && (size == 0 || size > limit) {
		size = limit
	}
	query.Del("n")
	if size > 0 {
		query.Set("n", strconv.Itoa(size+1)) // one more shows whether there is a next page
	}
	inner := r.Clone(r.Context())
	inner.URL.RawQuery = query.Encode()
	rec := g.innerAnswer(inner)
	var list struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if rec.Code != http.StatusOK || json.Unmarshal(rec.Body.Bytes(), &list) != nil {
		replay(w, rec)
		return
	}
	if size > 0 && size < len(list.Tags) {
		list.Tags = list.Tags[:size]
		next := url.Values{"n": {strconv.Itoa(size)}, "last": {list.Tags[size-1]}}
		w.Header().Set("Link", "<"+r.URL.Path+"?"+next.Encode()+`>; rel="next"`)
	}
	writeJSON(w, http.StatusOK, list)
}

// listReferrers adds the artifact types of manifests, which the inner registry
// leaves out. It ignores the filter of the request, as registries may.
func (g *Registry) listReferrers(w http.ResponseWriter, r *http.Request) {
	if g.config.NoReferrers {
		http.NotFound(w, r)
		return
	}
	var list ocispec.Index
	rec := g.innerAnswer(r)
	if rec.Code != http.StatusOK || json.Unmarshal(rec.Body.Bytes(), &list) != nil {
		list.SchemaVersion, list.MediaType = 2, ocispec.MediaTypeImageIndex // a manifest that does not exist has no referrers
	}
	repo, _, _ := strings.Cut(r.URL.Path, "/referrers/")
	for i := range list.Manifests {
		d := &list.Manifests[i]
		var m ocispec.Manifest
		_, text := g.stored(repo + "/manifests/" + d.Digest.String())
		if json.Unmarshal(text, &m) == nil && m.ArtifactType != "" {
			d.ArtifactType = m.ArtifactType
		}
	}
	slices.SortFunc(list.Manifests, func(a, b ocispec.Descriptor) int { return strings.Compare(string(a.Digest), string(b.Digest)) })
	if list.Manifests == nil {
		list.Manifests = []ocispec.Descriptor{}
	}
	w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
	writeJSON(w, http.StatusOK, list)
}

// putManifest stores a manifest. It sets OCI-Subject if the manifest has a subject and the registry
// has the referrers API.
func (g *Registry) putManifest(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	rec := g.innerAnswer(r)
	var m ocispec.Manifest
	if json.Unmarshal(text, &m) == nil && m.Subject != nil && !g.config.NoReferrers {
		rec.Header().Set("OCI-Subject", m.Subject.Digest.String())
	}
	replay(w, rec)
}

// stored returns the media type and content of the manifest at a path, "" and nil if there is none.
func (g *Registry) stored(path string) (mediaType string, content []byte) {
	rec := g.innerAnswer(httptest.NewRequest(http.MethodGet, path, nil))
	if rec.Code != http.StatusOK {
		return "", nil
	}
	return rec.Header().Get("Content-Type"), rec.Body.Bytes()
}

// Bearer says how a [Registry] uses bearer tokens. With the zero value it issues
// them only for the user name and password of the [RegistryConfig].
type Bearer struct {
	// Realm is the URL from which clients request tokens; "" means
	// [Registry.TokenURL]. All registries of the process accept each other's
	// tokens.
	Realm   string
	Service string // "" means "testenv"

	Anonymous     bool   // issue tokens for pulling to clients without credentials
	IdentityToken string // refresh token that is accepted besides Username and Password
	Uses          int    // number of requests that a token is valid for; 0 means any number
}

const tokenPath = "/token"

// tokenKey begins all tokens that this process issues.
var tokenKey = rand.Text()

// TokenURL returns the realm of the registry's own issuer.
func (g *Registry) TokenURL() string { return g.Base + tokenPath }

// Tokens returns the bearer tokens that were used so far, sorted.
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

// allowed reports whether a request has the required credentials.
func (g *Registry) allowed(r *http.Request, phase Phase) bool {
	switch c := g.config; {
	case c.Allow != nil:
		return c.Allow(r)
	case c.Bearer != nil:
		return g.useToken(r.Header.Get("Authorization"), r, phase)
	default:
		return authorized(r, c.Username, c.Password)
	}
}

// useToken reports whether the token in an Authorization header is valid for a request,
// and counts its use.
func (g *Registry) useToken(header string, r *http.Request, phase Phase) bool {
	token, ok := strings.CutPrefix(header, "Bearer ")
	key, rest, _ := strings.Cut(token, ".")
	if !ok || !equalSecret(key, tokenKey) {
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
	return phase == Ping || slices.ContainsFunc(strings.Fields(string(scopes)), func(scope string) bool { return strings.HasPrefix(scope, scopeOf(r, phase)) })
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
		header = `Bearer realm="` + realm + `",service="` + cmp.Or(b.Service, "testenv") + `"`
		if phase != Ping {
			header += `,scope="` + scopeOf(r, phase) + `"`
		}
	}
	w.Header().Set("WWW-Authenticate", header)
	refuseOCI(w, r, http.StatusUnauthorized, "authentication required")
}

// issue answers a request for a token, by GET with basic authentication or by POST of a form.
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
	switch known := g.validCredentials(r); {
	case !known && !anonymous:
		refuseOCI(w, r, http.StatusUnauthorized, "authentication required")
		return
	case !known:
		scopes = strings.ReplaceAll(scopes, ",push", "")
	}
	token := tokenKey + "." + base64.RawURLEncoding.EncodeToString([]byte(scopes)) + "." + rand.Text()
	writeJSON(w, http.StatusOK, map[string]any{"token": token, "access_token": token, "expires_in": 300})
}

// validCredentials reports whether a request for a token has valid credentials.
func (g *Registry) validCredentials(r *http.Request) bool {
	if r.Method == http.MethodGet {
		return g.config.Username != "" && authorized(r, g.config.Username, g.config.Password)
	}
	refresh := g.config.Bearer.IdentityToken
	return refresh != "" && r.FormValue("grant_type") == "refresh_token" && equalSecret(r.FormValue("refresh_token"), refresh)
}
