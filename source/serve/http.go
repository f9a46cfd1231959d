package serve

import (
	"cmp"
	"embed"
	"io/fs"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/source"
)

// Callers authenticates callers by a file of tokens and client certificates; see [OpenCallers].
type Callers = httpserve.Guard

// CallersConfig configures [OpenCallers], which sets its Cookie and Lists.
type CallersConfig = httpserve.Config

// Permissions of callers, as spelled in the file of callers.
const (
	mayFetch  = "fetch"
	mayRead   = "read"
	mayChange = "change"
	mayDebug  = "debug"
)

// OpenCallers reads the file of a configuration, which is a YAML or JSON document. The error names each
// invalid field.
//
//	tokens:
//	- name: deploy             # of the caller, in logs
//	  token: 7d0f…             # at least 16 bytes; or
//	  sha256: 9f86d0…          # the SHA-256 of the token, 64 hexadecimal digits
//	  may: [fetch, read]       # fetch artifacts; read statuses and events; change (reconcile, suspend, resume); debug (profiles); default all but debug
//	  namespaces: [shop, team-*]
//	  kinds: [GitRepository]   # in the spelling of either API group
//	  expires: 2027-01-01T00:00:00Z
//	certificates:
//	- name: alice              # and permissions as above
//	  commonName: alice        # or dns or uri
//
// If namespaces or kinds are left out, everything is allowed; an empty list allows nothing. Their patterns match whole
// names; * matches any text. A request makes the server check the file for changes, at most once a second. If the
// new content is invalid, the previous callers stay in effect. Callers that use the socket of the server may do everything.
func OpenCallers(c CallersConfig) (*Callers, error) {
	c.Cookie = "headgate_serve"
	c.Lists = map[string]httpserve.ListRule{
		"may":        {Check: checkMay, Absent: "all but debug"},
		"namespaces": {Check: httpserve.CheckNamespace},
		"kinds":      {Check: checkKind, Adjust: kindPattern},
	}
	return httpserve.OpenGuard(c)
}

func checkMay(p httpserve.Pattern) string {
	if slices.Contains([]httpserve.Pattern{mayFetch, mayRead, mayChange, mayDebug}, p) {
		return ""
	}
	return document.Quote(string(p)) + " is nothing that callers may do: want one of fetch, read, change, debug"
}

func checkKind(p httpserve.Pattern) string {
	if strings.Contains(string(p), "*") {
		return httpserve.CheckText(p)
	}
	if _, known := source.ParseKind(string(p)); !known {
		return document.Quote(string(p)) + " is no kind: want one as GitRepository, or a pattern with *"
	}
	return ""
}

// kindPattern returns the spelling of a kind in references. It returns other patterns unchanged.
func kindPattern(p httpserve.Pattern) httpserve.Pattern {
	if kind, known := source.ParseKind(string(p)); known {
		return httpserve.Pattern(kind)
	}
	return p
}

// checkPermission returns nil if a caller may do something with an object, and the denial otherwise. The zero Reference means all objects.
func checkPermission(g httpserve.Grant, action string, ref source.Reference) error {
	s := g.Scope()
	hasKind := func(kind string) bool { return httpserve.Allows(s.Kinds, kind) }
	switch {
	case g.All:
		return nil
	case s == nil:
		return httpserve.Forbid("missing", g.Actor, action+": nothing is allowed")
	case s.May == nil && action == mayDebug, s.May != nil && !slices.Contains(*s.May, httpserve.Pattern(action)):
		return httpserve.OutOfScope("may", g.Actor, action, action)
	case !httpserve.Allows(s.Namespaces, ref.Namespace):
		return httpserve.OutOfScope("namespace", g.Actor, action, ref.Namespace)
	case !hasKind(ref.Kind) && !slices.ContainsFunc(source.Spellings(ref.Kind), hasKind):
		return httpserve.OutOfScope("kind", g.Actor, action, ref.Kind)
	}
	return nil
}

// authorize authenticates the caller of c and sets c.grant. It returns nil if the caller may do something with an object, and
// the denial otherwise.
func (c *call) authorize(action string, ref source.Reference) (err error) {
	if c.grant, err = c.config.Callers.Identify(c.r, ""); err == nil {
		err = checkPermission(c.grant, action, ref)
	}
	return err
}

// A call is a request that is being served.
type call struct {
	*Server
	w      http.ResponseWriter
	r      *http.Request
	grant  httpserve.Grant   // of the authenticated caller
	values map[string]string // query parameters
	ref    source.Reference  // of the object that the path names
	view   View              // of that object
}

// Values of route.needs, besides a permission for the object of the path.
const (
	anyCaller = "caller"    // an authenticated caller
	documents = "documents" // the same, once the feed was read: before that, objects would seem to be missing
)

// A route is a pattern of [http.ServeMux] with its requirement, its query parameters and its handler.
type route struct {
	pattern    string
	needs      string // "" for nothing
	parameters string // names, separated by spaces
	serve      func(*call) error
}

const objectPath = "/api/v1/sources/{kind}/{namespace}/{name}"

// routes are the routes of the API, which package api documents, and the other fixed routes.
var routes = []route{
	{"GET /api/v1/sources", documents, "kind namespace name ready", (*call).list},
	{"GET " + objectPath, mayRead, "", (*call).source},
	{"GET " + objectPath + "/files", mayFetch, "after limit", (*call).files},
	{"GET " + objectPath + "/runs", mayRead, "", (*call).runs},
	{"POST " + objectPath + "/reconcile", mayChange, "wait", (*call).reconcile},
	{"POST " + objectPath + "/suspend", mayChange, "", (*call).suspend},
	{"POST " + objectPath + "/resume", mayChange, "", (*call).resume},
	{"GET /api/v1/watch", anyCaller, "kind namespace name ready", (*call).watch},
	{"GET /api/v1/events", anyCaller, "kind namespace name severity since after limit follow", (*call).events},
	{"GET /api/v1/stats", anyCaller, "", (*call).stats},
	{"GET /api/v1/session", anyCaller, "", (*call).session},
	{"GET /healthz", "", "", func(c *call) error { return httpserve.Text(c.w, http.StatusOK, "OK\n") }},
	{"GET /readyz", "", "", (*call).readyz},
	{"GET /metrics", "", "", (*call).scrape},
	{"POST /hook/{kind}/{name}", "", "", (*call).hook},
	{"POST /hook/{kind}/{namespace}/{name}", "", "", (*call).hook},
	{"GET /debug/pprof/{name}", "", "", (*call).profile},
	{"GET /debug/pprof/{$}", "", "", (*call).profile},
}

// prepare checks the requirement of the route of c, and sets the fields of c for it.
func (c *call) prepare(r route) (err error) {
	if r.needs == "" {
		return nil
	}
	if c.grant, err = c.config.Callers.Identify(c.r, ""); err != nil || r.needs == anyCaller {
		return cmp.Or(err, c.readParameters(strings.Fields(r.parameters)))
	}
	select {
	case <-c.ready:
	case <-c.r.Context().Done():
	case <-c.ctx.Done():
	}
	if !c.Ready() {
		return httpserve.Refuse(http.StatusServiceUnavailable, "the server ends before it has read its documents")
	}
	if r.needs != documents {
		if c.ref, err = source.ParseReference(c.r.PathValue("kind") + "/" + c.r.PathValue("namespace") + "/" + c.r.PathValue("name")); err != nil {
			return httpserve.Refuse(http.StatusNotFound, "%w", err)
		}
		if err := cmp.Or(checkPermission(c.grant, mayRead, c.ref), checkPermission(c.grant, r.needs, c.ref)); err != nil {
			return err
		}
		if c.view, err = c.View(c.ref); err != nil {
			return err
		}
	}
	return c.readParameters(strings.Fields(r.parameters))
}

//go:embed page
var page embed.FS

// Page returns the handler of the web page, which it serves below /ui/. The page uses nothing but the API
// of package api.
func Page() http.Handler { return httpserve.Page(page, "page") }

// Handler returns the handler of all paths of the server. [http.StripPrefix] can mount it below a path of another
// server. Streams end when the context of [Server.Run] ends.
func (s *Server) Handler() http.Handler { return s.handler }

func (s *Server) routes() http.Handler {
	router := &httpserve.Router{
		Server: "server", Log: s.log, Origins: httpserve.Origins(s.config.BaseURL), KeepCredentials: "/hook/",
		Statuses: map[error]int{fs.ErrNotExist: http.StatusNotFound, ErrSuspended: http.StatusConflict, ErrEnded: http.StatusServiceUnavailable},
		Unknown:  func(string) string { return howToAuthenticate }, Forbidden: "the credential does not allow it",
		Problem: func(r *http.Request) bool { return r.URL.Path == "/api" || strings.HasPrefix(r.URL.Path, "/api/") },
		Path:    func(r *http.Request) string { return clean(r.URL.Path) },
		Denied:  func(kind string) { s.metrics.denials.WithLabelValues(kind).Inc() },
		Observe: s.observeRequest,
	}
	for _, route := range routes {
		if strings.HasPrefix(route.pattern, "GET /debug/") && !s.config.Profiles {
			continue
		}
		router.Route(route.pattern, func(w http.ResponseWriter, r *http.Request) error {
			c := &call{Server: s, w: w, r: r}
			if err := c.prepare(route); err != nil {
				return err
			}
			return route.serve(c)
		})
	}
	router.Sessions("/api/v1/session", s.config.Callers, s.bodies, s.sessionOf)
	router.Handle("/ui", Page())
	router.Handle("/ui/", Page())
	store := s.config.Store.Handler()
	router.Route("/", func(w http.ResponseWriter, r *http.Request) error {
		return (&call{Server: s, w: w, r: r}).artifact(store)
	})
	return router
}

// artifact serves the paths without another route: it sends artifacts to callers that may fetch them, redirects
// browsers from the root to the page, and answers 404 otherwise.
func (c *call) artifact(store http.Handler) error {
	r := c.r
	if httpserve.RedirectToPage(c.w, r) {
		return nil
	}
	path := strings.Split(r.URL.Path, "/")[1:]
	if len(path) != 4 && len(path) != 5 {
		return httpserve.ErrNotFound
	}
	ref, err := source.ParseReference(strings.Join(path[:3], "/"))
	if err != nil {
		return httpserve.ErrNotFound
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return httpserve.WrongMethod(c.w, http.MethodGet, http.MethodHead)
	}
	if c.config.Callers.Required() && !c.config.OpenArtifacts {
		if err := c.authorize(mayFetch, ref); err != nil {
			return err
		}
		c.w.Header().Set("Cache-Control", "private")
		c.w.Header().Set("Vary", "Authorization")
	}
	if slices.ContainsFunc(source.Spellings(ref.Kind)[1:], func(kind string) bool { return path[0] == strings.ToLower(kind) }) {
		r = r.Clone(r.Context()) // the store has one directory for both groups
		r.URL.Path, r.URL.RawPath = "/"+strings.ToLower(ref.Kind)+"/"+strings.Join(path[1:], "/"), ""
	}
	store.ServeHTTP(c.w, r)
	return nil
}

// readyz answers 200 if the server is ready, and otherwise 503 with the parts that are not, one per line.
func (c *call) readyz() error {
	var missing []string
	if c.ctx.Err() != nil {
		missing = append(missing, "server: shutting down")
	}
	if !c.Ready() {
		missing = append(missing, "controller: the documents are not read yet, or the saved statuses are not restored")
	}
	if err := c.config.Store.Writable(); err != nil {
		missing = append(missing, "store: "+err.Error())
	}
	if len(missing) > 0 {
		return httpserve.Text(c.w, http.StatusServiceUnavailable, strings.Join(missing, "\n")+"\n")
	}
	return httpserve.Text(c.w, http.StatusOK, "OK\n")
}

// profile answers with a profile of the process. It concerns all objects, so the caller must be allowed to debug all.
func (c *call) profile() error {
	if err := c.authorize(mayDebug, source.Reference{}); err != nil {
		return err
	}
	serve := map[string]http.HandlerFunc{"profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace}[c.r.PathValue("name")]
	if c.r.PathValue("name") == "cmdline" { // flags may contain secrets
		return httpserve.ErrNotFound
	}
	if serve == nil {
		serve = pprof.Index
	}
	serve(c.w, c.r)
	return nil
}

// howToAuthenticate tells a caller how to authenticate.
const howToAuthenticate = "authenticate: by a token in the header Authorization (Bearer, or Basic as password) or by a client certificate; " +
	"headgate takes it from --token-file or HEADGATE_TOKEN"
