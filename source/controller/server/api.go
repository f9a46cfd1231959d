package server

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller"
	"github.com/headgate-io/headgate/source/controller/access"
	"github.com/headgate-io/headgate/source/controller/api"
)

// An apiCall is a request of the API.
type apiCall struct {
	*Server
	w     http.ResponseWriter
	r     *http.Request
	path  []string // what the stars of the route stand for
	grant access.Grant
}

// An apiRoute is a path of the API; * stands for one segment.
type apiRoute struct {
	method string
	path   string
	serve  func(*apiCall) error
	open   bool // also for callers who did not say who they are
}

// apiRoutes are those that package api lists.
var apiRoutes = []apiRoute{
	{"GET", "v1/sources", (*apiCall).sources, false},
	{"GET", "v1/sources/*/*/*", (*apiCall).source, false},
	{"GET", "v1/sources/*/*/*/files", (*apiCall).listFiles, false},
	{"GET", "v1/sources/*/*/*/runs", (*apiCall).runs, false},
	{"POST", "v1/sources/*/*/*/reconcile", (*apiCall).reconcile, false},
	{"POST", "v1/sources/*/*/*/suspend", (*apiCall).suspend, false},
	{"POST", "v1/sources/*/*/*/resume", (*apiCall).resume, false},
	{"GET", "v1/watch", (*apiCall).watch, false},
	{"GET", "v1/events", (*apiCall).events, false},
	{"GET", "v1/stats", (*apiCall).stats, false},
	{"GET", "v1/session", (*apiCall).session, false},
	{"POST", "v1/session", (*apiCall).login, true},
	{"DELETE", "v1/session", (*apiCall).logout, true},
}

// serveAPI answers what is below /api/.
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request, segments []string) error {
	c := &apiCall{Server: s, w: w, r: r}
	var allowed []string
	for _, route := range apiRoutes {
		values, matches := route.match(segments)
		if !matches {
			continue
		}
		if route.method != r.Method && (route.method != http.MethodGet || r.Method != http.MethodHead) {
			allowed = append(allowed, route.method)
			if route.method == http.MethodGet {
				allowed = append(allowed, http.MethodHead)
			}
			continue
		}
		c.path = values
		return c.answer(route)
	}
	if allowed != nil {
		return answer.WrongMethod(w, allowed...)
	}
	return errNothing
}

// answer does what a route does, for who may ask.
func (c *apiCall) answer(route apiRoute) (err error) {
	if !route.open {
		if c.grant, err = c.Guard.Identify(c.r); err != nil {
			return err
		}
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

// reply answers with JSON.
func (c *apiCall) reply(status int, value any) error { return answer.JSON(c.w, status, value) }

// read reads the JSON of a request.
func (c *apiCall) read(value any) error { return answer.Read(c.w, c.r, maxBody, value) }

// query returns the parameters of a request, which has no others than those
// allowed, and each once.
func (c *apiCall) query(allowed ...string) (map[string]string, error) {
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, answer.Refuse(http.StatusBadRequest, "the parameters are not escaped as in URLs")
	}
	values := map[string]string{}
	for name, list := range query {
		switch {
		case !slices.Contains(allowed, name):
			there := "none"
			if len(allowed) > 0 {
				there = strings.Join(allowed, ", ")
			}
			return nil, answer.Refuse(http.StatusBadRequest, "parameter %s: is unknown here; there are %s", quote(name), there)
		case len(list) != 1:
			return nil, answer.Refuse(http.StatusBadRequest, "parameter %s: is there twice", name)
		}
		values[name] = list[0]
	}
	return values, nil
}

// impossible refuses the value of a parameter.
func impossible(name, value, want string) error {
	return answer.Refuse(http.StatusBadRequest, "parameter %s: %s is not possible: want %s", name, quote(value), want)
}

// quote quotes a text of a request, shortened to 80 bytes.
func quote(text string) string {
	if len(text) > 80 {
		text = strings.ToValidUTF8(text[:77], "") + "..."
	}
	return strconv.QuoteToASCII(text)
}

// number reads a parameter that is a number from least to most.
func number(values map[string]string, name string, least, most, otherwise int) (int, error) {
	text, given := values[name]
	if !given {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, impossible(name, text, "a number from "+strconv.Itoa(least)+" to "+strconv.Itoa(most))
	}
	return n, nil
}

// span reads a parameter that is a duration.
func span(values map[string]string, name string, most time.Duration) (time.Duration, error) {
	text, given := values[name]
	if !given {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > most {
		return 0, impossible(name, text, "a duration up to "+source.Duration(most).String()+", such as 30s")
	}
	return d, nil
}

// object returns the object of the path as it is now.
func (c *apiCall) object() (source.Reference, controller.View, error) {
	ref, err := source.ParseReference(strings.Join(c.path[:3], "/"))
	if err != nil {
		return ref, controller.View{}, answer.Refuse(http.StatusNotFound, "%w", err)
	}
	if err := c.grant.Read(ref); err != nil {
		return ref, controller.View{}, err
	}
	v, err := c.Controller.View(ref)
	return ref, v, err
}

// filterNames are the parameters that select sources and events.
var filterNames = []string{"kind", "namespace", "name"}

// filter returns what the parameters select.
func filter(values map[string]string) (source.Reference, error) {
	ref := source.Reference{Namespace: values["namespace"], Name: values["name"]}
	if kind := values["kind"]; kind != "" {
		named, err := source.ParseReference(kind)
		if err != nil || named.Name != "" {
			return ref, answer.Refuse(http.StatusBadRequest, "parameter kind: %w", err)
		}
		ref.Kind = named.Kind
	}
	return ref, nil
}

// readiness reads the parameter ready.
func readiness(values map[string]string) (string, error) {
	switch ready := strings.ToLower(values["ready"]); ready {
	case "":
		return "", nil
	case "true", "false", "unknown":
		return strings.ToUpper(ready[:1]) + ready[1:], nil
	}
	return "", impossible("ready", values["ready"], "true, false or unknown")
}

func (c *apiCall) stats() error {
	if _, err := c.query(); err != nil {
		return err
	}
	return c.reply(http.StatusOK, c.count())
}

// count returns how much there is to do, of what the caller may read.
func (c *apiCall) count() api.Stats {
	now := c.Controller.Stats()
	stats := api.Stats{
		Version: version(), Started: c.started, Phases: map[string]int{}, Ready: map[string]int{}, Defects: c.defects(),
	}
	if c.grant.Read(source.Reference{}) == nil {
		stats.Fetching, stats.Oldest = now.Fetching, now.Oldest.Seconds()
	}
	for _, v := range c.Controller.Views() {
		if c.grant.Read(source.ReferenceTo(v.Object)) != nil {
			continue
		}
		stats.Objects++
		stats.Phases[string(v.Phase)]++
		stats.Ready[readyOf(v).Status]++
	}
	return stats
}
