package tester

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/answer"
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
	launch  *launch // of the k6 webhook, else nil
}

// serveTask answers the task route.
func (s *Server) serveTask(w http.ResponseWriter, r *http.Request) { s.serveJob(w, r, (*Server).job) }

// serveJob answers a request that read makes a job of. While the caller waits
// for the end of the run, which may be long, with many others, neither what was
// asked for nor a large stack is kept for it.
func (s *Server) serveJob(w http.ResponseWriter, r *http.Request, read func(*Server, http.ResponseWriter, *http.Request) (*job, error)) {
	s.answering.begin()
	defer s.answering.end()
	var p *pending
	apart(func() { p = s.begin(w, r, read) })
	if p == nil {
		return
	}
	for waits := true; waits; waits = s.again(r, p) {
		select {
		case <-p.Ended():
		case <-r.Context().Done():
		}
	}
	s.end(w, r, p)
}

// A pending is a job that is waited for.
type pending struct {
	*run.Pending
	job
	crowd crowd // of callers that wait for the same k6 run
}

// begin answers a request that is refused or not waited for, and returns nil;
// otherwise the job.
func (s *Server) begin(w http.ResponseWriter, r *http.Request, read func(*Server, http.ResponseWriter, *http.Request) (*job, error)) *pending {
	j, err := read(s, w, r)
	if err == nil && !j.request.Waits {
		err = s.start(w, r, j)
	}
	if err != nil {
		s.refuseJob(w, r, j, err)
	}
	if err != nil || !j.request.Waits {
		return nil
	}
	p := &pending{job: *j}
	if p.launch == nil {
		p.request, p.task = run.Request{}, nil
	}
	if j.name == "k6" {
		p.crowd = s.launches.enter(j.request)
	}
	if p.Pending, err = s.Runs.Join(j.request, j.task); err != nil {
		s.launches.leave(p.crowd)
		s.refuseJob(w, r, j, err)
		return nil
	}
	return p
}

// end answers with how the run ended. A caller that leaves before does not end
// it: with a checksum its verdict waits for the next equal request. Only the k6
// webhook ends it with the last of its callers.
func (s *Server) end(w http.ResponseWriter, r *http.Request, p *pending) {
	alone := s.launches.leave(p.crowd)
	state, ended := p.Run()
	switch {
	case ended:
		s.verdict(w, r, &p.job, state, p.Kept())
	case p.launch != nil && alone:
		s.Runs.Cancel(context.WithoutCancel(r.Context()), state.ID, launchActor)
		fallthrough
	default:
		s.refuseTask(w, r, answer.Refuse(http.StatusServiceUnavailable, "the request ended before the run")) // for who still hears it
	}
}

// apart calls do on a stack of its own. The caller's stays as it is, and panics
// as do did.
func apart(do func()) {
	panicked := make(chan any)
	go func() {
		defer func() {
			cause := recover()
			if cause != nil && cause != http.ErrAbortHandler {
				cause = fmt.Sprintf("%v\n%s", cause, debug.Stack())
			}
			panicked <- cause
		}()
		do()
	}()
	if cause := <-panicked; cause != nil {
		panic(cause)
	}
}

// job reads a request for a task. The first thing that is wrong decides, in the
// order of the reference: body, access, metadata, type, keys.
func (s *Server) job(w http.ResponseWriter, r *http.Request) (*job, error) {
	if r.Method != http.MethodPost {
		return nil, answer.WrongMethod(w, http.MethodPost)
	}
	p, c, err := s.payload(w, r, nil)
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
	s.over(p, api.Key{})
	maps.DeleteFunc(p.Metadata, func(key, _ string) bool { return strings.HasPrefix(key, ownPrefix) })
	switch {
	case len(p.Metadata) == 0:
		return nil, answer.Refuse(http.StatusBadRequest, "metadata not found in payload")
	case unknown != nil:
		return nil, unknown
	}
	if err := s.enabled(t); err != nil {
		return nil, err
	}
	o, err := task.ParseCommon(p.Metadata)
	if err != nil {
		return nil, &answer.Refusal{Status: http.StatusBadRequest, Err: err}
	}
	waits, err := t.waits(o, p.Metadata)
	if err != nil {
		return nil, &answer.Refusal{Status: http.StatusBadRequest, Err: err}
	}
	work, secrets, err := s.constructor(t)(p.Metadata)
	if err != nil {
		return nil, &answer.Refusal{Status: http.StatusBadRequest, Err: err}
	}
	if c.token != "" {
		secrets = append(secrets, c.token)
	}
	secrets = append(secrets, passwords(p.Metadata)...)
	slices.Sort(secrets)
	secrets = slices.Compact(secrets)
	if err := maskable(secrets); err != nil {
		return nil, err
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

// Bounds of what is looked for in the output of a run: a request is small, and
// could ask for a search that needs many times as much.
const (
	maxSecrets    = 500
	maxSecretSize = 256 << 10 // bytes of all
)

func maskable(secrets []string) error {
	size := 0
	for _, secret := range secrets {
		size += len(secret)
	}
	if len(secrets) > maxSecrets || size > maxSecretSize {
		return answer.Refuse(http.StatusBadRequest, "metadata: there are %d secrets of %d bytes in it, want at most %d of %d", len(secrets), size, maxSecrets, maxSecretSize)
	}
	return nil
}

// userinfo is a password in a URL.
var userinfo = regexp.MustCompile("://[^\\s/?#@\"'`]*:([^\\s/?#@\"'`]+)@")

// passwords returns those that stand in URLs of metadata, as they are written and
// as they are meant.
func passwords(m metadata) (found []string) {
	for _, value := range m {
		for _, match := range userinfo.FindAllStringSubmatch(value, -1) {
			found = append(found, match[1])
			if plain, err := url.PathUnescape(match[1]); err == nil && plain != match[1] {
				found = append(found, plain)
			}
		}
	}
	return found
}

// nameOf returns the type by which access is decided: of an unknown one what
// the request calls it.
func nameOf(t *taskType, m metadata) string {
	if t == nil {
		return m[typeKey]
	}
	return t.name
}

// start starts a run in the background and answers, unless the run is refused.
func (s *Server) start(w http.ResponseWriter, r *http.Request, j *job) error {
	state, err := s.Runs.Start(j.request, j.task)
	switch {
	case err != nil:
		return err
	case j.launch != nil:
		s.launched(w, r, j, state)
	case j.FailOnError && final(state.State) && state.State != api.Succeeded:
		s.verdict(w, r, j, state, true)
	case answer.Wants(r, "application/json"):
		state.URL = s.runURL(r, state.ID)
		return answer.JSON(w, http.StatusAccepted, state)
	default:
		return answer.Text(w, http.StatusAccepted, "")
	}
	return nil
}

// refuseJob answers that a job was refused.
func (s *Server) refuseJob(w http.ResponseWriter, r *http.Request, j *job, err error) {
	if j != nil && j.launch != nil && errors.Is(err, run.ErrBusy) {
		s.retryLaunch(w)
	}
	s.refuseTask(w, r, err)
}

// refuseTask answers an error of the task route, as JSON if the caller asked for it.
func (s *Server) refuseTask(w http.ResponseWriter, r *http.Request, err error) {
	if answer.Wants(r, "application/json") {
		s.refuseJSON(w, r, err)
		return
	}
	s.refuseText(w, r, err)
}

// final reports whether a run has ended.
func final(state api.RunState) bool { return state != api.Queued && state != api.Running }
