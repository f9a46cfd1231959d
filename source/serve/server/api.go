package server

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/access"
	"github.com/headgate-io/headgate/source/serve/api"
)

// An apiCall is a request of the API.
type apiCall struct {
	*Server
	w     http.ResponseWriter
	r     *http.Request
	grant access.Grant
}

// byAnyone serves a request of any caller.
func byAnyone(serve func(*apiCall) error) func(*Server, http.ResponseWriter, *http.Request) error {
	return func(s *Server, w http.ResponseWriter, r *http.Request) error {
		return serve(&apiCall{Server: s, w: w, r: r})
	}
}

// byCaller serves a request of a caller that is known.
func byCaller(serve func(*apiCall) error) func(*Server, http.ResponseWriter, *http.Request) error {
	return byAnyone(func(c *apiCall) (err error) {
		if c.grant, err = c.Guard.Identify(c.r); err != nil {
			return err
		}
		return serve(c)
	})
}

// onDocuments serves a request of a caller that is known when the documents are
// read: before, an object of one that is not read yet would be told as absent.
func onDocuments(serve func(*apiCall) error) func(*Server, http.ResponseWriter, *http.Request) error {
	return byCaller(func(c *apiCall) error {
		ctx, end := c.streaming(c.r.Context())
		err := c.Controller.WaitReady(ctx)
		end()
		if err != nil {
			return httpserve.Refuse(http.StatusServiceUnavailable, "the server ends before it has read its documents")
		}
		return serve(c)
	})
}

type wrapper func(func(*apiCall) error) func(*Server, http.ResponseWriter, *http.Request) error

func get(by wrapper, serve func(*apiCall) error) method {
	return method{Name: http.MethodGet, Serve: by(serve)}
}

func post(by wrapper, serve func(*apiCall) error) method {
	return method{Name: http.MethodPost, Serve: by(serve)}
}

// reply answers with JSON.
func (c *apiCall) reply(value any) error { return httpserve.JSON(c.w, http.StatusOK, value) }

// query returns the parameters of a request, which has no others than those
// allowed, and each once.
func (c *apiCall) query(allowed ...string) (map[string]string, error) {
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, httpserve.Refuse(http.StatusBadRequest, "the parameters are not escaped as in URLs")
	}
	values := map[string]string{}
	for name, list := range query {
		switch {
		case !slices.Contains(allowed, name):
			there := "none"
			if len(allowed) > 0 {
				there = strings.Join(allowed, ", ")
			}
			return nil, httpserve.Refuse(http.StatusBadRequest, "parameter %s: is unknown here; there are %s", quote(name), there)
		case len(list) != 1:
			return nil, httpserve.Refuse(http.StatusBadRequest, "parameter %s: is there twice", name)
		}
		values[name] = list[0]
	}
	return values, nil
}

// impossible refuses the value of a parameter.
func impossible(name, value, want string) error {
	return httpserve.Refuse(http.StatusBadRequest, "parameter %s: %s is not possible: want %s", name, quote(value), want)
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
func (c *apiCall) object() (source.Reference, serve.View, error) {
	ref, err := source.ParseReference(strings.Join([]string{c.r.PathValue("kind"), c.r.PathValue("namespace"), c.r.PathValue("name")}, "/"))
	if err != nil {
		return ref, serve.View{}, httpserve.Refuse(http.StatusNotFound, "%w", err)
	}
	if err := c.grant.Read(ref); err != nil {
		return ref, serve.View{}, err
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
			return ref, httpserve.Refuse(http.StatusBadRequest, "parameter kind: %w", err)
		}
		ref.Kind = named.Kind
	}
	return ref, nil
}

// selection returns which sources the parameters select, and which readiness.
func (c *apiCall) selection() (ref source.Reference, ready string, err error) {
	values, err := c.query(append([]string{"ready"}, filterNames...)...)
	if err != nil {
		return ref, "", err
	}
	if ref, err = filter(values); err != nil {
		return ref, "", err
	}
	switch ready := strings.ToLower(values["ready"]); ready {
	case "":
		return ref, "", nil
	case "true", "false", "unknown":
		return ref, strings.ToUpper(ready[:1]) + ready[1:], nil
	}
	return ref, "", impossible("ready", values["ready"], "true, false or unknown")
}

func (c *apiCall) stats() error {
	if _, err := c.query(); err != nil {
		return err
	}
	return c.reply(c.count())
}

// count returns how much there is to do, of what the caller may read.
func (c *apiCall) count() api.Stats {
	now := c.Controller.Stats()
	stats := api.Stats{
		Version: version(), Started: c.began, Phases: map[string]int{}, Ready: map[string]int{}, Defects: c.defects(),
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

// version returns the version of the module.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

// sources answers with those that the caller may read.
func (c *apiCall) sources() error {
	ref, ready, err := c.selection()
	if err != nil {
		return err
	}
	list := []api.Source{} // [] and not null
	for _, v := range c.Controller.Views() {
		if c.selects(v, ref, ready) {
			list = append(list, Summary(v))
		}
	}
	return c.reply(struct {
		Sources []api.Source `json:"sources"`
		Defects []string     `json:"defects"`
	}{list, c.defects()})
}

// selects reports whether a filter selects an object that the caller may read.
func (c *apiCall) selects(v serve.View, ref source.Reference, ready string) bool {
	own := source.ReferenceTo(v.Object)
	return ref.Selects(own) && (ready == "" || ready == readyOf(v).Status) && c.grant.Read(own) == nil
}

const (
	maxDefects = 100
	maxDefect  = 1000 // bytes
)

// defects returns what is wrong with documents, to callers who may read
// everything: a defect names files, and objects of any namespace.
func (c *apiCall) defects() []string {
	list := []string{}
	if c.grant.Read(source.Reference{}) != nil {
		return list
	}
	for _, err := range c.Controller.Defects() {
		if len(list) == maxDefects {
			break
		}
		list = append(list, shorten(redact.String(err.Error()), maxDefect))
	}
	return list
}

// source answers with one source, or its document.
func (c *apiCall) source() error {
	if _, err := c.query(); err != nil {
		return err
	}
	_, v, err := c.object()
	if err != nil {
		return err
	}
	c.w.Header().Add("Vary", "Accept")
	if !httpserve.Wants(c.r, "application/yaml") {
		one, err := c.detail(v)
		if err != nil {
			return err
		}
		return c.reply(one)
	}
	text, err := source.EncodeYAML(source.Masked(v.Object))
	if err != nil {
		return err
	}
	header := c.w.Header()
	header.Set("Content-Type", "application/yaml")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	_, err = c.w.Write(text)
	return err
}

// readyOf returns the condition that sums up an object.
func readyOf(v serve.View) source.Condition {
	ready := v.Object.Common().Condition(source.ReadyCondition)
	if ready.Status == "" {
		ready.Status = "Unknown"
	}
	return ready
}

// Summary returns an object as lists of the API have it.
func Summary(v serve.View) api.Source {
	self, ready := source.Involved(v.Object), readyOf(v)
	one := api.Source{
		Kind: self.Kind, Namespace: self.Namespace, Name: self.Name, APIVersion: self.APIVersion,
		Origin: source.OriginOf(v.Object), Interval: source.Duration(v.Object.Interval()).String(),
		Phase: string(v.Phase), Ready: ready.Status, Reason: ready.Reason, Message: ready.Message, Since: ready.LastTransitionTime,
		Artifact: v.Object.Artifact(), URL: v.Object.Common().URL,
		Next: v.Next, Checked: v.Checked, Failures: v.Failures,
		Suspension: v.Suspension, Suspended: v.Suspension != nil || v.Object.Plan().Suspend, Missing: v.Missing,
	}
	if one.Artifact != nil {
		one.Revision = one.Artifact.Revision
	}
	if v.Last.Number > 0 {
		last := runOf(v.Last, one.Revision)
		one.Last = &last
	}
	for _, blocker := range v.Blockers {
		one.Blockers = append(one.Blockers, v.Object.Head().Spell(blocker))
	}
	return one
}

// detail returns an object as it is shown alone.
func (c *apiCall) detail(v serve.View) (api.Source, error) {
	one := Summary(v)
	text, err := source.EncodeYAML(source.Masked(v.Object))
	if err != nil {
		return one, err
	}
	one.Document, one.Conditions = string(text), v.Object.Common().Conditions
	if c.Hooks != nil {
		one.Hook = "/hook/" + strings.Join([]string{strings.ToLower(one.Kind), url.PathEscape(one.Namespace), url.PathEscape(one.Name)}, "/")
	}
	return one, nil
}

const maxRunText = 1000 // bytes of why a run did what it did, and of its error

// runOf returns a run as the API has it.
func runOf(r serve.Run, revision string) api.Run {
	run := api.Run{
		Number: r.Number, Trigger: string(r.Trigger), Started: r.Started, Took: r.Took.Seconds(),
		Outcome: string(r.Result.Outcome), Why: shorten(redact.String(r.Result.Why), maxRunText), Revision: revision,
	}
	if r.Err != nil {
		run.Error = shorten(redact.String(r.Err.Error()), maxRunText)
	}
	return run
}

// shorten cuts a text to so many bytes.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}

const (
	defaultFiles = 1000
	maxFiles     = 10000 // in an answer
	maxListed    = 200_000
)

// files answers with the files of an artifact in the order of their paths.
func (c *apiCall) files() error {
	values, err := c.query("after", "limit")
	if err != nil {
		return err
	}
	limit, err := number(values, "limit", 1, maxFiles, defaultFiles)
	if err != nil {
		return err
	}
	ref, v, err := c.object()
	if err == nil {
		err = c.grant.Fetch(ref)
	}
	if err != nil {
		return err
	}
	a := v.Object.Artifact()
	if a == nil {
		return httpserve.Refuse(http.StatusNotFound, "%s has no artifact", ref)
	}
	all, err := listFiles(c.r.Context(), c.Store, *a)
	if errors.Is(err, fs.ErrNotExist) {
		return httpserve.Refuse(http.StatusNotFound, "the artifact of %s is not in the store of this server", ref)
	}
	if tooMuch, is := errors.AsType[*artifact.LimitError](err); is {
		return httpserve.Refuse(http.StatusUnprocessableEntity, "the artifact of %s is too large for a list of its files: more than %d %s", ref, tooMuch.Limit, tooMuch.What)
	}
	if err != nil {
		return err
	}
	from := 0
	if after := values["after"]; after != "" {
		var found bool
		if from, found = slices.BinarySearchFunc(all, after, func(f api.File, name string) int { return strings.Compare(f.Path, name) }); found {
			from++
		}
	}
	page := all[from:min(len(all), from+limit)]
	next := ""
	if from+limit < len(all) {
		next = page[len(page)-1].Path
	}
	return c.reply(struct {
		Files []api.File `json:"files"`
		Next  string     `json:"next,omitempty"` // for after
	}{append([]api.File{}, page...), next})
}

// A reading ends with its context.
type reading struct {
	io.Reader
	ctx context.Context
}

func (r reading) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// listFiles returns the files of an artifact in the order of their paths; of one that is no archive the one file.
func listFiles(ctx context.Context, store *artifact.Store, a artifact.Artifact) ([]api.File, error) {
	content, err := store.Open(a)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	if !archive(a.Path) {
		return []api.File{{Path: path.Base(a.Path), Size: a.Size}}, nil
	}
	tree, err := artifact.Read(reading{content, ctx}, artifact.Limits{Entries: maxListed, Temp: store.Temp})
	if errors.Is(err, artifact.ErrFormat) {
		return []api.File{{Path: path.Base(a.Path), Size: a.Size}}, nil
	}
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	var files []api.File
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		f := api.File{Path: name, Dir: entry.IsDir()}
		if !f.Dir {
			f.Size, f.Executable = info.Size(), info.Mode()&0o111 != 0
		}
		files = append(files, f)
		return nil
	})
	slices.SortFunc(files, func(a, b api.File) int { return strings.Compare(a.Path, b.Path) })
	return files, err
}

// archive reports whether an artifact is an archive, by its name.
func archive(name string) bool {
	for _, ext := range []string{".tar.gz", ".tgz", ".tar"} {
		if strings.HasSuffix(strings.ToLower(name), ext) {
			return true
		}
	}
	return false
}

// session says who the caller is.
func (c *apiCall) session() error {
	if _, err := c.query(); err != nil {
		return err
	}
	return c.tell(c.grant)
}

func (c *apiCall) tell(g access.Grant) error {
	return c.reply(api.Session{Actor: g.Actor, Required: c.Guard.Required(), May: g.May()})
}

// login begins a session of the web page.
func (c *apiCall) login() error {
	var request struct {
		Token string `json:"token"`
	}
	if err := c.bodies.JSON(c.w, c.r, &request); err != nil {
		return err
	}
	grant, err := c.Guard.Login(c.w, c.r, request.Token)
	if err != nil {
		return err
	}
	return c.tell(grant)
}

func (c *apiCall) logout() error {
	c.Guard.Logout(c.w, c.r)
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}
func (c *apiCall) runs() error {
	if _, err := c.query(); err != nil {
		return err
	}
	ref, _, err := c.object()
	if err != nil {
		return err
	}
	return c.reply(struct {
		Runs []api.Run `json:"runs"`
	}{c.history.of(ref)})
}
