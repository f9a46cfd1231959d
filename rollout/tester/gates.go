package tester

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/tester/access"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

const (
	approved  = "Approved"
	forbidden = "Forbidden"
)

// gate answers the paths below /gate/.
func (s *Server) gate(w http.ResponseWriter, r *http.Request) error {
	switch action := r.PathValue("action"); {
	case r.PathValue("gate") == "" && (action == "approve" || action == "halt"):
		return s.constant(w, r, action)
	default:
		return s.gateOf(w, r, api.KindGate)
	}
}

// rollback answers the paths below /rollback/.
func (s *Server) rollback(w http.ResponseWriter, r *http.Request) error {
	return s.gateOf(w, r, api.KindRollback)
}

// gateOf answers a request for a gate or a rollback switch.
func (s *Server) gateOf(w http.ResponseWriter, r *http.Request, kind api.Kind) error {
	action := r.PathValue("action")
	switch {
	case action != "check" && action != "open" && action != "close":
		return httpserve.ErrNothing
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
	if err := checkName("gate", k.Gate); err != nil {
		return err
	}
	if action == "check" {
		return s.check(w, g, k, p)
	}
	if err := g.Change(k); err != nil {
		return err
	}
	s.over(p, api.Key{})
	change := api.Change{Actor: p.Actor, Reason: p.Reason}
	if action == "open" {
		change.TTL, change.Mode = p.TTL, cmp.Or(p.Mode, api.Sticky) // also for a webhook, whose payload has a checksum
		if change.Mode == api.Bound {
			change.Checksum = p.Checksum
		}
	}
	if _, err := s.decide(g, k, action, change); err != nil {
		return err
	}
	return httpserve.Text(w, http.StatusAccepted, "")
}

// constant answers /gate/approve and /gate/halt. Their body counts only where
// callers have to say who they are, and then need not be a payload.
func (s *Server) constant(w http.ResponseWriter, r *http.Request, action string) error {
	if s.Guard.Required() {
		p, g, _, err := s.payload(w, r)
		if own, is := errors.AsType[*httpserve.Refusal](err); err == nil || is && own.Status == http.StatusBadRequest {
			err = g.Check(p.key(api.KindGate, ""))
		}
		if err != nil {
			return err
		}
	}
	if action == "halt" {
		return httpserve.Text(w, http.StatusForbidden, forbidden)
	}
	return httpserve.Text(w, http.StatusOK, "OK")
}

// check answers whether a gate is open. It says in headers who opened it, and why.
func (s *Server) check(w http.ResponseWriter, g access.Grant, k api.Key, p payload) error {
	if err := g.Check(k); err != nil {
		return err
	}
	s.over(p, k)
	answer, err := s.Gates.Check(k, gate.Visitor{Phase: p.Phase, Checksum: p.Checksum, About: p.about(), Trial: p.trial()})
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

// decide opens, closes or rejects a gate for a caller who may.
func (s *Server) decide(g access.Grant, k api.Key, action string, change api.Change) (state api.Gate, err error) {
	if s.Guard.Required() || change.Actor == "" {
		change.Actor = g.Actor
	}
	switch action {
	case "open":
		state, err = s.Gates.Open(k, change)
	case "close":
		state, err = s.Gates.Shut(k, change)
	default:
		state, err = s.Gates.Reject(k, change)
	}
	if err == nil {
		s.observeChange(state, action, change.Actor)
	}
	return state, err
}

// observeChange counts and logs a change of a gate: open, close, reject, link.
func (s *Server) observeChange(g api.Gate, action, actor string) {
	s.metrics.changes.WithLabelValues(string(g.Kind), action).Inc()
	s.logger().Info("gate changed", "action", action, "kind", string(g.Kind), "namespace", clean(g.Namespace), "name", clean(g.Name), "gate", clean(g.Gate),
		"open", g.Open, "mode", string(g.Mode), "checksum", clean(g.Checksum), "actor", clean(actor), "reason", clean(g.Reason))
}

func (s *Server) listGates(w http.ResponseWriter, r *http.Request) error {
	g, f, err := s.filter(r, "kind", "namespace", "name", "gate", "waiting", "stale", "limit")
	if err != nil {
		return err
	}
	limit := f.Limit
	f.Limit = 0
	seen := slices.DeleteFunc(s.Gates.List(f), func(one api.Gate) bool { return g.Check(one.Key) != nil })
	return httpserve.JSON(w, http.StatusOK, struct {
		Gates []api.Gate `json:"gates"`
	}{seen[:min(len(seen), limit)]})
}

// gateOfPath returns the gate of the path.
func gateOfPath(r *http.Request) (api.Key, error) {
	k := api.Key{Kind: api.Kind(segment(r, "kind")), Namespace: segment(r, "namespace"), Name: segment(r, "name"),
		Gate: cmp.Or(segment(r, "gate"), api.DefaultGate)} // by which scopes know it
	if k.Kind != api.KindGate && k.Kind != api.KindRollback {
		return k, httpserve.Refuse(http.StatusNotFound, "kind %s: is neither gate nor rollback", strconv.Quote(shorten(string(k.Kind), 80)))
	}
	return k, cmp.Or(checkName("namespace", k.Namespace), checkName("name", k.Name), checkName("gate", k.Gate))
}

func (s *Server) getGate(w http.ResponseWriter, r *http.Request) error {
	g, err := s.Guard.Identify(r, "")
	if err != nil {
		return err
	}
	k, err := gateOfPath(r)
	if err == nil {
		err = g.Check(k)
	}
	if err != nil {
		return err
	}
	return httpserve.JSON(w, http.StatusOK, s.Gates.Gate(k))
}

// changeGate opens, closes or rejects a gate, or makes links that do.
func (s *Server) changeGate(w http.ResponseWriter, r *http.Request) error {
	g, err := s.Guard.Identify(r, "")
	if err != nil {
		return err
	}
	k, err := gateOfPath(r)
	if err != nil {
		return err
	}
	action, may := r.PathValue("action"), g.Change
	switch action {
	case "open", "close":
	case "reject", "link": // a link can do both
		may = g.Reject
	default:
		return httpserve.ErrNothing
	}
	if err := may(k); err != nil {
		return err
	}
	if action == "link" {
		return s.issueLink(w, r, g, k)
	}
	var change api.Change
	if err := s.bodies.JSON(w, r, &change); err != nil {
		return err
	}
	state, err := s.decide(g, k, action, change)
	if err != nil {
		return err
	}
	return httpserve.JSON(w, http.StatusOK, state)
}

func (s *Server) issueLink(w http.ResponseWriter, r *http.Request, g access.Grant, k api.Key) error {
	var request api.LinkRequest
	if err := s.bodies.JSON(w, r, &request); err != nil {
		return err
	}
	ttl, err := api.ParseInterval(request.TTL, 24*time.Hour)
	if err != nil {
		return httpserve.Refuse(http.StatusBadRequest, "ttl: %w", err)
	}
	if ttl > 7*24*time.Hour {
		return httpserve.Refuse(http.StatusBadRequest, "ttl: is longer than 7 days")
	}
	approve, reject, expires, err := s.Gates.Issue(k, ttl, g.Actor)
	if err != nil {
		return err
	}
	s.observeChange(s.Gates.Gate(k), "link", g.Actor)
	base := s.base(r) + "/link/"
	return httpserve.JSON(w, http.StatusOK, api.Link{Approve: base + approve, Reject: base + reject, Expires: expires})
}

func (s *Server) listAudit(w http.ResponseWriter, r *http.Request) error {
	g, f, err := s.filter(r, "kind", "namespace", "name", "gate", "limit", "before")
	if err != nil {
		return err
	}
	if _, err := strconv.ParseUint(f.Before, 10, 64); err != nil && f.Before != "" {
		return httpserve.Refuse(http.StatusBadRequest, "parameter before: is no number of an entry")
	}
	entries := list(f, s.Gates.Audit, func(e api.Entry) string { return strconv.FormatUint(e.ID, 10) }, func(e api.Entry) bool { return g.Check(e.Key) == nil })
	return httpserve.JSON(w, http.StatusOK, struct {
		Entries []api.Entry `json:"entries"`
	}{entries})
}
