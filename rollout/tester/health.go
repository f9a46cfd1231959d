package tester

import "net/http"

// serveHealth answers that the process serves.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {}

// serveReady answers whether the process takes work: 503 with a reason when its
// stores cannot be written or when it is shutting down.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {}
