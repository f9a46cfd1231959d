package testenv

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// The phases of a conversation with a [Registry].
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
	Names  []string // of the server, besides localhost and 127.0.0.1
	Mutual bool     // and want client certificates of CA

	Username, Password string                   // want basic authentication
	Bearer             *Bearer                  // want bearer tokens
	Allow              func(*http.Request) bool // decide otherwise

	NoReferrers bool // have no referrers API, so that a tag stands in for it
	PageSize    int  // tags on one page at most; 0: all of them

	Defect *Defect
}

// A Registry is a running registry of OCI artifacts. It holds them in memory.
type Registry struct {
	desk

	t       testing.TB
	config  RegistryConfig
	inner   http.Handler
	mu      sync.Mutex
	planted map[string]plant
	tokens  map[string]int // how often each was used
}

// StartRegistry runs a registry until the test ends.
func StartRegistry(t testing.TB, c RegistryConfig) *Registry {
	t.Helper()
	g := &Registry{
		desk: desk{breaker: newBreaker(c.Defect)}, t: t, config: c,
		inner:   registry.New(registry.Logger(quiet), registry.WithReferrersSupport(true)),
		planted: map[string]plant{}, tokens: map[string]int{},
	}
	g.listen(t, g.serve, secured(c.CA, c.Mutual, c.Names), true)
	return g
}

// URL returns oci://HOST/PATH.
func (g *Registry) URL(path string) string { return "oci://" + g.Host + "/" + path }

// BlobBytes returns how many bytes of blobs were served so far.
func (g *Registry) BlobBytes() int64 { return g.ContentBytes() }

func (g *Registry) serve(w http.ResponseWriter, r *http.Request) {
	phase := registryPhase(r)
	var body []byte
	if phase == GetToken {
		var err error
		if body, err = bodyOf(w, r); err != nil {
			return
		}
	}
	w = g.note(w, r, phase, body)
	if phase != GetToken && !g.allowed(r, phase) {
		g.challenge(w, r, phase)
		return
	}
	if phase == GetBlob {
		w = &countingWriter{w, &g.bytes}
	}
	next := func(w http.ResponseWriter, r *http.Request) { g.answer(w, r, phase) }
	g.respond(w, r, phase, next, g.misbehave)
}

// answer serves one request well.
func (g *Registry) answer(w http.ResponseWriter, r *http.Request, phase Phase) {
	if g.servePlanted(w, r) {
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
		replay(w, g.ask(r)) // the inner registry holds a lock while it writes
	}
}

// ask returns the answer of the inner registry.
func (g *Registry) ask(r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	g.inner.ServeHTTP(rec, r)
	return rec
}

func replay(w http.ResponseWriter, rec *httptest.ResponseRecorder) {
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(rec.Code)
	w.Write(rec.Body.Bytes())
}

// registryPhases tell what a request is for by a part of its path, and its
// method where that matters. The first that fits counts.
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
