package tester

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

const (
	maxForm     = 8 << 10
	maxLinkText = 500      // bytes of a reason
	linkActor   = "a link" // of who presses a button without saying who it is
	linkRuns    = 10       // that the page shows
)

//go:embed link.html
var linkHTML string

// linkPage shows what a link is good for; its form posts to the URL of the page.
var linkPage = template.Must(template.New("link").Parse(linkHTML))

// A linkView is what the page shows.
type linkView struct {
	Title, Text string
	Style       template.CSS
	Ticket      *gate.Ticket
	Button      string // "" for none
	Look        string // of the button: primary or danger

	Phase    string
	Revision string // its checksum when its name is not known
	About    api.About
	Runs     []api.Run // of its checksum, newest first
}

// linkWords are those of an action of a link.
var linkWords = map[string]struct{ title, text, button, look, done string }{
	"open":   {"Approve this rollout?", "The gate opens for this revision alone.", "Approve", "primary", "Approved: the gate is open for this revision."},
	"reject": {"Reject this rollout?", "The gate stays closed, and the rollback switch of the canary opens for this revision.", "Reject", "danger", "Rejected: the gate is closed and the rollback switch is open for this revision."},
}

// inspect returns what a link, whose secret is the credential, is good for, as long as
// its issuer may decide, and the view of it with the runs that the issuer may see.
func (s *Server) inspect(r *http.Request) (gate.Ticket, linkView, error) {
	ticket, err := s.Gates.Inspect(r.PathValue("secret"))
	if err != nil {
		return ticket, linkView{}, err
	}
	issuer, err := s.Guard.Named(ticket.Issuer)
	if err == nil {
		err = mayGate(issuer, toReject, ticket.Key)
	}
	if err != nil {
		return ticket, linkView{}, fmt.Errorf("%w: its issuer may not decide any more", gate.ErrLink)
	}
	view := linkView{Ticket: &ticket, Revision: ticket.Checksum}
	if w := s.Gates.Gate(ticket.Key).Waiting; w != nil && w.Checksum == ticket.Checksum {
		view.Phase, view.About, view.Revision = w.Phase, w.About, cmp.Or(w.Revision, ticket.Checksum)
	}
	if ticket.Checksum != "" {
		view.Runs = s.runsFor(issuer, api.Filter{Namespace: ticket.Key.Namespace, Name: ticket.Key.Name, Checksum: ticket.Checksum, Limit: linkRuns})
	}
	return ticket, view, nil
}

// showLink answers the page of a link: looking at it does nothing.
func (s *Server) showLink(w http.ResponseWriter, r *http.Request) error {
	ticket, view, err := s.inspect(r)
	words := linkWords[ticket.Action]
	view.Title, view.Text, view.Button, view.Look = words.title, words.text, words.button, words.look
	return showPage(w, view, err)
}

// redeemLink answers its button, which decides, once.
func (s *Server) redeemLink(w http.ResponseWriter, r *http.Request) error {
	ticket, view, err := s.inspect(r)
	if err != nil {
		return showPage(w, view, err)
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return httpserve.Refuse(http.StatusBadRequest, "the form cannot be read")
	}
	actor := linkActor
	if grant, err := s.Guard.Identify(r, ""); err == nil && grant.Actor != "" {
		actor = grant.Actor
	}
	reason := r.PostForm.Get("reason")
	reason = strings.ToValidUTF8(reason[:min(len(reason), maxLinkText)], "")
	state, err := s.Gates.Redeem(r.PathValue("secret"), actor, redact.String(reason))
	if err == nil {
		s.observeChange(state, ticket.Action, actor)
	}
	view.Title, view.Text = "Done", linkWords[ticket.Action].done
	return showPage(w, view, err)
}

// linkPolicy has the page run nothing, load nothing and be in no frame.
var linkPolicy = func() string {
	sum := sha256.Sum256([]byte(httpserve.Style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}()

// showPage answers with a page, or with that of a link that does not work.
func showPage(w http.ResponseWriter, view linkView, err error) error {
	status := http.StatusOK
	if errors.Is(err, gate.ErrLink) {
		status, err = http.StatusGone, nil
		view = linkView{
			Title: "This link does not work any more",
			Text:  "It was used, it has expired, another revision waits now, or who made it may not decide any more. Ask for a new one.",
		}
	}
	if err != nil {
		return err
	}
	var text bytes.Buffer
	view.Style = template.CSS(httpserve.Style)
	if err := linkPage.Execute(&text, view); err != nil {
		return err
	}
	for name, value := range map[string]string{
		"Content-Type":            "text/html; charset=utf-8",
		"Content-Security-Policy": linkPolicy,
		"X-Content-Type-Options":  "nosniff",
		"X-Frame-Options":         "DENY",
		"Referrer-Policy":         "same-origin", // the origin of the form, without which it looks like that of another site
		"Cache-Control":           "no-store",
	} {
		w.Header().Set(name, value)
	}
	w.WriteHeader(status)
	_, err = w.Write(text.Bytes())
	return err
}
