package tester

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/rollout/tester/access"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

var runStates = []api.RunState{api.Queued, api.Running, api.Succeeded, api.Failed, api.TimedOut, api.Cancelled, api.Stopped, api.Lost}

// filter returns who asks for a list, and the filter of the query, which has no other
// parameters than those allowed.
func (s *Server) filter(r *http.Request, allowed ...string) (access.Grant, api.Filter, error) {
	f := api.Filter{Limit: 100}
	g, err := s.Guard.Identify(r, "")
	if err != nil {
		return g, f, err
	}
	for name, values := range r.URL.Query() {
		if !slices.Contains(allowed, name) {
			return g, f, httpserve.Refuse(http.StatusBadRequest, "parameter %s: is unknown here; there are %s", shorten(name, 80), strings.Join(allowed, ", "))
		}
		if len(values) != 1 {
			return g, f, httpserve.Refuse(http.StatusBadRequest, "parameter %s: is there twice", name)
		}
		if possible := setFilter(&f, name, values[0]); possible != "" {
			return g, f, httpserve.Refuse(http.StatusBadRequest, "parameter %s: %s is not possible: want %s", name, strconv.Quote(shorten(values[0], 80)), possible)
		}
	}
	return g, f, nil
}

// setFilter sets what a parameter says, or returns which values it may have.
func setFilter(f *api.Filter, name, value string) (possible string) {
	var err error
	valid := true
	switch name {
	case "kind":
		f.Kind, possible = api.Kind(value), "gate or rollback"
		valid = f.Kind == api.KindGate || f.Kind == api.KindRollback
	case "namespace":
		f.Namespace = value
	case "name":
		f.Name = value
	case "gate":
		f.Gate = value
	case "checksum":
		f.Checksum = value
	case "type":
		f.Type, possible = api.TypeName(value), "a type of tests"
		valid = f.Type != ""
	case "state":
		f.State, possible = api.RunState(value), "queued, running, succeeded, failed, timed-out, cancelled, stopped or lost"
		valid = slices.Contains(runStates, f.State)
	case "waiting":
		possible = "true or false"
		f.Waiting, err = strconv.ParseBool(value)
	case "stale":
		possible = "true or false"
		f.Stale, err = strconv.ParseBool(value)
	case "limit":
		possible = "from 1 to 1000"
		f.Limit, err = strconv.Atoi(value)
		valid = 0 < f.Limit && f.Limit <= 1000
	case "before":
		f.Before = value
	}
	if err == nil && valid {
		return ""
	}
	return possible
}

// list collects up to f.Limit of what the caller may see. next returns those
// that f selects next, newest first.
func list[T any](f api.Filter, next func(api.Filter) []T, id func(T) string, see func(T) bool) []T {
	seen := []T{}
	for limit := f.Limit; ; {
		f.Limit = limit - len(seen)
		found := next(f)
		for _, item := range found {
			if see(item) {
				seen = append(seen, item)
			}
		}
		if len(found) < f.Limit || len(seen) >= limit {
			return seen
		}
		f.Before = id(found[len(found)-1])
	}
}

// runsFor returns the runs of a filter that a caller may see.
func (s *Server) runsFor(g access.Grant, f api.Filter) []api.Run {
	return list(f, s.Runs.Runs, func(r api.Run) string { return r.ID }, func(r api.Run) bool { return g.See(r.Namespace, r.Type) == nil })
}

func (s *Server) listRuns(w http.ResponseWriter, r *http.Request) error {
	g, f, err := s.filter(r, "namespace", "name", "checksum", "type", "state", "limit", "before")
	if err != nil {
		return err
	}
	runs := s.runsFor(g, f)
	for i := range runs {
		runs[i].URL = s.runURL(r, runs[i].ID)
	}
	return httpserve.JSON(w, http.StatusOK, struct {
		Runs []api.Run `json:"runs"`
	}{runs})
}

// runOfPath returns the run of the path, which the caller may see.
func (s *Server) runOfPath(r *http.Request) (access.Grant, api.Run, error) {
	g, err := s.Guard.Identify(r, "")
	if err != nil {
		return g, api.Run{}, err
	}
	state, err := s.Runs.Run(r.PathValue("id"))
	if err == nil {
		err = g.See(state.Namespace, state.Type)
	}
	state.URL = s.runURL(r, state.ID)
	return g, state, err
}

func (s *Server) getRun(w http.ResponseWriter, r *http.Request) error {
	_, state, err := s.runOfPath(r)
	if err != nil {
		return err
	}
	return httpserve.JSON(w, http.StatusOK, state)
}

func (s *Server) cancelRun(w http.ResponseWriter, r *http.Request) error {
	g, state, err := s.runOfPath(r)
	if err == nil {
		err = g.Run(state.Namespace, state.Type)
	}
	if err == nil {
		state, err = s.Runs.Cancel(r.Context(), state.ID, g.Actor)
	}
	if err != nil {
		return err
	}
	state.URL = s.runURL(r, state.ID)
	return httpserve.JSON(w, http.StatusOK, state)
}

// getOutput answers with what a run wrote, as it is kept; with follow until the run has ended.
func (s *Server) getOutput(w http.ResponseWriter, r *http.Request) error {
	_, state, err := s.runOfPath(r)
	if err != nil {
		return err
	}
	follow := false
	for name, values := range r.URL.Query() {
		follow, err = strconv.ParseBool(values[0])
		if name != "follow" || len(values) != 1 || err != nil {
			return httpserve.Refuse(http.StatusBadRequest, "parameters: there is follow alone, true or false")
		}
	}
	out := httpserve.StreamText(w)
	if r.Method == http.MethodHead {
		return nil
	}
	if follow {
		out.Flush()
	}
	if err := s.Runs.Output(r.Context(), state.ID, follow, out); err != nil { // which ends with the test runner, for runs do
		panic(http.ErrAbortHandler) // the answer is not whole, and says so
	}
	return nil
}

// watch streams changes of gates and runs that the caller may see. It ends with the
// test runner, and when the caller is not known any more.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) error {
	g, err := s.Guard.Identify(r, "")
	if err != nil {
		return err
	}
	out := httpserve.StreamEvents(w)
	if r.Method == http.MethodHead {
		return nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	gates, runs := s.Gates.Watch(ctx), s.Runs.Watch(ctx)
	ticker := time.NewTicker(cmp.Or(s.Keepalive, 15*time.Second))
	defer ticker.Stop()
	for line := ": changes from now on\n\n"; ; {
		if line != "" {
			if _, err := out.Write([]byte(line)); err != nil {
				return nil
			}
		}
		line = ""
		select {
		case <-s.ending:
			return nil
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if g, err = s.Guard.Renew(g); err != nil {
				return nil
			}
			line = ":\n\n"
		case state, more := <-gates:
			if g, err = s.Guard.Renew(g); err != nil || !more {
				return nil
			}
			if g.Check(state.Key) == nil {
				line = event(api.Notice{Gate: &state})
			}
		case state, more := <-runs:
			if g, err = s.Guard.Renew(g); err != nil || !more {
				return nil
			}
			if g.See(state.Namespace, state.Type) == nil {
				state.URL = s.runURL(r, state.ID)
				line = event(api.Notice{Run: &state})
			}
		}
	}
}

func event(notice api.Notice) string {
	text, _ := json.Marshal(notice) // of texts, numbers and times
	return fmt.Sprintf("data: %s\n\n", text)
}

func (s *Server) getSession(w http.ResponseWriter, r *http.Request) error {
	g, err := s.Guard.Identify(r, "")
	if err != nil {
		return err
	}
	return httpserve.JSON(w, http.StatusOK, g.Session(s.Guard.Required()))
}

func (s *Server) login(w http.ResponseWriter, r *http.Request) error {
	var request struct {
		Token string `json:"token"`
	}
	if err := s.bodies.JSON(w, r, &request); err != nil {
		return err
	}
	g, err := s.Guard.Login(w, r, request.Token)
	if err != nil {
		return err
	}
	return httpserve.JSON(w, http.StatusOK, g.Session(s.Guard.Required()))
}

func (s *Server) logout(w http.ResponseWriter, r *http.Request) error {
	s.Guard.Logout(w, r)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
