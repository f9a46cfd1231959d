package testenv

import (
	"bytes"
	"io"
	"net/http"
	"net/http/cgi"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// backendFor returns git http-backend, set up for the repository that r names.
func (s *Server) backendFor(r *http.Request) http.Handler {
	for path, repo := range s.repos {
		if rest, ok := strings.CutPrefix(r.URL.Path, "/"+path); ok && (rest == "" || rest[0] == '/') {
			r.URL.Path = "/" + filepath.Base(repo.Dir) + rest
			if s.config.V0 {
				r.Header.Del("Git-Protocol")
			}
			return &cgi.Handler{
				Path: s.backend, Dir: repo.Dir, Logger: quiet, Stderr: io.Discard,
				Env: slices.Concat(s.env, uploadPackConfig(s.config.NoFilter, s.config.NoAnyWant),
					[]string{"GIT_PROJECT_ROOT=" + filepath.Dir(repo.Dir), "GIT_HTTP_EXPORT_ALL=1"}),
			}
		}
	}
	return http.NotFoundHandler()
}

// uploadPackConfig returns what git upload-pack offers, as git's environment.
func uploadPackConfig(noFilter, noAnyWant bool) []string {
	return []string{
		"GIT_CONFIG_COUNT=2",
		"GIT_CONFIG_KEY_0=uploadpack.allowFilter", "GIT_CONFIG_VALUE_0=" + strconv.FormatBool(!noFilter),
		"GIT_CONFIG_KEY_1=uploadpack.allowAnySHA1InWant", "GIT_CONFIG_VALUE_1=" + strconv.FormatBool(!noAnyWant),
	}
}

// A shallowless writer misspells the capability in an advertisement, which comes in one piece.
type shallowless struct{ http.ResponseWriter }

func (s shallowless) Write(b []byte) (int, error) {
	return s.ResponseWriter.Write(bytes.ReplaceAll(b, []byte("shallow"), []byte("hallows")))
}
