package tester

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
	"github.com/headgate-io/headgate/rollout/tester/task"
)

// A job is a request for a task, read and allowed.
type job struct {
	*taskType
	task.Common
	request run.Request
	task    run.Task
	delay   time.Duration // of the k6 webhook, after a failure
}

// serveTask answers the task route.
func (s *Server) serveTask(w http.ResponseWriter, r *http.Request) {
	j, err := s.job(w, r)
	switch {
	case err != nil:
		s.refuseTask(w, r, err)
	case j.request.Waits:
		s.wait(w, r, j)
	default:
		s.start(w, r, j)
	}
}

// job reads a request for a task. The first thing that is wrong decides, in the
// order of the reference: body, access, metadata, type, keys.
func (s *Server) job(w http.ResponseWriter, r *http.Request) (*job, error) {
	if r.Method != http.MethodPost {
		return nil, wrongMethod(w, http.MethodPost)
	}
	p, c, err := s.payload(w, r)
	if err != nil {
		return nil, err
	}
	return s.prepare(p, c)
}

// prepare makes a job of a payload.
func (s *Server) prepare(p payload, c caller) (*job, error) {
	t, unknown := typeOf(p.Metadata)
	if err := c.Run(p.Namespace, nameOf(t, p.Metadata)); err != nil {
		return nil, err
	}
	switch {
	case len(p.Metadata) == 0:
		return nil, refuse(http.StatusBadRequest, "metadata not found in payload")
	case unknown != nil:
		return nil, unknown
	}
	if err := s.enabled(t); err != nil {
		return nil, err
	}
	o, err := task.ParseCommon(p.Metadata)
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, err}
	}
	waits, err := t.waits(o, p.Metadata)
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, err}
	}
	work, secrets, err := s.constructor(t)(p.Metadata)
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, err}
	}
	if c.token != "" {
		secrets = append(secrets, c.token)
	}
	delete(p.Metadata, typeKey) // either name of a type asks for the same run
	j := &job{taskType: t, Common: o, task: work, request: run.Request{
		Namespace: p.Namespace, Name: p.Name, Phase: p.Phase, Checksum: p.Checksum,
		Type: t.name, Metadata: p.Metadata, Secrets: secrets, Waits: waits, FailOnError: o.FailOnError,
		Timeout: o.Timeout, OutputLimit: o.OutputLimit, Actor: c.Actor,
	}}
	if o.LogOutput {
		j.task = s.logged(j)
	}
	return j, nil
}

// nameOf returns the type by which access is decided: of an unknown one what
// the request calls it.
func nameOf(t *taskType, m metadata) string {
	if t == nil {
		return m[typeKey]
	}
	return t.name
}

// start answers for a run in the background.
func (s *Server) start(w http.ResponseWriter, r *http.Request, j *job) {
	state, err := s.Runs.Start(j.request, j.task)
	if err != nil {
		s.refuseTask(w, r, err)
		return
	}
	if j.FailOnError && final(state.State) && state.State != api.Succeeded {
		s.verdict(w, r, j, state)
		return
	}
	if wantsJSON(r) {
		state.URL = s.runURL(r, state.ID)
		reply(w, http.StatusAccepted, state)
		return
	}
	text(w, http.StatusAccepted, "")
}

// wait answers with how a run ended. A caller that leaves before does not end
// it: its verdict waits for the next equal request.
func (s *Server) wait(w http.ResponseWriter, r *http.Request, j *job) {
	state, _, err := s.await(r.Context(), j)
	if err != nil {
		s.refuseTask(w, r, s.left(r, err))
		return
	}
	s.verdict(w, r, j, state)
}

// await waits for the end of the run of a job, which is forgotten: while many
// callers wait, one run alone needs what they asked for. Alone reports whether
// no other caller waits for the same k6 run.
func (s *Server) await(ctx context.Context, j *job) (state api.Run, alone bool, err error) {
	request, work := j.request, j.task
	j.request, j.task = run.Request{}, nil
	if j.name == "k6" {
		id := s.launches.enter(request)
		defer func() { alone = s.launches.leave(id) }()
	}
	state, err = s.Runs.Wait(ctx, request, work)
	return state, false, err
}

// left turns the end of a request into a refusal, for those who still hear it.
func (s *Server) left(r *http.Request, err error) error {
	if r.Context().Err() != nil && !errors.Is(err, run.ErrClosed) {
		return refuse(http.StatusServiceUnavailable, "the request ended before the run")
	}
	return err
}

// refuseTask answers an error of the task route, as JSON if the caller asked for it.
func (s *Server) refuseTask(w http.ResponseWriter, r *http.Request, err error) {
	if wantsJSON(r) {
		s.refuseJSON(w, r, err)
		return
	}
	s.refuseText(w, r, err)
}

// final reports whether a run has ended.
func final(state api.RunState) bool { return state != api.Queued && state != api.Running }
