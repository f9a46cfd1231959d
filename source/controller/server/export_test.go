package server

import "context"

// MakeFiles takes the turn to make a list of files, until end is called.
func (s *Server) MakeFiles() (end func()) {
	end, _ = s.files.begin(context.Background())
	return end
}

// APIRoutes returns the routes of the API, METHOD PATH.
func APIRoutes() []string {
	var list []string
	for _, r := range apiRoutes {
		list = append(list, r.Method+" "+r.Path)
	}
	return list
}
