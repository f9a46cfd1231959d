package tester

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

var states = []api.RunState{api.Queued, api.Running, api.Succeeded, api.Failed, api.TimedOut, api.Cancelled, api.Stopped, api.Lost}

// filter returns the filter of a query. Parameters other than those allowed are an error.
func filter(r *http.Request, allowed ...string) (api.Filter, error) {
	values, err := httpserve.Parameters(r, allowed...)
	f := api.Filter{
		Namespace: values["namespace"], Name: values["name"], Gate: values["gate"], Checksum: values["checksum"], Before: values["before"], Limit: 100,
	}
	for name, value := range values {
		ok, want := true, ""
		switch name {
		case "kind":
			f.Kind, want = api.Kind(value), "gate or rollback"
			ok = slices.Contains(kinds, f.Kind)
		case "type":
			f.Type, want = api.TypeName(value), "a type of tests"
			ok = f.Type != ""
		case "state":
			f.State, want = api.RunState(value), "queued, running, succeeded, failed, timed-out, cancelled, stopped or lost"
			ok = slices.Contains(states, f.State)
		case "waiting", "stale":
			is, err := strconv.ParseBool(value)
			ok, want = err == nil, "true or false"
			f.Waiting, f.Stale = f.Waiting || is && name == "waiting", f.Stale || is && name == "stale"
		case "limit":
			f.Limit, _ = strconv.Atoi(value)
			ok, want = 0 < f.Limit && f.Limit <= 1000, "from 1 to 1000"
		}
		if !ok {
			return f, httpserve.Refuse(http.StatusBadRequest, "parameter %s: %q is not possible: want %s", name, answerExcerpt(value), want)
		}
	}
	return f, err
}

// runsFor returns the runs that f selects and the caller may see.
func (s *Server) runsFor(g grant, f api.Filter) []api.Run {
	return s.Runs.Runs(f, func(r api.Run) bool { return authorizeTask(g, verbLook, r.Namespace, r.Type) == nil })
}

func (s *Server) listRuns(_ http.ResponseWriter, r *http.Request, g grant) (any, error) {
	f, err := filter(r, "namespace", "name", "checksum", "type", "state", "limit", "before")
	if err != nil {
		return nil, err
	}
	runs := s.runsFor(g, f)
	for i := range runs {
		runs[i].URL = s.runURL(r, runs[i].ID)
	}
	return map[string][]api.Run{"runs": runs}, nil
}

// runOfPath returns the run that the path names, if the caller may see it.
func (s *Server) runOfPath(r *http.Request, g grant) (api.Run, error) {
	state, err := s.Runs.Run(r.PathValue("id"))
	if err == nil {
		err = authorizeTask(g, verbLook, state.Namespace, state.Type)
	}
	state.URL = s.runURL(r, state.ID)
	return state, err
}

func (s *Server) getRun(_ http.ResponseWriter, r *http.Request, g grant) (any, error) {
	return s.runOfPath(r, g)
}

func (s *Server) cancelRun(_ http.ResponseWriter, r *http.Request, g grant) (any, error) {
	state, err := s.runOfPath(r, g)
	if err == nil {
		err = authorizeTask(g, verbRun, state.Namespace, state.Type)
	}
	if err == nil {
		state, err = s.Runs.Cancel(r.Context(), state.ID, g.Actor)
	}
	state.URL = s.runURL(r, state.ID)
	return state, err
}

// getOutput answers with the output of a run that is kept. With follow it streams output until
// the run has ended.
func (s *Server) getOutput(w http.ResponseWriter, r *http.Request, g grant) (any, error) {
	state, err := s.runOfPath(r, g)
	if err != nil {
		return nil, err
	}
	values, err := httpserve.Parameters(r, "follow")
	if err != nil {
		return nil, err
	}
	follow := false
	if value, given := values["follow"]; given {
		if follow, err = strconv.ParseBool(value); err != nil {
			return nil, httpserve.Refuse(http.StatusBadRequest, "parameter follow: want true or false")
		}
	}
	out := httpserve.NewStream(w, "text/plain; charset=utf-8")
	if r.Method == http.MethodHead {
		return nil, nil
	}
	if follow {
		out.Flush()
	}
	if err := s.Runs.Output(r.Context(), state.ID, follow, out); err != nil { // a shutdown ends it, since it ends the runs
		panic(http.ErrAbortHandler) // break the connection: the caller sees that the answer is incomplete
	}
	return nil, nil
}

// watch streams changes of gates and runs that the caller may see. It ends at a shutdown,
// and when the credential of the caller is not valid any more.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, g grant) (any, error) {
	out := httpserve.NewStream(w, "text/event-stream")
	if r.Method == http.MethodHead {
		return nil, nil
	}
	gates, runs := s.Gates.Watch(r.Context()), s.Runs.Watch(r.Context())
	ticker := time.NewTicker(cmp.Or(s.Keepalive, 15*time.Second))
	defer ticker.Stop()
	for line := ": changes from now on\n\n"; ; {
		if line != "" {
			if _, err := out.Write([]byte(line)); err != nil {
				return nil, nil
			}
		}
		var gate *api.Gate
		var state *api.Run
		more := true
		line = ""
		select {
		case <-s.shutdown.Done():
			return nil, nil
		case <-ticker.C:
			line = ":\n\n"
		case gate, more = <-gates: // closed when the request ends
		case state, more = <-runs:
		}
		var err error
		if g, err = s.Guard.Renew(g); err != nil || !more {
			return nil, nil
		}
		switch {
		case gate != nil && authorizeGate(g, verbCheck, gate.Key) == nil:
			line = event(api.Notice{Gate: gate})
		case state != nil && authorizeTask(g, verbLook, state.Namespace, state.Type) == nil:
			shown := *state
			shown.URL = s.runURL(r, shown.ID)
			line = event(api.Notice{Run: &shown})
		}
	}
}

func event(notice api.Notice) string {
	text, _ := json.Marshal(notice) // texts, numbers and times always marshal
	return fmt.Sprintf("data: %s\n\n", text)
}

// getSession answers with the actor of the credential, and whether it is read-only.
func (s *Server) getSession(_ http.ResponseWriter, _ *http.Request, g grant) (any, error) {
	return s.sessionOf(g), nil
}

// sessionOf returns the session of a caller.
func (s *Server) sessionOf(g grant) any {
	scope := g.Scope()
	return api.Session{Actor: g.Actor, Required: s.Guard.Required(), ReadOnly: !g.All && (scope == nil || scope.ReadOnly)}
}
