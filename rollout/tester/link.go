package tester

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/internal/page"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/access"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

const (
	maxForm     = 8 << 10
	maxLinkText = 500      // bytes of a reason
	linkActor   = "a link" // of who presses a button without saying who it is
)

// linkPage shows what a link is good for; its form posts to the URL of the page.
var linkPage = template.Must(template.New("link").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>{{.Title}}</title>
<style>` + page.Style + `</style>
</head>
<body>
<header><div class="bar"><p class="brand">headgate</p></div></header>
<main>
<h1>{{.Title}}</h1>
{{with .Text}}<p>{{.}}</p>
{{end}}{{with .Ticket}}<dl class="card facts">
<div><dt>Canary</dt><dd>{{.Key.Namespace}}/{{.Key.Name}}</dd></div>
<div><dt>Gate</dt><dd>{{.Key.Gate}}</dd></div>
{{with $.Revision}}<div><dt>Revision</dt><dd><bdi class="code">{{.}}</bdi></dd></div>
{{end}}{{if ne .Checksum $.Revision}}<div><dt>Checksum</dt><dd><bdi class="code">{{.Checksum}}</bdi></dd></div>
{{end}}{{with $.Phase}}<div><dt>Phase</dt><dd>{{.}}</dd></div>
{{end}}{{with $.About.Weight}}<div><dt>Weight</dt><dd>{{.}}%</dd></div>
{{end}}{{with $.About.Step}}<div><dt>Step</dt><dd>{{.}}</dd></div>
{{end}}{{with $.About.Failures}}<div><dt>Failed checks</dt><dd>{{.}}{{with $.About.Threshold}} of {{.}}{{end}}</dd></div>
{{end}}<div><dt>Link expires</dt><dd><time datetime="{{.Expires.UTC.Format "2006-01-02T15:04:05Z"}}">{{.Expires.UTC.Format "2006-01-02 15:04 UTC"}}</time></dd></div>
</dl>
{{end}}{{with .Runs}}<section>
<h2>Runs of this revision</h2>
<table>
<thead><tr><th scope="col">Type</th><th scope="col">State</th><th scope="col">Created</th><th scope="col">Reason</th></tr></thead>
<tbody>
{{range .}}<tr><th scope="row">{{.Type}}</th><td>{{.State}}</td><td>{{.Created.UTC.Format "2006-01-02 15:04:05 UTC"}}</td><td>{{.Reason}}</td></tr>
{{end}}</tbody>
</table>
</section>
{{end}}{{with .Button}}<form method="post">
<div class="login">
<div class="field">
<label for="reason">Reason (optional)</label>
<input id="reason" name="reason" maxlength="500" autocomplete="off">
</div>
<div class="buttons"><button type="submit" class="{{$.Look}}">{{.}}</button></div>
</div>
</form>
{{end}}</main>
</body>
</html>
`))

// A linkView is what the page shows.
type linkView struct {
	Title, Text string
	Ticket      *gate.Ticket
	Button      string // "" for none
	Look        string // of the button: primary or danger

	Phase    string
	Revision string // its checksum when its name is not known
	About    api.About
	Runs     []api.Run // of its checksum, newest first
}

const linkRuns = 10 // that the page shows

// describe returns the view of a link, with what waits and the runs that its
// issuer may see.
func (s *Server) describe(t gate.Ticket, issuer access.Grant) linkView {
	view := linkView{Ticket: &t, Revision: t.Checksum}
	if w := s.Gates.Gate(t.Key).Waiting; w != nil && w.Checksum == t.Checksum {
		view.Phase, view.About, view.Revision = w.Phase, w.About, cmp.Or(w.Revision, t.Checksum)
	}
	if t.Checksum != "" {
		f := api.Filter{Namespace: t.Key.Namespace, Name: t.Key.Name, Checksum: t.Checksum, Limit: linkRuns}
		view.Runs = list(f, s.Runs.Runs, func(r api.Run) string { return r.ID }, func(r api.Run) bool { return issuer.See(r.Namespace, r.Type) == nil })
	}
	return view
}

// linkWords are those of an action of a link.
var linkWords = map[string]struct{ title, text, button, look, done string }{
	"open":   {"Approve this rollout?", "The gate opens for this revision alone.", "Approve", "primary", "Approved: the gate is open for this revision."},
	"reject": {"Reject this rollout?", "The gate stays closed, and the rollback switch of the canary opens for this revision.", "Reject", "danger", "Rejected: the gate is closed and the rollback switch is open for this revision."},
}

// serveLink answers the page of a link, whose secret is the credential: looking
// at it does nothing, its button decides, once.
func (s *Server) serveLink(w http.ResponseWriter, r *http.Request, secret string) {
	var err error
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		err = s.showLink(w, secret)
	case http.MethodPost:
		err = s.redeemLink(w, r, secret)
	default:
		err = answer.WrongMethod(w, http.MethodGet, http.MethodPost)
	}
	if errors.Is(err, gate.ErrLink) {
		err = showPage(w, http.StatusGone, linkView{
			Title: "This link does not work any more",
			Text:  "It was used, it has expired, another revision waits now, or who made it may not decide any more. Ask for a new one.",
		})
	}
	if err != nil {
		s.refuseText(w, r, err)
	}
}

// inspect says what a link is good for, as long as who made it may decide.
func (s *Server) inspect(secret string) (gate.Ticket, access.Grant, error) {
	ticket, err := s.Gates.Inspect(secret)
	if err != nil {
		return gate.Ticket{}, access.Grant{}, err
	}
	grant, err := s.Guard.Named(ticket.Issuer)
	if err == nil {
		err = grant.Reject(ticket.Key)
	}
	if err != nil {
		return gate.Ticket{}, access.Grant{}, fmt.Errorf("%w: who made it may not decide any more", gate.ErrLink)
	}
	return ticket, grant, nil
}

func (s *Server) showLink(w http.ResponseWriter, secret string) error {
	ticket, issuer, err := s.inspect(secret)
	if err != nil {
		return err
	}
	words, view := linkWords[ticket.Action], s.describe(ticket, issuer)
	view.Title, view.Text, view.Button, view.Look = words.title, words.text, words.button, words.look
	return showPage(w, http.StatusOK, view)
}

func (s *Server) redeemLink(w http.ResponseWriter, r *http.Request, secret string) error {
	ticket, issuer, err := s.inspect(secret)
	if err != nil {
		return err
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return answer.Refuse(http.StatusBadRequest, "the form cannot be read")
	}
	actor := linkActor
	if grant, err := s.Guard.Identify(r, ""); err == nil && grant.Actor != "" {
		actor = grant.Actor
	}
	reason := r.PostForm.Get("reason")
	if len(reason) > maxLinkText {
		reason = trimEnd(reason[:maxLinkText])
	}
	view := s.describe(ticket, issuer)
	state, err := s.Gates.Redeem(secret, actor, redact.String(reason))
	if err != nil {
		return err
	}
	s.observeChange(state, ticket.Action, actor)
	view.Title, view.Text = "Done", linkWords[ticket.Action].done
	return showPage(w, http.StatusOK, view)
}

// showPage answers with a page that runs nothing, loads nothing, is in no frame
// and tells nobody its URL.
func showPage(w http.ResponseWriter, status int, view linkView) error {
	var text bytes.Buffer
	if err := linkPage.Execute(&text, view); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(page.Style))
	header := w.Header()
	for name, value := range map[string]string{
		"Content-Type": "text/html; charset=utf-8",
		"Content-Security-Policy": "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
			"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		"X-Content-Type-Options": "nosniff",
		"X-Frame-Options":        "DENY",
		"Referrer-Policy":        "same-origin", // the origin of the form, without which it looks like that of another site
		"Cache-Control":          "no-store",
	} {
		header.Set(name, value)
	}
	w.WriteHeader(status)
	_, err := w.Write(text.Bytes())
	return err
}
