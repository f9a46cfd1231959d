package testenv

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
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
	fakeServer

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
		fakeServer: fakeServer{breaker: newBreaker(c.Defect)}, t: t, config: c,
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

// misbehave answers a request with a defect; next is the right answer.
func (g *Registry) misbehave(w http.ResponseWriter, r *http.Request, d Defect, next http.Handler) {
	if r.Method == http.MethodHead && d.Do != Slow {
		d.After = -1 // there is no body that anything could happen in
	}
	switch d.Do {
	case Serve:
		d.Handler(w, r, next)
	case Answer:
		d.answer(w, r)
	case Leak:
		leak(w, r, d)
	case Endless, Loop:
		d.turnPages(w, r)
	case Swell:
		d.swell(w, r, next)
	case End:
		next.ServeHTTP(&unsized{ResponseWriter: g.spoil(w, r, d)}, r)
	default:
		next.ServeHTTP(g.spoil(w, r, d), r)
	}
}

// unsized hides how long an answer was to be.
type unsized struct{ http.ResponseWriter }

func (w *unsized) WriteHeader(code int) {
	w.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(code)
}

// leak answers with an error that repeats the credentials of the request, as
// they came and decoded.
func leak(w http.ResponseWriter, r *http.Request, d Defect) {
	said := []string{r.Header.Get("Authorization")}
	for _, field := range strings.Fields(said[0]) {
		said = append(said, field)
		if decoded, err := base64.StdEncoding.DecodeString(field); err == nil {
			said = append(said, string(decoded))
			_, password, _ := strings.Cut(string(decoded), ":")
			said = append(said, password)
		}
	}
	r.ParseForm()
	for _, values := range r.Form {
		said = append(said, values...)
	}
	for k, v := range d.Header {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(d.Status)
	fmt.Fprintf(w, `{"errors":[{"code":"UNKNOWN","message":%q}]}`, "cannot serve "+strings.Join(said, ", "))
}

// turnPages answers with a page of tags and a next page, always.
func (d *Defect) turnPages(w http.ResponseWriter, r *http.Request) {
	at, next := 0, r.URL.RequestURI()
	fmt.Sscanf(r.URL.Query().Get("last"), "page-%d", &at)
	if d.Do == Endless {
		next = fmt.Sprintf("%s?n=2&last=page-%d", r.URL.Path, at+1)
	}
	w.Header().Set("Link", "<"+next+`>; rel="next"`)
	writeJSON(w, "application/json", map[string]any{"name": "x", "tags": []string{fmt.Sprintf("1.0.%d", at), fmt.Sprintf("page-%d", at+1)}})
}

// swell answers with d.After bytes of JSON that does not end.
func (d *Defect) swell(w http.ResponseWriter, r *http.Request, next http.Handler) {
	rec := httptest.NewRecorder()
	next.ServeHTTP(rec, r)
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.Header().Del("Content-Length")
	w.WriteHeader(rec.Code)
	if r.Method == http.MethodHead {
		return
	}
	w.Write([]byte(`{"schemaVersion":2,"annotations":{"a":"`))
	d.pad(w)
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
		query.Set("n", strconv.Itoa(size+1)) // one more tells that there is a next page
	}
	inner := r.Clone(r.Context())
	inner.URL.RawQuery = query.Encode()
	rec := g.ask(inner)
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
	writeJSON(w, "application/json", list)
}

// listReferrers adds what the inner registry leaves out: the artifact type of
// manifests that state one. It does not filter, as registries may.
func (g *Registry) listReferrers(w http.ResponseWriter, r *http.Request) {
	if g.config.NoReferrers {
		http.NotFound(w, r)
		return
	}
	var list ocispec.Index
	rec := g.ask(r)
	if rec.Code != http.StatusOK || json.Unmarshal(rec.Body.Bytes(), &list) != nil {
		list.SchemaVersion, list.MediaType = 2, ocispec.MediaTypeImageIndex // nothing refers to what does not exist
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
	writeJSON(w, ocispec.MediaTypeImageIndex, list)
}

// putManifest stores a manifest and says whether its subject was understood.
func (g *Registry) putManifest(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 16<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	r.Body = io.NopCloser(strings.NewReader(string(text)))
	rec := g.ask(r)
	var m ocispec.Manifest
	if json.Unmarshal(text, &m) == nil && m.Subject != nil && !g.config.NoReferrers {
		rec.Header().Set("OCI-Subject", m.Subject.Digest.String())
	}
	replay(w, rec)
}

// stored returns the media type and content of the manifest at a path, "" when there is none.
func (g *Registry) stored(path string) (mediaType string, content []byte) {
	rec := g.ask(httptest.NewRequest(http.MethodGet, path, nil))
	if rec.Code != http.StatusOK {
		return "", nil
	}
	return rec.Header().Get("Content-Type"), rec.Body.Bytes()
}

func writeJSON(w http.ResponseWriter, mediaType string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.Write(text)
}
