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

// apiRoutes are those that package api lists.
var apiRoutes = []answer.Route[*apiCall]{
	{Method: "GET", Path: "v1/sources", Serve: (*apiCall).sources},
	{Method: "GET", Path: "v1/sources/*/*/*", Serve: (*apiCall).source},
	{Method: "GET", Path: "v1/sources/*/*/*/files", Serve: (*apiCall).listFiles},
	{Method: "GET", Path: "v1/sources/*/*/*/runs", Serve: (*apiCall).runs},
	{Method: "POST", Path: "v1/sources/*/*/*/reconcile", Serve: (*apiCall).reconcile},
	{Method: "POST", Path: "v1/sources/*/*/*/suspend", Serve: (*apiCall).suspend},
	{Method: "POST", Path: "v1/sources/*/*/*/resume", Serve: (*apiCall).resume},
	{Method: "GET", Path: "v1/watch", Serve: (*apiCall).watch},
	{Method: "GET", Path: "v1/events", Serve: (*apiCall).events},
	{Method: "GET", Path: "v1/stats", Serve: (*apiCall).stats},
	{Method: "GET", Path: "v1/session", Serve: (*apiCall).session},
	{Method: "POST", Path: "v1/session", Serve: (*apiCall).login, Open: true},
	{Method: "DELETE", Path: "v1/session", Serve: (*apiCall).logout, Open: true},
}

// serveAPI answers what is below /api/, to those who may ask.
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request, segments []string) error {
	route, path, err := answer.Find(apiRoutes, w, r, segments)
	if err != nil {
		return err
	}
	c := &apiCall{Server: s, w: w, r: r, path: path}
	if !route.Open {
		if c.grant, err = s.Guard.Identify(r); err != nil {
			return err
		}
	}
	if strings.HasPrefix(route.Path, "v1/sources") { // or an object whose document is not read yet would be told as absent
		ctx, end := s.streaming(r.Context())
		err := s.Controller.WaitReady(ctx)
		end()
		if err != nil {
			return answer.Refuse(http.StatusServiceUnavailable, "the server ends before it has read its documents")
		}
	}
	return route.Serve(c)
}

// reply answers with JSON.
func (c *apiCall) reply(status int, value any) error { return c.lists.JSON(c.w, status, value) }

// read reads the JSON of a request.
func (c *apiCall) read(value any) error { return c.bodies.Read(c.w, c.r, maxBody, value) }

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
