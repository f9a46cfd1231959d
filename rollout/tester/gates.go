package tester

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

const (
	passes  = "Approved"
	refuses = "Forbidden"
)

// A gateRoute is what one path below /gate/ or /rollback/ does.
type gateRoute struct {
	kind   api.Kind
	gate   string // of the path, "" for none
	action string
}

// gateRouteOf reads the segments of a path after the first.
func gateRouteOf(kind api.Kind, segments []string) (gateRoute, bool) {
	route := gateRoute{kind: kind, action: segments[len(segments)-1]}
	switch {
	case len(segments) == 2 && segments[0] != "":
		route.gate = segments[0]
	case len(segments) != 1:
		return route, false
	}
	switch route.action {
	case "check", "open", "close":
		return route, true
	case "approve", "halt":
		return route, kind == api.KindGate && route.gate == ""
	}
	return route, false
}

func (s *Server) serveGate(w http.ResponseWriter, r *http.Request, route gateRoute) {
	var err error
	switch route.action {
	case "approve", "halt":
		err = s.constant(w, r, route.action)
	case "check":
		err = s.check(w, r, route)
	default:
		err = s.change(w, r, route)
	}
	if err != nil {
		s.refuseText(w, r, err)
	}
}

// constant answers /gate/approve and /gate/halt. Their body counts only where
// callers have to say who they are, and then need not be a payload.
func (s *Server) constant(w http.ResponseWriter, r *http.Request, action string) error {
	if s.Guard.Required() {
		p, c, err := s.payload(w, r, gateKeys)
		if own, is := errors.AsType[*answer.Refusal](err); err == nil || is && own.Status == http.StatusBadRequest {
			err = c.Check(p.key(api.KindGate, ""))
		}
		if err != nil {
			return err
		}
	}
	if action == "halt" {
		return answer.Text(w, http.StatusForbidden, refuses)
	}
	return answer.Text(w, http.StatusOK, "OK")
}

// check answers whether a gate is open.
func (s *Server) check(w http.ResponseWriter, r *http.Request, route gateRoute) error {
	p, c, err := s.payload(w, r, gateKeys)
	if err != nil {
		return err
	}
	k := p.key(route.kind, route.name(r))
	if err := checkGate(k.Gate); err != nil {
		return err
	}
	if err := c.Check(k); err != nil {
		return err
	}
	s.over(p, k)
	decided := s.Gates.Gate(k) // before a check uses the opening up
	open, err := s.Gates.Check(k, gate.Visitor{Phase: p.Phase, Checksum: p.Checksum, About: p.about(), Trial: p.trial()})
	if err != nil {
		return err
	}
	s.observeCheck(k.Kind, open)
	if open {
		if decided.Open {
			namePerson(w, decided)
		}
		return answer.Text(w, http.StatusOK, passes)
	}
	return answer.Text(w, http.StatusForbidden, refuses)
}

// namePerson says for callers who opened a gate, and why: what they read is in the body.
func namePerson(w http.ResponseWriter, g api.Gate) {
	for name, text := range map[string]string{rollout.ActorHeader: g.Actor, rollout.ReasonHeader: g.Reason} {
		if text != "" {
			w.Header().Set(name, url.PathEscape(text))
		}
	}
}

// change opens or closes a gate.
func (s *Server) change(w http.ResponseWriter, r *http.Request, route gateRoute) error {
	if r.Method != http.MethodPost {
		return answer.WrongMethod(w, http.MethodPost)
	}
	p, c, err := s.payload(w, r, gateKeys)
	if err != nil {
		return err
	}
	k := p.key(route.kind, route.name(r))
	if err := checkGate(k.Gate); err != nil {
		return err
	}
	if err := c.Change(k); err != nil {
		return err
	}
	s.over(p, api.Key{})
	change := api.Change{Actor: p.Actor, Reason: p.Reason}
	if route.action == "open" {
		change.TTL, change.Mode = p.TTL, p.Mode
		if change.Mode == "" {
			change.Mode = api.Sticky // also for a webhook, whose payload has a checksum
		}
		if change.Mode == api.Bound {
			change.Checksum = p.Checksum
		}
	}
	if _, err := s.apply(c, k, route.action, change); err != nil {
		return err
	}
	return answer.Text(w, http.StatusAccepted, "")
}

// name returns the gate that the URL names, "" for none.
func (g gateRoute) name(r *http.Request) string {
	if g.gate != "" || r.URL.RawQuery == "" {
		return g.gate
	}
	return r.URL.Query().Get("gate")
}

func checkGate(name string) error {
	if len(name) > maxName {
		return answer.Refuse(http.StatusBadRequest, "gate: longer than %d bytes", maxName)
	}
	return nil
}

// apply opens, closes or rejects a gate for a caller who may.
func (s *Server) apply(c caller, k api.Key, action string, change api.Change) (api.Gate, error) {
	if s.Guard.Required() || change.Actor == "" {
		change.Actor = c.Actor
	}
	do := map[string]func(api.Key, api.Change) (api.Gate, error){"open": s.Gates.Open, "close": s.Gates.Shut, "reject": s.Gates.Reject}[action]
	state, err := do(k, change)
	if err == nil {
		s.observeChange(state, action, change.Actor)
	}
	return state, err
}
