package server

// APIRoutes returns the routes of the API, METHOD PATH.
func APIRoutes() []string {
	var list []string
	for _, r := range apiRoutes {
		list = append(list, r.method+" "+r.path)
	}
	return list
}
