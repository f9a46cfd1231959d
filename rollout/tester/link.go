package tester

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

const (
	maxForm     = 8 << 10
	maxLinkText = 500      // bytes of a reason
	linkActor   = "a link" // of who presses a button without saying who it is
)

const linkStyle = `:root{color-scheme:light dark;font:1rem/1.5 system-ui,sans-serif}
body{max-width:40rem;margin:3rem auto;padding:0 1rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1rem}
dt{opacity:.75}dd{margin:0;overflow-wrap:anywhere}
input{font:inherit;width:100%;box-sizing:border-box;padding:.5rem}
button{font:inherit;font-weight:600;padding:.6rem 1.5rem;margin-top:1rem}`

// linkPage shows what a link is good for; its form posts to the URL of the page.
var linkPage = template.Must(template.New("link").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{{.Title}}</title>
<style>` + linkStyle + `</style>
</head>
<body>
<main>
<h1>{{.Title}}</h1>
{{with .Text}}<p>{{.}}</p>
{{end}}{{with .Ticket}}<dl>
<dt>Canary</dt><dd>{{.Key.Namespace}}/{{.Key.Name}}</dd>
<dt>Gate</dt><dd>{{.Key.Gate}}</dd>
{{with .Checksum}}<dt>Checksum</dt><dd>{{.}}</dd>
{{end}}<dt>Link expires</dt><dd><time datetime="{{.Expires.UTC.Format "2006-01-02T15:04:05Z"}}">{{.Expires.UTC.Format "2006-01-02 15:04 UTC"}}</time></dd>
</dl>
{{end}}{{with .Button}}<form method="post">
<label for="reason">Reason (optional)</label>
<input id="reason" name="reason" maxlength="500" autocomplete="off">
<button type="submit">{{.}}</button>
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
}

// linkWords are those of an action of a link.
var linkWords = map[string]struct{ title, text, button, done string }{
	"open":   {"Approve this rollout?", "The gate opens for this revision alone.", "Approve", "Approved: the gate is open for this revision."},
	"reject": {"Reject this rollout?", "The gate stays closed, and the rollback switch of the canary opens for this revision.", "Reject", "Rejected: the gate is closed and the rollback switch is open for this revision."},
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
func (s *Server) inspect(secret string) (gate.Ticket, error) {
	ticket, err := s.Gates.Inspect(secret)
	if err != nil {
		return gate.Ticket{}, err
	}
	grant, err := s.Guard.Named(ticket.Issuer)
	if err == nil {
		err = grant.Reject(ticket.Key)
	}
	if err != nil {
		return gate.Ticket{}, fmt.Errorf("%w: who made it may not decide any more", gate.ErrLink)
	}
	return ticket, nil
}

func (s *Server) showLink(w http.ResponseWriter, secret string) error {
	ticket, err := s.inspect(secret)
	if err != nil {
		return err
	}
	words := linkWords[ticket.Action]
	return showPage(w, http.StatusOK, linkView{Title: words.title, Text: words.text, Ticket: &ticket, Button: words.button})
}

func (s *Server) redeemLink(w http.ResponseWriter, r *http.Request, secret string) error {
	ticket, err := s.inspect(secret)
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
	state, err := s.Gates.Redeem(secret, actor, redact.String(reason))
	if err != nil {
		return err
	}
	s.observeChange(state, ticket.Action, actor)
	return showPage(w, http.StatusOK, linkView{Title: "Done", Text: linkWords[ticket.Action].done, Ticket: &ticket})
}

// showPage answers with a page that runs nothing, loads nothing, is in no frame
// and tells nobody its URL.
func showPage(w http.ResponseWriter, status int, view linkView) error {
	var page bytes.Buffer
	if err := linkPage.Execute(&page, view); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(linkStyle))
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
	_, err := w.Write(page.Bytes())
	return err
}
