package tester

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

// An apiCall is a request of the API.
type apiCall struct {
	*Server
	w    http.ResponseWriter
	r    *http.Request
	path []string // what the stars of the route stand for
	caller
}

var apiRoutes = []answer.Route[*apiCall]{
	{Method: "GET", Path: "v1/gates", Serve: (*apiCall).gates},
	{Method: "GET", Path: "v1/gates/*/*/*/*", Serve: (*apiCall).gate},
	{Method: "POST", Path: "v1/gates/*/*/*/*/*", Serve: (*apiCall).changeGate},
	{Method: "GET", Path: "v1/audit", Serve: (*apiCall).audit},
	{Method: "GET", Path: "v1/runs", Serve: (*apiCall).runs},
	{Method: "GET", Path: "v1/runs/*", Serve: (*apiCall).run},
	{Method: "GET", Path: "v1/runs/*/output", Serve: (*apiCall).output},
	{Method: "POST", Path: "v1/runs/*/cancel", Serve: (*apiCall).cancel},
	{Method: "GET", Path: "v1/watch", Serve: (*apiCall).watch},
	{Method: "GET", Path: "v1/session", Serve: (*apiCall).session},
	{Method: "POST", Path: "v1/session", Serve: (*apiCall).login, Open: true},
	{Method: "DELETE", Path: "v1/session", Serve: (*apiCall).logout, Open: true},
}

// serveAPI answers what is below /api/.
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request, segments []string) {
	if err := s.callAPI(w, r, segments); err != nil {
		s.refuseJSON(w, r, err)
	}
}

// callAPI does what a route does, for who may ask.
func (s *Server) callAPI(w http.ResponseWriter, r *http.Request, segments []string) error {
	route, path, err := answer.Find(apiRoutes, w, r, segments)
	if err != nil {
		return err
	}
	c := &apiCall{Server: s, w: w, r: r, path: path}
	if !route.Open {
		grant, err := s.Guard.Identify(r, "")
		if err != nil {
			return err
		}
		c.caller = caller{Grant: grant}
	}
	return route.Serve(c)
}

// read reads the JSON of a request, as strictly as the API is: what is unknown
// is refused. No body is an empty object.
func (c *apiCall) read(value any) error { return c.bodies.Read(c.w, c.r, c.maxBody(), value) }

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// filter reads the query, which has no other parameters than those allowed.
func (c *apiCall) filter(allowed ...string) (api.Filter, error) {
	f := api.Filter{Limit: defaultLimit}
	query := c.r.URL.Query()
	for name, values := range query {
		if !slices.Contains(allowed, name) {
			return f, answer.Refuse(http.StatusBadRequest, "parameter %s: is unknown here; there are %s", shorten(name), strings.Join(allowed, ", "))
		}
		if len(values) != 1 {
			return f, answer.Refuse(http.StatusBadRequest, "parameter %s: is there twice", name)
		}
		if err := setFilter(&f, name, values[0]); err != nil {
			return f, err
		}
	}
	return f, nil
}

// possible says which values a parameter may have, when not all are.
var possible = map[string]string{
	"kind":    "gate or rollback",
	"type":    "a type of tests",
	"state":   "queued, running, succeeded, failed, timed-out, cancelled, stopped or lost",
	"waiting": "true or false",
	"stale":   "true or false",
	"limit":   "from 1 to " + strconv.Itoa(maxLimit),
}

var runStates = []api.RunState{api.Queued, api.Running, api.Succeeded, api.Failed, api.TimedOut, api.Cancelled, api.Stopped, api.Lost}

func setFilter(f *api.Filter, name, value string) error {
	var err error
	valid := true
	switch name {
	case "kind":
		f.Kind = api.Kind(value)
		valid = f.Kind == api.KindGate || f.Kind == api.KindRollback
	case "namespace":
		f.Namespace = value
	case "name":
		f.Name = value
	case "gate":
		f.Gate = value
	case "checksum":
		f.Checksum = value
	case "type":
		f.Type = api.TypeName(value)
		valid = f.Type != ""
	case "state":
		f.State = api.RunState(value)
		valid = slices.Contains(runStates, f.State)
	case "waiting":
		f.Waiting, err = strconv.ParseBool(value)
	case "stale":
		f.Stale, err = strconv.ParseBool(value)
	case "limit":
		f.Limit, err = strconv.Atoi(value)
		valid = 0 < f.Limit && f.Limit <= maxLimit
	case "before":
		f.Before = value
	}
	if err != nil || !valid {
		return answer.Refuse(http.StatusBadRequest, "parameter %s: %s is not possible: want %s", name, strconv.Quote(shorten(value)), possible[name])
	}
	return nil
}

// list collects up to f.Limit of what the caller may see. next returns those
// that f selects next, newest first.
func list[T any](f api.Filter, next func(api.Filter) []T, id func(T) string, see func(T) bool) []T {
	seen := []T{}
	for limit := f.Limit; ; {
		f.Limit = limit - len(seen)
		found := next(f)
		for _, item := range found {
			if see(item) {
				seen = append(seen, item)
			}
		}
		if len(found) < f.Limit || len(seen) >= limit {
			return seen
		}
		f.Before = id(found[len(found)-1])
	}
}
