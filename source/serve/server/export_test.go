package server

// APIRoutes returns the routes of the API, METHOD PATH.
func APIRoutes() []string {
	var list []string
	for pattern, methods := range routes {
		for _, m := range methods {
			list = append(list, m.Name+" "+pattern)
		}
	}
	return list
}
