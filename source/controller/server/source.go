package server

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller"
	"github.com/headgate-io/headgate/source/controller/api"
)

// sources answers with those that the caller may read.
func (c *apiCall) sources() error {
	values, err := c.query(append([]string{"ready"}, filterNames...)...)
	if err != nil {
		return err
	}
	ref, err := filter(values)
	if err != nil {
		return err
	}
	ready, err := readiness(values)
	if err != nil {
		return err
	}
	list := []api.Source{} // [] and not null
	for _, v := range c.Controller.Views() {
		if c.selects(v, ref, ready) {
			list = append(list, Summary(v))
		}
	}
	return c.reply(http.StatusOK, struct {
		Sources []api.Source `json:"sources"`
		Defects []string     `json:"defects"`
	}{list, c.defects()})
}

// selects reports whether a filter selects an object that the caller may read.
func (c *apiCall) selects(v controller.View, ref source.Reference, ready string) bool {
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
	if !answer.Wants(c.r, "application/yaml") {
		one, err := c.detail(v)
		if err != nil {
			return err
		}
		return c.reply(http.StatusOK, one)
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
func readyOf(v controller.View) source.Condition {
	ready := v.Object.Common().Condition(source.ReadyCondition)
	if ready.Status == "" {
		ready.Status = "Unknown"
	}
	return ready
}

// Summary returns an object as lists of the API have it.
func Summary(v controller.View) api.Source {
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
func (c *apiCall) detail(v controller.View) (api.Source, error) {
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
func runOf(r controller.Run, revision string) api.Run {
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
