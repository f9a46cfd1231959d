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

// listTags answers with one page, and with a Link to the next.
func (g *Registry) listTags(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	all := r.Clone(r.Context())
	all.URL.RawQuery = ""
	rec := g.ask(all)
	var list struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if rec.Code != http.StatusOK || json.Unmarshal(rec.Body.Bytes(), &list) != nil {
		replay(w, rec)
		return
	}
	last := query.Get("last")
	list.Tags = slices.DeleteFunc(list.Tags, func(tag string) bool { return last != "" && tag <= last })
	size, _ := strconv.Atoi(query.Get("n"))
	if g.config.PageSize > 0 && (size == 0 || size > g.config.PageSize) {
		size = g.config.PageSize
	}
	if size > 0 && size < len(list.Tags) {
		list.Tags = list.Tags[:size]
		next := url.Values{"n": {strconv.Itoa(size)}, "last": {list.Tags[size-1]}}
		w.Header().Set("Link", "<"+r.URL.Path+"?"+next.Encode()+`>; rel="next"`)
	}
	writeJSON(w, "application/json", list)
}

// listReferrers gives what the inner registry leaves out: the artifact type of
// manifests that state one, and the filter.
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
	if kind := r.URL.Query().Get("artifactType"); kind != "" {
		list.Manifests = slices.DeleteFunc(list.Manifests, func(d ocispec.Descriptor) bool { return d.ArtifactType != kind })
		w.Header().Set("OCI-Filters-Applied", "artifactType")
	}
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
