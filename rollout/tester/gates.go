package tester

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

const (
	approved  = "Approved"
	forbidden = "Forbidden"
)

// gate answers a request for a gate or a rollback switch: the paths below /gate/ and
// /rollback/.
func (s *Server) gate(w http.ResponseWriter, r *http.Request) error {
	kind := api.KindGate
	if strings.HasPrefix(r.Pattern, "/rollback/") {
		kind = api.KindRollback
	}
	action := r.PathValue("action")
	switch {
	case action != "check" && action != "open" && action != "close":
		return httpserve.ErrNotFound
	case action != "check" && r.Method != http.MethodPost:
		return httpserve.WrongMethod(w, http.MethodPost)
	}
	p, g, _, err := s.payload(w, r)
	if err != nil {
		return err
	}
	name := r.PathValue("gate")
	if name == "" && r.URL.RawQuery != "" {
		name = r.URL.Query().Get("gate")
	}
	k := p.key(kind, name)
	if action == "check" {
		return s.check(w, g, k, p)
	}
	if err := authorizeGate(g, verbChange, k); err != nil {
		return err
	}
	s.endWaits(p, api.Key{})
	change := api.Change{Actor: p.Actor, Reason: p.Reason}
	if action == "open" {
		change.TTL, change.Mode = p.TTL, cmp.Or(p.Mode, api.Sticky) // sticky by default, although the payload of a webhook has a checksum
		if change.Mode == api.Bound {
			change.Checksum = p.Checksum
		}
	}
	if _, err := s.decide(g, k, action, change); err != nil {
		return err
	}
	return httpserve.Text(w, http.StatusAccepted, "")
}

// constantGate answers /gate/approve and /gate/halt. The body is read only if callers
// must authenticate, and even then it need not be a payload.
func (s *Server) constantGate(w http.ResponseWriter, r *http.Request) error {
	if s.Guard.Required() {
		p, g, _, err := s.payload(w, r)
		if refusal, is := errors.AsType[*httpserve.Refusal](err); err == nil || is && refusal.Status == http.StatusBadRequest {
			err = authorizeGate(g, verbCheck, p.key(api.KindGate, ""))
		}
		if err != nil {
			return err
		}
	}
	if r.Pattern == "/gate/halt" {
		return httpserve.Text(w, http.StatusForbidden, forbidden)
	}
	return httpserve.Text(w, http.StatusOK, "OK")
}

// check answers whether a gate is open. It says in headers who opened it, and why.
func (s *Server) check(w http.ResponseWriter, g grant, k api.Key, p payload) error {
	if err := authorizeGate(g, verbCheck, k); err != nil {
		return err
	}
	s.endWaits(p, k)
	answer, err := s.Gates.Check(k, gate.CheckRequest{Phase: p.Phase, Checksum: p.Checksum, Trial: p.Metadata[rollout.MetadataTrial] == "true", CanaryInfo: api.CanaryInfo{
		Revision: p.displayText(rollout.MetadataRevision), Weight: p.displayText(rollout.MetadataWeight), Step: p.displayText(rollout.MetadataStep),
		Threshold: p.displayText(rollout.MetadataThreshold), Failures: p.displayText(rollout.MetadataFailures),
	}})
	if err != nil {
		return err
	}
	if !answer.Open {
		s.metrics.checks.WithLabelValues(string(k.Kind), "closed").Inc()
		return httpserve.Text(w, http.StatusForbidden, forbidden)
	}
	s.metrics.checks.WithLabelValues(string(k.Kind), "open").Inc()
	for name, text := range map[string]string{rollout.ActorHeader: answer.Actor, rollout.ReasonHeader: answer.Reason} {
		if text != "" {
			w.Header().Set(name, url.PathEscape(text))
		}
	}
	return httpserve.Text(w, http.StatusOK, approved)
}

// decide opens, closes or rejects a gate for a caller that was authorized.
func (s *Server) decide(g grant, k api.Key, action string, change api.Change) (state api.Gate, err error) {
	if s.Guard.Required() || change.Actor == "" {
		change.Actor = g.Actor
	}
	state, err = s.Gates.Change(action, k, change)
	if err == nil {
		s.observeChange(state, action, change.Actor)
	}
	return state, err
}

// observeChange counts and logs a change of a gate: open, close, reject, link.
func (s *Server) observeChange(g api.Gate, action, actor string) {
	s.metrics.changes.WithLabelValues(string(g.Kind), action).Inc()
	s.Log.Info("gate changed", "action", action, "kind", string(g.Kind), "namespace", logExcerpt(g.Namespace), "name", logExcerpt(g.Name), "gate", logExcerpt(g.Gate),
		"open", g.Open, "mode", string(g.Mode), "checksum", logExcerpt(g.Checksum), "actor", logExcerpt(actor), "reason", logExcerpt(g.Reason))
}

func (s *Server) listGates(_ http.ResponseWriter, r *http.Request, g grant) (any, error) {
	f, err := filter(r, "kind", "namespace", "name", "gate", "waiting", "stale", "limit")
	if err != nil {
		return nil, err
	}
	seen := slices.DeleteFunc(s.Gates.List(f), func(one api.Gate) bool { return authorizeGate(g, verbCheck, one.Key) != nil })
	return map[string][]api.Gate{"gates": seen[:min(len(seen), f.Limit)]}, nil
}

// gateOfPath returns the gate that the path names. The error says that there is no such
// kind, or that the grant does not allow verb for the gate.
func gateOfPath(r *http.Request, g grant, verb string) (api.Key, error) {
	k := api.Key{Kind: api.Kind(httpserve.Segment(r, "kind")), Namespace: httpserve.Segment(r, "namespace"), Name: httpserve.Segment(r, "name"),
		Gate: cmp.Or(httpserve.Segment(r, "gate"), api.DefaultGate)} // the name that scopes have
	if !slices.Contains(kinds, k.Kind) {
		return k, httpserve.Refuse(http.StatusNotFound, "kind %s: is neither gate nor rollback", strconv.Quote(answerExcerpt(string(k.Kind))))
	}
	return k, authorizeGate(g, verb, k)
}

func (s *Server) getGate(_ http.ResponseWriter, r *http.Request, g grant) (any, error) {
	k, err := gateOfPath(r, g, verbCheck)
	return s.Gates.Gate(k), err
}

// changeGate opens, closes or rejects a gate, or makes links that do.
func (s *Server) changeGate(w http.ResponseWriter, r *http.Request, g grant) (any, error) {
	action := r.PathValue("action")
	verb := map[string]string{"open": verbChange, "close": verbChange, "reject": verbReject, "link": verbReject}[action] // a link can open or reject
	k, err := gateOfPath(r, g, cmp.Or(verb, verbCheck))
	switch {
	case err != nil:
		return nil, err
	case verb == "":
		return nil, httpserve.ErrNotFound
	case action == "link":
		return s.issueLink(w, r, g, k)
	}
	var change api.Change
	if err := s.bodies.JSON(w, r, &change); err != nil {
		return nil, err
	}
	return s.decide(g, k, action, change)
}

func (s *Server) issueLink(w http.ResponseWriter, r *http.Request, g grant, k api.Key) (any, error) {
	var request api.LinkRequest
	if err := s.bodies.JSON(w, r, &request); err != nil {
		return nil, err
	}
	ttl, err := api.ParseInterval(request.TTL, 0)
	if err != nil {
		return nil, httpserve.Refuse(http.StatusBadRequest, "ttl: %w", err)
	}
	if ttl > gate.MaxLinkTTL {
		return nil, httpserve.Refuse(http.StatusBadRequest, "ttl: is longer than 7 days")
	}
	approve, reject, expires, err := s.Gates.Issue(k, ttl, g.Actor)
	if err != nil {
		return nil, err
	}
	s.observeChange(s.Gates.Gate(k), "link", g.Actor)
	base := s.base(r) + "/link/"
	return api.Link{Approve: base + approve, Reject: base + reject, Expires: expires}, nil
}

func (s *Server) listAudit(_ http.ResponseWriter, r *http.Request, g grant) (any, error) {
	f, err := filter(r, "kind", "namespace", "name", "gate", "limit", "before")
	if err != nil {
		return nil, err
	}
	if _, err := strconv.ParseUint(f.Before, 10, 64); err != nil && f.Before != "" {
		return nil, httpserve.Refuse(http.StatusBadRequest, "parameter before: is no number of an entry")
	}
	entries := s.Gates.Audit(f, func(k api.Key) bool { return authorizeGate(g, verbCheck, k) == nil })
	return map[string][]api.Entry{"entries": entries}, nil
}

const (
	maxForm     = 8 << 10
	maxLinkText = 500      // bytes of a reason
	linkActor   = "a link" // the actor if the button is pressed without a credential
	linkRuns    = 10       // runs on the page
)

//go:embed link.html
var linkHTML string

// linkPage shows what a link does. Its form posts to the URL of the page.
var linkPage = template.Must(template.New("link").Parse(linkHTML))

// linkPageText has the texts of the page. linkTexts has them by the action of the link, and
// under "" for a link that does not work.
type linkPageText struct{ Title, Text, Button, Look, Done string }

var linkTexts = map[string]linkPageText{
	"open":   {"Approve this rollout?", "The gate opens for this revision alone.", "Approve", "primary", "Approved: the gate is open for this revision."},
	"reject": {"Reject this rollout?", "The gate stays closed, and the rollback switch of the canary opens for this revision.", "Reject", "danger", "Rejected: the gate is closed and the rollback switch is open for this revision."},
	"": {Title: "This link does not work any more",
		Text: "It was used, it has expired, another revision waits now, or who made it may not decide any more. Ask for a new one."},
}

// A linkView is what the page shows.
type linkView struct {
	linkPageText
	Style   template.CSS
	Ticket  *gate.Ticket
	Waiting api.Waiting // zero when nothing waits
	Runs    []api.Run   // of its checksum that the issuer may see, newest first
}

// linkPolicy lets the page run nothing, load nothing and appear in no frame.
var linkPolicy = func() string {
	sum := sha256.Sum256([]byte(httpserve.Style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}()

// link answers with the page of a signed link. The secret in the path is the credential, as
// long as the issuer of the link may still decide. GET changes nothing; POST, which the
// button of the page sends, decides once.
func (s *Server) link(w http.ResponseWriter, r *http.Request) error {
	t, err := s.Gates.Inspect(r.PathValue("secret"))
	view := linkView{linkPageText: linkTexts[t.Action], Ticket: &t}
	if err == nil {
		issuer, unknown := s.Guard.ByName(t.Issuer)
		if unknown != nil || authorizeGate(issuer, verbReject, t.Key) != nil {
			err = gate.ErrLink
		}
		if w := s.Gates.Gate(t.Key).Waiting; w != nil && w.Checksum == t.Checksum {
			view.Waiting = *w
		}
		if t.Checksum != "" {
			view.Runs = s.runsFor(issuer, api.Filter{Namespace: t.Key.Namespace, Name: t.Key.Name, Checksum: t.Checksum, Limit: linkRuns})
		}
	}
	if err == nil && r.Method == http.MethodPost {
		err = s.redeemLink(w, r, t)
		view.linkPageText = linkPageText{Title: "Done", Text: view.Done}
	}
	status := http.StatusOK
	if errors.Is(err, gate.ErrLink) {
		status, err, view = http.StatusGone, nil, linkView{linkPageText: linkTexts[""]}
	}
	if err != nil {
		return err
	}
	view.Style = template.CSS(httpserve.Style)
	var text bytes.Buffer
	if err := linkPage.Execute(&text, view); err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Security-Policy", linkPolicy)
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "same-origin") // browsers then send the form's origin: without it the form looks cross-site
	return httpserve.Send(w, status, "text/html; charset=utf-8", text.Bytes())
}

// redeemLink carries out the action of a link.
func (s *Server) redeemLink(w http.ResponseWriter, r *http.Request, t gate.Ticket) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return httpserve.Refuse(http.StatusBadRequest, "the form cannot be read")
	}
	actor := linkActor
	if grant, err := s.Guard.Identify(r, ""); err == nil {
		actor = cmp.Or(grant.Actor, actor)
	}
	reason := r.PostForm.Get("reason")
	reason = strings.ToValidUTF8(reason[:min(len(reason), maxLinkText)], "")
	state, err := s.Gates.Redeem(r.PathValue("secret"), actor, redact.String(reason))
	if err == nil {
		s.observeChange(state, t.Action, actor)
	}
	return err
}
