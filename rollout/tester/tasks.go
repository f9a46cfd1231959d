package tester

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
	"github.com/headgate-io/headgate/rollout/tester/task"
)

const (
	maxName  = 512 // bytes of a name, a phase and a checksum
	maxAbout = 253 // bytes of what a payload says for people
)

// A payload is the body of a webhook (specification, "Webhook call payload"),
// and what the bodies that open and close gates have besides.
type payload struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Phase     string            `json:"phase"`
	Checksum  string            `json:"checksum"`
	Metadata  map[string]string `json:"metadata"`

	Gate   string   `json:"gate"`
	Mode   api.Mode `json:"mode"`
	TTL    string   `json:"ttl"`
	Reason string   `json:"reason"`
	Actor  string   `json:"actor"`
}

// describe says what is wrong with a payload, and names the key of metadata that is no text.
func describe(text []byte, err error) error {
	var values struct{ Metadata map[string]json.RawMessage }
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if ok && wrong.Field == "metadata" && json.Unmarshal(text, &values) == nil {
		for _, key := range slices.Sorted(maps.Keys(values.Metadata)) {
			var value string
			if inner, ok := errors.AsType[*json.UnmarshalTypeError](json.Unmarshal(values.Metadata[key], &value)); ok {
				wrong = inner
				wrong.Field = "metadata." + shown(key)
				break
			}
		}
		err = wrong
	}
	return httpserve.Refuse(http.StatusBadRequest, "%s", httpserve.Describe(err))
}

// payload reads the payload of a request and says who sent it, also when the payload is
// none. Metadata does not have its token any more.
func (s *Server) payload(w http.ResponseWriter, r *http.Request) (p payload, g grant, token string, err error) {
	g, denied := s.Guard.Identify(r, "")
	if denied != nil && !missing(denied) {
		return p, g, "", denied // before the body is read
	}
	text, err := s.bodies.Read(w, r)
	if err == nil {
		if wrong := json.Unmarshal(text, &p); wrong != nil {
			err = describe(text, wrong)
		} else {
			err = p.checkNames()
		}
	}
	if err != nil {
		if own, ok := errors.AsType[*httpserve.Refusal](err); denied != nil && !(ok && own.Status == http.StatusServiceUnavailable) {
			err = denied // a caller that is not known is told no more
		}
		return payload{}, g, "", err
	}
	token, given := p.Metadata["token"]
	if delete(p.Metadata, "token"); given {
		g, denied = s.Guard.Identify(r, token)
	}
	return p, g, token, denied
}

// missing reports whether a caller was refused because it did not say who it is.
func missing(err error) bool {
	denial, ok := errors.AsType[*httpserve.Denial](err)
	return ok && denial.Kind == "missing"
}

// checkNames returns which name is too long.
func (p *payload) checkNames() error {
	for _, name := range [...]struct{ field, text string }{
		{"name", p.Name}, {"namespace", p.Namespace}, {"phase", p.Phase}, {"checksum", p.Checksum}, {"gate", p.Gate}, {"metadata gate", p.Metadata["gate"]},
	} {
		if len(name.text) > maxName {
			return httpserve.Refuse(http.StatusBadRequest, "%s: longer than %d bytes", name.field, maxName)
		}
	}
	return nil
}

// key returns the gate of a request; name is that of the URL, "" for none.
func (p *payload) key(kind api.Kind, name string) api.Key {
	return api.Key{Kind: kind, Namespace: p.Namespace, Name: p.Name, Gate: cmp.Or(name, p.Gate, p.Metadata["gate"], api.DefaultGate)}
}

// about returns what the payload says of its canary for people, bounded and
// without control characters and credentials.
func (p *payload) about() api.About {
	text := func(key string) string {
		value := p.Metadata[key]
		if value == "" { // as in most checks
			return ""
		}
		return redact.String(strings.ToValidUTF8(value[:min(len(value), maxAbout)], ""))
	}
	return api.About{
		Revision: text(rollout.MetadataRevision), Weight: text(rollout.MetadataWeight), Step: text(rollout.MetadataStep),
		Threshold: text(rollout.MetadataThreshold), Failures: text(rollout.MetadataFailures),
	}
}

// over ends the waits of a canary whose rollout is, except that at the gate that
// the payload asks.
func (s *Server) over(p payload, asked api.Key) {
	if (p.Phase == "Failed" || p.Phase == "Succeeded") && p.Metadata[rollout.MetadataTrial] != "true" {
		s.Gates.EndWaits(p.Namespace, p.Name, asked)
	}
}

// A job is a request for a task, read and allowed.
type job struct {
	task.Common
	request run.Request
	task    run.Task
	launch  bool // of the k6 webhook
}

// commands are the types that run metadata cmd, which texts of failures name.
var commands = []string{"cmd", "bash", "helm", "helmv3", "kubectl"}

// task answers the task route.
func (s *Server) task(w http.ResponseWriter, r *http.Request) error {
	p, g, token, err := s.payload(w, r)
	if err != nil {
		return err
	}
	j, err := s.job(p, g, token)
	if err != nil {
		return err
	}
	return s.run(w, r, j)
}

// job makes a job of a payload. The first thing that is wrong decides, in the
// order of the reference: body, access, metadata, type, keys.
func (s *Server) job(p payload, g grant, token string) (*job, error) {
	given, is := p.Metadata["type"]
	if !is {
		given = "cmd"
	}
	kind := api.TypeName(given)
	if err := mayTask(g, toRun, p.Namespace, cmp.Or(kind, given)); err != nil { // of an unknown one what the request calls it
		return nil, err
	}
	s.over(p, api.Key{})
	maps.DeleteFunc(p.Metadata, func(key, _ string) bool { return strings.HasPrefix(key, "headgate.") }) // what tells about the canary: no test gets it
	switch {
	case len(p.Metadata) == 0:
		return nil, httpserve.Refuse(http.StatusBadRequest, "metadata not found in payload")
	case kind == "":
		return nil, httpserve.Refuse(http.StatusBadRequest, "unknown task type %s", shown(given))
	case s.Types != nil && !slices.ContainsFunc(s.Types, func(name string) bool { return api.TypeName(name) == kind }):
		return nil, httpserve.Refuse(http.StatusForbidden, "type %s is not enabled in this test runner", kind)
	}
	common, err := task.ParseCommon(kind, p.Metadata)
	var work run.Task
	var secrets []string
	if err == nil {
		switch kind {
		case "ngrinder":
			work, secrets, err = s.Servers.NGrinder(p.Metadata)
		case "concord":
			work, secrets, err = s.Servers.Concord(p.Metadata)
		default:
			work, secrets, err = s.Tools.Task(kind, p.Metadata)
		}
	}
	if err != nil {
		return nil, &httpserve.Refusal{Status: http.StatusBadRequest, Err: err}
	}
	if secrets, err = maskable(secrets, p.Metadata, token); err != nil {
		return nil, err
	}
	delete(p.Metadata, "type") // either name of a type asks for the same run
	return &job{Common: common, task: work, request: run.Request{
		Namespace: p.Namespace, Name: p.Name, Phase: p.Phase, Checksum: p.Checksum, Type: kind, Metadata: p.Metadata, Secrets: secrets,
		FailOnError: common.FailOnError, Timeout: common.Timeout, OutputLimit: common.OutputLimit, Actor: g.Actor,
	}}, nil
}

// Bounds of what is looked for in the output of a run: a request is small, and
// could ask for a search that needs many times as much.
const (
	maxSecrets    = 500
	maxSecretSize = 256 << 10 // bytes of all
)

// userinfo is a password in a URL.
var userinfo = regexp.MustCompile("://[^\\s/?#@\"'`]*:([^\\s/?#@\"'`]+)@")

// maskable returns the secrets of a request: those given, the token, and the passwords
// in URLs of metadata, as they are written and as they are meant. Too many are refused.
func maskable(secrets []string, m map[string]string, token string) ([]string, error) {
	if token != "" {
		secrets = append(secrets, token)
	}
	for _, value := range m {
		for _, match := range userinfo.FindAllStringSubmatch(value, -1) {
			secrets = append(secrets, match[1])
			if plain, err := url.PathUnescape(match[1]); err == nil {
				secrets = append(secrets, plain)
			}
		}
	}
	slices.Sort(secrets)
	secrets = slices.Compact(secrets)
	if size := len(strings.Join(secrets, "")); len(secrets) > maxSecrets || size > maxSecretSize {
		return nil, httpserve.Refuse(http.StatusBadRequest, "metadata: there are %d secrets of %d bytes in it, want at most %d of %d", len(secrets), size, maxSecrets, maxSecretSize)
	}
	return secrets, nil
}

// Callers keep 64 KiB of an answer.
const (
	maxFailure = 64 << 10
	maxCommand = 4 << 10 // bytes of a command in the text of a failure
	maxReason  = 8 << 10
)

// final reports whether a run has ended.
func final(state api.RunState) bool { return state != api.Queued && state != api.Running }

// run starts a job, and answers with how it ended if that is waited for. A caller that
// leaves before does not end it: with a checksum its verdict waits for the next equal
// request. Only the k6 webhook ends it with the last of its callers, and also answers for
// a run that goes on. When a verdict has been written to a caller that is still there it is
// delivered: a caller that has all of it and asks again gets a new run.
func (s *Server) run(w http.ResponseWriter, r *http.Request, j *job) error {
	if !s.answering.TryAcquire(1) {
		return run.ErrClosed
	}
	defer s.answering.Release(1)
	asked := time.Now()
	var state api.Run
	var err error
	if j.Wait {
		state, err = s.Runs.Wait(r.Context(), j.request, j.task)
		if err != nil && r.Context().Err() != nil {
			return httpserve.Refuse(http.StatusServiceUnavailable, "the request ended before the run") // for a caller that still hears it
		}
	} else {
		state, err = s.Runs.Start(j.request, j.task)
	}
	if err != nil {
		return err
	}
	if j.launch && !j.Wait {
		state = s.launched(r, state)
	}
	status, note, ended := http.StatusOK, "", final(state.State)
	accepted := !j.Wait && !j.launch && !(j.FailOnError && ended && state.State != api.Succeeded)
	switch {
	case accepted:
		status = http.StatusAccepted
	case state.State == api.Succeeded || !ended:
	case state.State == api.Stopped: // it has no verdict: it is to be asked for again
		w.Header().Set("Retry-After", httpserve.RetryAfter)
		status = http.StatusServiceUnavailable
	case j.launch:
		status = http.StatusBadRequest
	default:
		status = cmp.Or(s.FailureStatus, http.StatusUnprocessableEntity)
	}
	if at := state.Ended.UTC().Format(time.RFC3339); !accepted && ended && state.Ended.Before(asked) {
		w.Header().Set("Headgate-Run-Ended", at)
		note = "the run ended before this request, at " + at
	}
	switch {
	case httpserve.Wants(r, "application/json"):
		state.URL = s.runURL(r, state.ID)
		err = httpserve.JSON(w, status, state)
	case accepted:
		err = httpserve.Text(w, status, "")
	default:
		err = httpserve.Text(w, status, j.text(state, note))
	}
	if err == nil && r.Context().Err() == nil && !accepted {
		s.Runs.Deliver(state.ID)
	}
	return err
}

// text returns the body of the answer, with a note, which may be "", where
// the output does not stand alone.
func (j *job) text(state api.Run, note string) string {
	if state.State == api.Succeeded || !final(state.State) {
		if j.ReturnOutput || j.launch {
			return state.Output
		}
		return note
	}
	reason := middle(cmp.Or(state.Reason, string(state.State)), maxReason)
	if note != "" {
		reason += " (" + note + ")"
	}
	head, tail := reason+"\n", ""
	switch {
	case j.launch:
		head = "k6 failed: " + reason + "\n"
	case slices.Contains(commands, state.Type):
		head, tail = "command "+middle(state.Metadata["cmd"], maxCommand)+" failed: ", ": "+reason
	case state.Output == "":
		return reason
	}
	return head + middle(state.Output, maxFailure-len(head)-len(tail)) + tail
}

// middle returns a text of at most most bytes, which are some hundreds: its beginning and its end.
func middle(text string, most int) string {
	if len(text) <= most {
		return text
	}
	mark := fmt.Sprintf("\n[%d bytes left out]\n", len(text)-most)
	half := (most - len(mark)) / 2
	return strings.ToValidUTF8(text[:half]+mark+text[len(text)-half:], "") // without parts of characters
}

// The wire of the k6 webhook: every failure is 400 with a text.
const (
	launchDelay   = 2 * time.Minute  // after a failure, in which further calls fail: metadata min_failure_delay
	launchStart   = 20 * time.Second // for a test that no caller waits for to start
	launchStarted = "output:"        // what k6 writes then
)

// launch answers POST /launch-test. Keys of metadata for chats
// (slack_channels, notification_context) have no effect.
func (s *Server) launch(w http.ResponseWriter, r *http.Request) error {
	p, g, token, err := s.payload(w, r)
	if err == nil {
		err = mayTask(g, toRun, p.Namespace, "k6")
	}
	if err != nil {
		return err
	}
	for _, required := range [...]struct{ name, value string }{
		{"name", p.Name}, {"namespace", p.Namespace}, {"phase", p.Phase}, {"metadata script", p.Metadata["script"]},
	} {
		if required.value == "" {
			return httpserve.Refuse(http.StatusBadRequest, "%s is missing in payload", required.name)
		}
	}
	p.Metadata["type"] = "k6"
	delay, err := api.ParseInterval(p.Metadata["min_failure_delay"], launchDelay)
	if err != nil {
		return httpserve.Refuse(http.StatusBadRequest, "metadata min_failure_delay: %w", err)
	}
	j, err := s.job(p, g, token)
	if err != nil {
		return err
	}
	last := s.Runs.Runs(api.Filter{Type: "k6", Namespace: p.Namespace, Name: p.Name, Limit: 1}, func(r api.Run) bool { return r.Phase == p.Phase && r.Delivered })
	if len(last) > 0 && last[0].State != api.Succeeded && last[0].State != api.Stopped {
		if left := delay - time.Since(last[0].Ended); left > 0 {
			return httpserve.Refuse(http.StatusBadRequest, "the last test failed; further calls fail for %s (min_failure_delay)", left.Round(time.Second))
		}
	}
	j.launch, j.request.Abandon = true, true
	return s.run(w, r, j)
}

// launched returns a test that no caller waits for, once it has started.
func (s *Server) launched(r *http.Request, state api.Run) api.Run {
	ctx, cancel := context.WithTimeout(r.Context(), launchStart)
	defer cancel()
	out, in := io.Pipe()
	defer out.Close()
	go func() { in.CloseWithError(s.Runs.Output(ctx, state.ID, true, in)) }()
	for lines := bufio.NewScanner(out); lines.Scan() && !strings.Contains(lines.Text(), launchStarted); {
	}
	if now, err := s.Runs.Run(state.ID); err == nil {
		return now
	}
	return state
}
