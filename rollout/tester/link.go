package tester

import (
	"net/http"
)

func (s *Server) serveLink(w http.ResponseWriter, r *http.Request, secret string) { s.notFound(w, r) }
