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

// An apiRoute is a path of the API; * stands for one segment.
type apiRoute struct {
	method string
	path   string
	serve  func(*apiCall) error
	open   bool // also for callers who did not say who they are
}

var apiRoutes = []apiRoute{
	{"GET", "v1/gates", (*apiCall).gates, false},
	{"GET", "v1/gates/*/*/*/*", (*apiCall).gate, false},
	{"POST", "v1/gates/*/*/*/*/*", (*apiCall).changeGate, false},
	{"GET", "v1/audit", (*apiCall).audit, false},
	{"GET", "v1/runs", (*apiCall).runs, false},
	{"GET", "v1/runs/*", (*apiCall).run, false},
	{"GET", "v1/runs/*/output", (*apiCall).output, false},
	{"POST", "v1/runs/*/cancel", (*apiCall).cancel, false},
	{"GET", "v1/watch", (*apiCall).watch, false},
	{"GET", "v1/session", (*apiCall).session, false},
	{"POST", "v1/session", (*apiCall).login, true},
	{"DELETE", "v1/session", (*apiCall).logout, true},
}

// serveAPI answers what is below /api/.
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request, segments []string) {
	c := &apiCall{Server: s, w: w, r: r}
	err := c.serve(segments)
	if err != nil {
		s.refuseJSON(w, r, err)
	}
}

func (c *apiCall) serve(segments []string) error {
	var allowed []string
	for _, route := range apiRoutes {
		values, matches := route.match(segments)
		if !matches {
			continue
		}
		if route.method != c.r.Method && (route.method != http.MethodGet || c.r.Method != http.MethodHead) {
			allowed = append(allowed, route.method)
			continue
		}
		c.path = values
		return c.answer(route)
	}
	if allowed != nil {
		return answer.WrongMethod(c.w, allowed...)
	}
	return answer.Refuse(http.StatusNotFound, "there is nothing at this path")
}

// answer does what a route does, for who may ask.
func (c *apiCall) answer(route apiRoute) error {
	if !route.open {
		grant, err := c.Guard.Identify(c.r, "")
		if err != nil {
			return err
		}
		c.caller = caller{Grant: grant}
	}
	return route.serve(c)
}

// match returns what the stars stand for.
func (a apiRoute) match(segments []string) ([]string, bool) {
	pattern := strings.Split(a.path, "/")
	if len(pattern) != len(segments) {
		return nil, false
	}
	var values []string
	for i, want := range pattern {
		switch {
		case want == "*":
			values = append(values, segments[i])
		case want != segments[i]:
			return nil, false
		}
	}
	return values, true
}

// read reads the JSON of a request, as strictly as the API is: what is unknown
// is refused. No body is an empty object.
func (c *apiCall) read(value any) error { return answer.Read(c.w, c.r, c.maxBody(), value) }

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
	case "type":
		f.Type = api.TypeName(value)
		valid = f.Type != ""
	case "state":
		f.State = api.RunState(value)
		valid = slices.Contains(runStates, f.State)
	case "waiting":
		f.Waiting, err = strconv.ParseBool(value)
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

// page collects up to f.Limit of what the caller may see. list returns the next
// that f selects, newest first.
func page[T any](f api.Filter, list func(api.Filter) []T, id func(T) string, see func(T) bool) []T {
	seen := []T{}
	for limit := f.Limit; ; {
		f.Limit = limit - len(seen)
		next := list(f)
		for _, item := range next {
			if see(item) {
				seen = append(seen, item)
			}
		}
		if len(next) < f.Limit || len(seen) >= limit {
			return seen
		}
		f.Before = id(next[len(next)-1])
	}
}
