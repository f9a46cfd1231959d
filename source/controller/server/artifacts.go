package server

import (
	"net/http"
	"strings"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/source"
)

// serveArtifact answers what is below no other path: an artifact, to those who
// may fetch it, or nothing.
func (s *Server) serveArtifact(w http.ResponseWriter, r *http.Request, path []string, store http.Handler) error {
	if len(path) != 4 && len(path) != 5 {
		return answer.ErrNothing
	}
	ref, err := source.ParseReference(strings.Join(path[:3], "/"))
	if err != nil {
		return answer.ErrNothing
	}
	if err := reads(w, r); err != nil {
		return err
	}
	if s.Guard.Required() && !s.OpenArtifacts {
		grant, err := s.Guard.Identify(r)
		if err == nil {
			err = grant.Fetch(ref)
		}
		if err != nil {
			return err
		}
		answer.Writing(w).Before = private
	}
	for _, spelling := range source.Spellings(ref.Kind)[1:] { // the store has one directory for both groups
		if path[0] == strings.ToLower(spelling) {
			r = r.Clone(r.Context())
			r.URL.Path, r.URL.RawPath = "/"+strings.ToLower(ref.Kind)+"/"+strings.Join(path[1:], "/"), ""
		}
	}
	store.ServeHTTP(w, r)
	return nil
}

// private keeps what not everybody may fetch out of caches that everybody may ask.
func private(header http.Header) {
	if caching := header.Get("Cache-Control"); caching != "" {
		header.Set("Cache-Control", strings.Replace(caching, "public", "private", 1))
	}
	header.Add("Vary", "Authorization")
}
