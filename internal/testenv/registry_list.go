package testenv

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

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
