package serve

import (
	"cmp"
	"context"
	"errors"
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
	"github.com/headgate-io/headgate/source/serve/api"
)

// Bounds of requests and answers.
const (
	maxWait       = 10 * time.Minute // for the end of a run
	maxReason     = 1000             // bytes of why a caller wants something
	maxActor      = 200              // bytes of who that is
	maxDefects    = 100
	maxText       = 1000 // bytes of a text that is not the server's own
	maxRuns       = 20   // of one object that are shown
	defaultFiles  = 1000
	maxFiles      = 10_000 // in an answer
	maxListed     = 200_000
	defaultEvents = 100
	maxEvents     = 1000
)

// reply answers with JSON.
func (c *call) reply(value any) error { return httpserve.JSON(c.w, http.StatusOK, value) }

// bad refuses a parameter.
func bad(name, problem string) error {
	return httpserve.Refuse(http.StatusBadRequest, "parameter %s: %s", name, problem)
}

// impossible refuses the value of a parameter.
func impossible(name, value, want string) error {
	return bad(name, quote(value)+" is not possible: want "+want)
}

// quote quotes a text of a request, shortened to 80 bytes.
func quote(text string) string { return strconv.QuoteToASCII(shorten(text, 80)) }

// shorten cuts a text to so many bytes.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}

// clean returns a text that a request or an upstream chose, fit to be shown.
func clean(text string) string { return shorten(redact.String(shorten(text, 4*maxText)), maxText) }

// query returns the parameters of a request, which has no others than those
// allowed, and each once.
func (c *call) query(allowed ...string) (map[string]string, error) {
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, httpserve.Refuse(http.StatusBadRequest, "the parameters are not escaped as in URLs")
	}
	values := map[string]string{}
	for name, list := range query {
		if !slices.Contains(allowed, name) {
			return nil, bad(quote(name), "is unknown here; there are "+cmp.Or(strings.Join(allowed, ", "), "none"))
		}
		if len(list) != 1 {
			return nil, bad(quote(name), "is there twice")
		}
		values[name] = list[0]
	}
	return values, nil
}

// number reads a parameter that is a number from 1 to most.
func number(values map[string]string, name string, most, otherwise int) (int, error) {
	text, given := values[name]
	if !given {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, impossible(name, text, "a number from 1 to "+strconv.Itoa(most))
	}
	return n, nil
}

// object returns the object of the path as it is now.
func (c *call) object() (source.Reference, View, error) {
	ref, err := source.ParseReference(strings.Join([]string{c.r.PathValue("kind"), c.r.PathValue("namespace"), c.r.PathValue("name")}, "/"))
	if err != nil {
		return ref, View{}, httpserve.Refuse(http.StatusNotFound, "%w", err)
	}
	if err := may(c.grant, mayRead, ref); err != nil {
		return ref, View{}, err
	}
	v, err := c.View(ref)
	return ref, v, err
}

// filter returns which objects the parameters select.
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

// selection returns a function that reports whether the parameters select an object.
func (c *call) selection() (func(View) bool, error) {
	values, err := c.query("ready", "kind", "namespace", "name")
	if err != nil {
		return nil, err
	}
	ref, err := filter(values)
	if err != nil {
		return nil, err
	}
	ready := strings.ToLower(values["ready"])
	if !slices.Contains([]string{"", "true", "false", "unknown"}, ready) {
		return nil, impossible("ready", values["ready"], "true, false or unknown")
	}
	return func(v View) bool {
		return ref.Selects(source.ReferenceTo(v.Object)) && (ready == "" || strings.EqualFold(ready, readyOf(v).Status))
	}, nil
}

// list answers with the sources that the caller may read.
func (c *call) list() error {
	selects, err := c.selection()
	if err != nil {
		return err
	}
	list := []api.Source{} // [] and not null
	for _, v := range c.Views() {
		if selects(v) && may(c.grant, mayRead, source.ReferenceTo(v.Object)) == nil {
			list = append(list, Summary(v))
		}
	}
	return c.reply(map[string]any{"sources": list, "defects": c.problems()})
}

// problems returns what is wrong with documents, to callers who may read
// everything: a defect names files, and objects of any namespace.
func (c *call) problems() []string {
	list := []string{}
	if may(c.grant, mayRead, source.Reference{}) == nil {
		defects := c.Defects()
		for _, err := range defects[:min(len(defects), maxDefects)] {
			list = append(list, clean(err.Error()))
		}
	}
	return list
}

// stats answers how much there is to do, of what the caller may read.
func (c *call) stats() error {
	if _, err := c.query(); err != nil {
		return err
	}
	stats := api.Stats{Version: "(devel)", Started: c.began, Phases: map[string]int{}, Ready: map[string]int{}, Defects: c.problems()}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		stats.Version = info.Main.Version
	}
	if may(c.grant, mayRead, source.Reference{}) == nil {
		now := c.Stats()
		stats.Fetching, stats.Oldest = now.Fetching, now.Oldest.Seconds()
	}
	for _, v := range c.Views() {
		if may(c.grant, mayRead, source.ReferenceTo(v.Object)) == nil {
			stats.Objects++
			stats.Phases[string(v.Phase)]++
			stats.Ready[readyOf(v).Status]++
		}
	}
	return c.reply(stats)
}

// source answers with one source, or its document.
func (c *call) source() error {
	if _, err := c.query(); err != nil {
		return err
	}
	_, v, err := c.object()
	if err != nil {
		return err
	}
	c.w.Header().Add("Vary", "Accept")
	if !httpserve.Wants(c.r, "application/yaml") {
		return c.detail(v)
	}
	text, err := source.EncodeYAML(source.Masked(v.Object))
	if err == nil {
		err = httpserve.Send(c.w, http.StatusOK, "application/yaml", text)
	}
	return err
}

// readyOf returns the condition that sums up an object.
func readyOf(v View) source.Condition {
	ready := v.Object.Common().Condition(source.ReadyCondition)
	ready.Status = cmp.Or(ready.Status, "Unknown")
	return ready
}

// Summary returns an object as lists of the API have it.
func Summary(v View) api.Source {
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

// detail answers with an object as it is shown alone.
func (c *call) detail(v View) error {
	one := Summary(v)
	text, err := source.EncodeYAML(source.Masked(v.Object))
	if err != nil {
		return err
	}
	one.Document, one.Conditions = string(text), v.Object.Common().Conditions
	one.Hook = "/hook/" + strings.Join([]string{strings.ToLower(one.Kind), url.PathEscape(one.Namespace), url.PathEscape(one.Name)}, "/")
	return c.reply(one)
}

// runOf returns a run as the API has it.
func runOf(r Run, revision string) api.Run {
	run := api.Run{
		Number: r.Number, Trigger: string(r.Trigger), Started: r.Started, Took: r.Took.Seconds(),
		Outcome: string(r.Result.Outcome), Why: clean(r.Result.Why), Revision: revision,
	}
	if r.Err != nil {
		run.Error = clean(r.Err.Error())
	}
	return run
}

// runs answers with the last notable runs of an object, the newest first.
func (c *call) runs() error {
	if _, err := c.query(); err != nil {
		return err
	}
	ref, _, err := c.object()
	if err != nil {
		return err
	}
	runs := []api.Run{} // [] and not null
	c.mu.Lock()
	if e := c.entries[ref]; e != nil {
		runs = append(runs, e.runs...)
	}
	c.mu.Unlock()
	slices.Reverse(runs)
	return c.reply(map[string]any{"runs": runs})
}

// files answers with the files of an artifact in the order of their paths.
func (c *call) files() error {
	values, err := c.query("after", "limit")
	if err != nil {
		return err
	}
	limit, err := number(values, "limit", maxFiles, defaultFiles)
	if err != nil {
		return err
	}
	ref, v, err := c.object()
	if err == nil {
		err = may(c.grant, mayFetch, ref)
	}
	if err != nil {
		return err
	}
	a := v.Object.Artifact()
	if a == nil {
		return httpserve.Refuse(http.StatusNotFound, "%s has no artifact", ref)
	}
	all, err := listFiles(c.config.Store, *a)
	if errors.Is(err, fs.ErrNotExist) {
		return httpserve.Refuse(http.StatusNotFound, "the artifact of %s is not in the store of this server", ref)
	}
	if tooMuch, is := errors.AsType[*artifact.LimitError](err); is {
		return httpserve.Refuse(http.StatusUnprocessableEntity, "the artifact of %s is too large for a list of its files: more than %d %s", ref, tooMuch.Limit, tooMuch.What)
	}
	if err != nil {
		return err
	}
	after, given := values["after"]
	from := slices.IndexFunc(all, func(f api.File) bool { return !given || f.Path > after })
	if from < 0 {
		from = len(all)
	}
	answer := struct {
		Files []api.File `json:"files"`
		Next  string     `json:"next,omitempty"` // for after
	}{Files: append([]api.File{}, all[from:min(len(all), from+limit)]...)}
	if from+limit < len(all) {
		answer.Next = answer.Files[limit-1].Path
	}
	return c.reply(answer)
}

// listFiles returns the files of an artifact in the order of their paths; of one that is no archive the one file.
func listFiles(store *artifact.Store, a artifact.Artifact) ([]api.File, error) {
	content, err := store.Open(a)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	whole := []api.File{{Path: path.Base(a.Path), Size: a.Size}}
	if !slices.ContainsFunc([]string{".tar.gz", ".tgz", ".tar"}, func(ext string) bool { return strings.HasSuffix(strings.ToLower(a.Path), ext) }) {
		return whole, nil
	}
	tree, err := artifact.Read(content, artifact.Limits{Entries: maxListed, Temp: store.Temp})
	if errors.Is(err, artifact.ErrFormat) {
		return whole, nil
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

// session says who the caller is.
func (c *call) session() error {
	if _, err := c.query(); err != nil {
		return err
	}
	allowed, scope := []string{}, c.grant.Scope()
	for _, what := range []string{mayFetch, mayRead, mayChange} { // with some objects at least
		if c.grant.All || scope != nil && httpserve.Allows(scope.May, what) {
			allowed = append(allowed, what)
		}
	}
	if may(c.grant, mayDebug, source.Reference{}) == nil {
		allowed = append(allowed, mayDebug)
	}
	return c.reply(api.Session{Actor: c.grant.Actor, Required: c.config.Callers.Required(), May: allowed})
}

// login begins a session of the web page.
func (c *call) login() (err error) {
	var request struct {
		Token string `json:"token"`
	}
	if err := c.bodies.JSON(c.w, c.r, &request); err != nil {
		return err
	}
	if c.grant, err = c.config.Callers.Login(c.w, c.r, request.Token); err != nil {
		return err
	}
	return c.session()
}

func (c *call) logout() error {
	c.config.Callers.Logout(c.w, c.r)
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// An order is what a caller wants to do with an object, and why.
type order struct {
	values map[string]string // parameters
	ref    source.Reference
	view   View // before
	why    api.Change
}

// order reads the order of a caller who may give it. The credential says who that is, where there is one.
func (c *call) order(parameters ...string) (o order, err error) {
	if o.values, err = c.query(parameters...); err != nil {
		return o, err
	}
	o.ref, o.view, err = c.object()
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = cmp.Or(may(c.grant, mayChange, o.ref), err)
	}
	if err == nil {
		err = c.bodies.JSON(c.w, c.r, &o.why)
	}
	if err == nil && (len(o.why.By) > maxActor || len(o.why.Reason) > maxReason) {
		err = httpserve.Refuse(http.StatusBadRequest, "want at most %d bytes in by and %d in reason", maxActor, maxReason)
	}
	o.why.By, o.why.Reason = redact.String(cmp.Or(c.grant.Actor, o.why.By)), redact.String(o.why.Reason)
	return o, err
}

// reconcile asks for a run, and may wait for its end.
func (c *call) reconcile() error {
	o, err := c.order("wait")
	if err != nil {
		return err
	}
	wait, err := time.ParseDuration(cmp.Or(o.values["wait"], "0"))
	if err != nil || wait < 0 || wait > maxWait {
		return impossible("wait", o.values["wait"], "a duration up to "+source.Duration(maxWait).String()+", such as 30s")
	}
	run, err := c.Request(o.ref, Request)
	if err != nil {
		return err
	}
	c.did(o, "ReconcileRequested", "a run was requested")
	if wait > 0 {
		ctx, cancel := context.WithTimeout(c.r.Context(), wait)
		defer cancel()
		v, err := c.Wait(ctx, o.ref, run)
		if err == nil {
			return c.detail(v)
		}
		if ctx.Err() == nil {
			return err
		}
	}
	return httpserve.JSON(c.w, http.StatusAccepted, api.Ticket{Run: run})
}

func (c *call) suspend() error {
	o, err := c.order()
	if err == nil {
		err = c.Suspend(o.ref, source.Suspension{By: o.why.By, Reason: o.why.Reason})
	}
	if err != nil {
		return err
	}
	c.did(o, "Suspended", "suspended")
	return c.current(o.ref)
}

func (c *call) resume() error {
	o, err := c.order()
	if err == nil {
		err = c.Resume(o.ref)
	}
	if err != nil {
		return err
	}
	if o.view.Suspension == nil { // nothing but a run came of it
		c.did(o, "ReconcileRequested", "a run was requested")
	} else {
		c.did(o, "Resumed", "resumed")
	}
	return c.current(o.ref)
}

// current answers with an object as it is now.
func (c *call) current(ref source.Reference) error {
	v, err := c.View(ref)
	if err != nil {
		return err
	}
	return c.detail(v)
}

// did logs and keeps what a caller did.
func (c *call) did(o order, reason, message string) {
	log := c.log.With("object", o.view.Object.Head().String(), "change", reason)
	if o.why.By != "" {
		message += " by " + o.why.By
		log = log.With("by", clean(o.why.By))
	}
	if o.why.Reason != "" {
		message += ": " + o.why.Reason
		log = log.With("reason", clean(o.why.Reason))
	}
	log.Info("change", "remote", remote(c.r))
	if c.config.Journal != nil {
		c.config.Journal.Append(source.Event{
			InvolvedObject: source.Involved(o.view.Object), Severity: "info", Timestamp: time.Now(),
			Message: message, Reason: reason, Controller: "headgate",
		})
	}
}
