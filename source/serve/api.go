package serve

import (
	"cmp"
	"context"
	"encoding/json"
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
	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
	"github.com/headgate-io/headgate/source/serve/journal"
)

// Limits of requests and answers.
const (
	maxWait       = 10 * time.Minute // for the end of a run
	maxReason     = 1000             // bytes of the reason for a change
	maxActor      = 200              // bytes of the name of its author
	maxDefects    = 100
	maxText       = 1000 // bytes of a text from a request or an upstream
	maxRuns       = 20   // shown for one object
	defaultFiles  = 1000
	maxFiles      = 10_000 // in an answer
	maxListed     = 200_000
	defaultEvents = 100
	maxEvents     = 1000
)

// reply answers with JSON.
func (c *call) reply(value any) error { return httpserve.JSON(c.w, http.StatusOK, value) }

// badParameter returns the refusal of the value of a parameter.
func (c *call) badParameter(name, want string) error {
	return httpserve.Refuse(http.StatusBadRequest, "parameter %s: %s is not possible: want %s", name, document.Quote(c.values[name]), want)
}

// clean redacts and shortens a text from a request or an upstream, so that it can be shown.
func clean(text string) string { return redact.Excerpt(text, maxText) }

// readParameters reads the parameters of a request. It refuses parameters that are not allowed or given twice.
func (c *call) readParameters(allowed []string) (err error) {
	c.values, err = httpserve.Parameters(c.r, allowed...)
	return err
}

// number reads a parameter that is a number from 1 to limit; otherwise is its default.
func (c *call) number(name string, limit, otherwise int) (int, error) {
	text, given := c.values[name]
	if !given {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > limit {
		return 0, c.badParameter(name, "a number from 1 to "+strconv.Itoa(limit))
	}
	return n, nil
}

// filter returns a pattern of the objects that the parameters select; its empty fields match all.
func (c *call) filter() (source.Reference, error) {
	ref := source.Reference{Namespace: c.values["namespace"], Name: c.values["name"]}
	if kind := c.values["kind"]; kind != "" {
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
	ref, err := c.filter()
	if err != nil {
		return nil, err
	}
	ready := strings.ToLower(c.values["ready"])
	if !slices.Contains([]string{"", "true", "false", "unknown"}, ready) {
		return nil, c.badParameter("ready", "true, false or unknown")
	}
	return func(v View) bool {
		return ref.Selects(source.ReferenceTo(v.Object)) && (ready == "" || strings.EqualFold(ready, readyOf(v).Status))
	}, nil
}

// readableViews returns the objects that the caller may read.
func (c *call) readableViews() []View {
	return slices.DeleteFunc(c.Views(), func(v View) bool { return checkPermission(c.grant, mayRead, source.ReferenceTo(v.Object)) != nil })
}

// list answers with the sources that the caller may read.
func (c *call) list() error {
	selects, err := c.selection()
	if err != nil {
		return err
	}
	list := []api.Source{} // [] and not null
	for _, v := range c.readableViews() {
		if selects(v) {
			list = append(list, Summary(v))
		}
	}
	return c.reply(map[string]any{"sources": list, "defects": c.defectTexts()})
}

// defectTexts returns the defects of documents if the caller may read everything: a defect names files, and
// objects of any namespace.
func (c *call) defectTexts() []string {
	list := []string{}
	if checkPermission(c.grant, mayRead, source.Reference{}) == nil {
		for _, err := range c.Defects() {
			list = append(list, clean(err.Error()))
		}
	}
	return list[:min(len(list), maxDefects)]
}

// stats answers with the workload of the server, restricted to the objects that the caller may read.
func (c *call) stats() error {
	stats := api.Stats{Version: "(devel)", Started: c.started, Phases: map[string]int{}, Ready: map[string]int{}, Defects: c.defectTexts()}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		stats.Version = info.Main.Version
	}
	if checkPermission(c.grant, mayRead, source.Reference{}) == nil {
		now := c.Stats()
		stats.Fetching, stats.Oldest = now.Fetching, now.Oldest.Seconds()
	}
	for _, v := range c.readableViews() {
		stats.Objects++
		stats.Phases[string(v.Phase)]++
		stats.Ready[readyOf(v).Status]++
	}
	return c.reply(stats)
}

// source answers with one source, or with its document if the caller accepts YAML.
func (c *call) source() error {
	c.w.Header().Add("Vary", "Accept")
	if !httpserve.Accepts(c.r, "application/yaml") {
		return c.replyDetail(c.view)
	}
	text, err := source.EncodeYAML(source.Masked(c.view.Object))
	if err == nil {
		err = httpserve.Send(c.w, http.StatusOK, "application/yaml", text)
	}
	return err
}

// readyOf returns the Ready condition of an object, with status Unknown if it has none.
func readyOf(v View) source.Condition {
	ready := v.Object.Common().Condition(source.ReadyCondition)
	ready.Status = cmp.Or(ready.Status, "Unknown")
	return ready
}

// Summary returns an object in the form of the lists of the API.
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
		last := runOf(v.Last)
		one.Last = &last
	}
	for _, blocker := range v.Blockers {
		one.Blockers = append(one.Blockers, v.Object.Head().Spell(blocker))
	}
	return one
}

// replyDetail answers with one object, including the fields that lists leave out.
func (c *call) replyDetail(v View) error {
	one := Summary(v)
	text, err := source.EncodeYAML(source.Masked(v.Object))
	if err != nil {
		return err
	}
	one.Document, one.Conditions = string(text), v.Object.Common().Conditions
	one.Hook = "/hook/" + strings.ToLower(one.Kind) + "/" + url.PathEscape(one.Namespace) + "/" + url.PathEscape(one.Name)
	return c.reply(one)
}

// runOf returns a run in the form of the API.
func runOf(r Run) api.Run {
	run := api.Run{
		Number: r.Number, Trigger: string(r.Trigger), Started: r.Started, Took: r.Took.Seconds(),
		Outcome: string(r.Result.Outcome), Why: clean(r.Result.Why),
	}
	if r.Artifact != nil {
		run.Revision = r.Artifact.Revision
	}
	if r.Err != nil {
		run.Error = clean(r.Err.Error())
	}
	return run
}

// runs answers with the latest notable runs of an object, the newest first.
func (c *call) runs() error {
	runs := []api.Run{} // [] and not null
	c.mu.Lock()
	if e := c.entries[c.ref]; e != nil {
		runs = append(runs, e.runs...)
	}
	c.mu.Unlock()
	slices.Reverse(runs)
	return c.reply(map[string]any{"runs": runs})
}

// files answers with the files of an artifact, ordered by path.
func (c *call) files() error {
	limit, err := c.number("limit", maxFiles, defaultFiles)
	if err != nil {
		return err
	}
	a := c.view.Object.Artifact()
	if a == nil {
		return httpserve.Refuse(http.StatusNotFound, "%s has no artifact", c.ref)
	}
	all, err := listFiles(c.config.Store, *a)
	if errors.Is(err, fs.ErrNotExist) {
		return httpserve.Refuse(http.StatusNotFound, "the artifact of %s is not in the store of this server", c.ref)
	}
	if tooMuch, is := errors.AsType[*artifact.LimitError](err); is {
		return httpserve.Refuse(http.StatusUnprocessableEntity, "the artifact of %s is too large for a list of its files: more than %d %s", c.ref, tooMuch.Limit, tooMuch.What)
	}
	if err != nil {
		return err
	}
	after, given := c.values["after"]
	rest := slices.DeleteFunc(all, func(f api.File) bool { return given && f.Path <= after })
	answer := map[string]any{"files": rest[:min(len(rest), limit)]}
	if len(rest) > limit {
		answer["next"] = rest[limit-1].Path // for after
	}
	return c.reply(answer)
}

// listFiles returns the files of an artifact, ordered by path. An artifact that is not an archive is listed as one file.
func listFiles(store *artifact.Store, a artifact.Artifact) ([]api.File, error) {
	content, err := store.Open(a)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	single := []api.File{{Path: path.Base(a.Path), Size: a.Size}}
	if name := strings.ToLower(a.Path); !strings.HasSuffix(name, ".tar.gz") && !strings.HasSuffix(name, ".tgz") && !strings.HasSuffix(name, ".tar") {
		return single, nil
	}
	tree, err := artifact.Read(content, artifact.Limits{Entries: maxListed, Temp: store.Temp})
	if errors.Is(err, artifact.ErrFormat) {
		return single, nil
	}
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	files := []api.File{} // [] and not null
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

// session answers with the identity and permissions of the caller.
func (c *call) session() error { return c.reply(c.sessionOf(c.grant)) }

// sessionOf returns the [api.Session] of a grant.
func (s *Server) sessionOf(g httpserve.Grant) any {
	allowed, scope := []string{}, g.Scope()
	for _, action := range []string{mayFetch, mayRead, mayChange} { // allowed for at least some objects
		if g.All || scope != nil && httpserve.Allows(scope.May, action) {
			allowed = append(allowed, action)
		}
	}
	if checkPermission(g, mayDebug, source.Reference{}) == nil {
		allowed = append(allowed, mayDebug)
	}
	return api.Session{Actor: g.Actor, Required: s.config.Callers.Required(), May: allowed}
}

// readChange reads the author of a change and the reason. If the caller has a credential, its name is the author.
func (c *call) readChange() (change api.Change, err error) {
	err = c.bodies.JSON(c.w, c.r, &change)
	if err == nil && (len(change.By) > maxActor || len(change.Reason) > maxReason) {
		err = httpserve.Refuse(http.StatusBadRequest, "want at most %d bytes in by and %d in reason", maxActor, maxReason)
	}
	return api.Change{By: redact.String(cmp.Or(c.grant.Actor, change.By)), Reason: redact.String(change.Reason)}, err
}

// reconcile requests a run, and waits for its end if the parameter wait is set.
func (c *call) reconcile() error {
	change, err := c.readChange()
	if err != nil {
		return err
	}
	wait, err := time.ParseDuration(cmp.Or(c.values["wait"], "0"))
	if err != nil || wait < 0 || wait > maxWait {
		return c.badParameter("wait", "a duration up to "+source.Duration(maxWait).String()+", such as 30s")
	}
	run, err := c.Request(c.ref, Request)
	if err != nil {
		return err
	}
	c.recordChange(change, "ReconcileRequested", "a run was requested")
	if wait > 0 {
		ctx, cancel := context.WithTimeout(c.r.Context(), wait)
		defer cancel()
		v, err := c.Wait(ctx, c.ref, run)
		if err == nil {
			return c.replyDetail(v)
		}
		if ctx.Err() == nil {
			return err
		}
	}
	return httpserve.JSON(c.w, http.StatusAccepted, api.Ticket{Run: run})
}

func (c *call) suspend() error {
	change, err := c.readChange()
	if err == nil {
		err = c.Suspend(c.ref, source.Suspension{By: change.By, Reason: change.Reason})
	}
	return c.finishChange(err, change, "Suspended", "suspended")
}

func (c *call) resume() error {
	change, err := c.readChange()
	if err == nil {
		err = c.Resume(c.ref)
	}
	if c.view.Suspension == nil { // it was not suspended: resuming only requested a run
		return c.finishChange(err, change, "ReconcileRequested", "a run was requested")
	}
	return c.finishChange(err, change, "Resumed", "resumed")
}

// finishChange records a change and answers with the changed object, unless err is set.
func (c *call) finishChange(err error, change api.Change, reason, message string) error {
	if err != nil {
		return err
	}
	c.recordChange(change, reason, message)
	v, err := c.View(c.ref)
	if err != nil {
		return err
	}
	return c.replyDetail(v)
}

// recordChange logs a change and adds it to the journal.
func (c *call) recordChange(change api.Change, reason, message string) {
	log := c.log.With("object", c.view.Object.Head().String(), "change", reason)
	if change.By != "" {
		message += " by " + change.By
		log = log.With("by", clean(change.By))
	}
	if change.Reason != "" {
		message += ": " + change.Reason
		log = log.With("reason", clean(change.Reason))
	}
	log.Info("change", "remote", httpserve.Remote(c.r))
	if c.config.Journal != nil {
		c.config.Journal.Append(c.newEvent(source.Involved(c.view.Object), source.SeverityInfo, reason, message))
	}
}

// mayStillRead reports whether the caller may still read an object: permissions may change during a stream.
func (c *call) mayStillRead(ref source.Reference) bool {
	grant, err := c.config.Callers.Renew(c.grant)
	return err == nil && checkPermission(grant, mayRead, ref) == nil
}

// stream answers with the server-sent events that produce sends. It ends when the client disconnects or stops
// reading, when the server ends, or when the credential of the caller is no longer valid. Comments keep proxies
// from closing an idle stream.
func (c *call) stream(produce func(ctx context.Context, send func(id int64, value any)) error) error {
	out := httpserve.NewStream(c.w, "text/event-stream")
	if c.r.Method == http.MethodHead {
		return nil
	}
	ctx, end := context.WithCancel(c.r.Context())
	defer end()
	defer context.AfterFunc(c.ctx, end)()
	pieces, ended := make(chan string), make(chan error, 1)
	go func() {
		ended <- produce(ctx, func(id int64, value any) {
			text, _ := json.Marshal(value) // has only types that JSON can encode
			piece := "data: " + string(text) + "\n\n"
			if id > 0 {
				piece = "id: " + strconv.FormatInt(id, 10) + "\n" + piece
			}
			select {
			case pieces <- piece:
			case <-ctx.Done():
			}
		})
	}()
	comments := time.NewTicker(c.config.Keepalive)
	defer comments.Stop()
	for piece := ": here it begins\n\n"; ; {
		if _, err := out.Write([]byte(piece)); err != nil {
			return nil
		}
		select {
		case piece = <-pieces:
		case <-comments.C:
			if _, err := c.config.Callers.Renew(c.grant); err != nil {
				return nil
			}
			piece = ":\n\n"
		case err := <-ended:
			if err != nil && ctx.Err() == nil {
				c.log.Warn("a stream broke", "path", clean(c.r.URL.Path), "error", clean(err.Error()))
			}
			return nil
		}
	}
}

// watch streams the sources that the caller may read, and their changes. A source that the filter no longer
// selects is reported as gone.
func (c *call) watch() error {
	selects, err := c.selection()
	if err != nil {
		return err
	}
	return c.stream(func(ctx context.Context, send func(int64, any)) error {
		known := make(map[source.Reference]bool) // sources that the client knows
		synced := false
		return c.Watch(ctx, func(views []View) {
			for _, v := range views {
				ref := source.ReferenceTo(v.Object)
				if v.Phase != Gone && selects(v) && c.mayStillRead(ref) {
					one := Summary(v)
					known[ref] = true
					send(0, api.Notice{Source: &one})
				} else if known[ref] {
					delete(known, ref)
					send(0, api.Notice{Gone: &api.Gone{Kind: source.Involved(v.Object).Kind, Namespace: ref.Namespace, Name: ref.Name}})
				}
			}
			if !synced {
				synced = true
				send(0, api.Notice{Synced: true})
			}
		})
	})
}

// events answers with past events, the oldest first, or streams events if the parameter follow is true.
func (c *call) events() error {
	q, err := c.eventQuery()
	if err != nil {
		return err
	}
	follow, err := strconv.ParseBool(cmp.Or(c.values["follow"], "false"))
	switch {
	case err != nil:
		return c.badParameter("follow", "true or false")
	case c.config.Journal == nil:
		return httpserve.Refuse(http.StatusNotFound, "this server keeps no events")
	case follow:
		return c.stream(func(ctx context.Context, send func(int64, any)) error {
			return c.config.Journal.Follow(ctx, q, func(e api.Event) { send(e.ID, e) })
		})
	}
	return c.reply(map[string]any{"events": append([]api.Event{}, c.config.Journal.Read(q)...)}) // [] and not null
}

// eventQuery reads the parameters of a query for events, and restricts it to the events that the caller may read.
func (c *call) eventQuery() (q journal.Query, err error) {
	object, err := c.filter()
	if err != nil {
		return q, err
	}
	q.Select = func(e *api.Event) bool { // an event without an object needs permission to read everything
		ref, err := source.ParseReference(e.InvolvedObject.Kind + "/" + e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name)
		if err != nil {
			ref = source.Reference{}
		}
		return object.Selects(ref) && c.mayStillRead(ref)
	}
	q.Severity = c.values["severity"]
	if !slices.Contains([]string{"", "trace", "info", "error"}, q.Severity) {
		return q, c.badParameter("severity", "trace, info or error")
	}
	if text := c.values["since"]; text != "" {
		if q.Since, err = time.Parse(time.RFC3339, text); err != nil {
			return q, c.badParameter("since", "a time such as 2026-01-31T12:00:00Z")
		}
	}
	after := cmp.Or(c.r.Header.Get("Last-Event-ID"), c.values["after"]) // the last event of the previous stream
	q.After, err = strconv.ParseInt(cmp.Or(after, "0"), 10, 64)
	if err != nil || q.After < 0 {
		return q, c.badParameter("after", "the number of an event")
	}
	otherwise := defaultEvents
	if after != "" && c.values["follow"] != "" {
		otherwise = 0 // no limit: the client resumes a stream
	}
	q.Limit, err = c.number("limit", maxEvents, otherwise)
	return q, err
}
