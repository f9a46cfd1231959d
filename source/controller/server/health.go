package server

import (
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/headgate-io/headgate/internal/answer"
)

// serveHealth answers that the process serves.
func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) error {
	return answer.Text(w, http.StatusOK, "OK\n")
}

// serveReady answers whether the server has what it is asked for, or else which
// parts are missing, one a line.
func (s *Server) serveReady(w http.ResponseWriter, _ *http.Request) error {
	var missing []string
	select {
	case <-s.ending():
		missing = append(missing, "server: shutting down")
	default:
	}
	if !s.Controller.Ready() {
		missing = append(missing, "controller: the documents are not read yet, or the saved statuses are not restored")
	}
	if err := s.Store.Writable(); err != nil {
		missing = append(missing, "store: "+err.Error())
	}
	if len(missing) > 0 {
		return answer.Text(w, http.StatusServiceUnavailable, strings.Join(missing, "\n")+"\n")
	}
	return answer.Text(w, http.StatusOK, "OK\n")
}

// profiles are the pages of net/http/pprof that are no profile of the runtime.
var profiles = map[string]http.HandlerFunc{
	"cmdline": nil, // flags may be secret
	"profile": pprof.Profile,
	"symbol":  pprof.Symbol,
	"trace":   pprof.Trace,
}

// serveProfile answers with profiles of the process.
func (s *Server) serveProfile(w http.ResponseWriter, r *http.Request, path []string) error {
	if len(path) != 2 || path[0] != "pprof" {
		return answer.ErrNothing
	}
	if err := reads(w, r); err != nil {
		return err
	}
	grant, err := s.Guard.Identify(r)
	if err == nil {
		err = grant.Debug()
	}
	if err != nil {
		return err
	}
	name := path[1]
	serve, special := profiles[name]
	switch {
	case name == "":
		serve = pprof.Index
	case !special:
		serve = pprof.Handler(name).ServeHTTP
	case serve == nil:
		return answer.ErrNothing
	}
	serve(w, r)
	return nil
}
