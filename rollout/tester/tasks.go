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
	maxName        = 512 // bytes of a name, a phase and a checksum
	maxDisplayText = 253 // bytes of each text that a payload has for people
)

// A payload is the body of a webhook (specification, "Webhook call payload"),
// with the additional fields of requests that open and close gates.
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

// decodeError returns the refusal of a payload that cannot be decoded. It names the key of
// metadata whose value is not a string.
func decodeError(text []byte, err error) error {
	var values struct{ Metadata map[string]json.RawMessage }
	typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if ok && typeErr.Field == "metadata" && json.Unmarshal(text, &values) == nil {
		for _, key := range slices.Sorted(maps.Keys(values.Metadata)) {
			var value string
			if inner, ok := errors.AsType[*json.UnmarshalTypeError](json.Unmarshal(values.Metadata[key], &value)); ok {
				typeErr = inner
				typeErr.Field = "metadata." + answerExcerpt(key)
				break
			}
		}
		err = typeErr
	}
	return httpserve.Refuse(http.StatusBadRequest, "%s", httpserve.Describe(err))
}

// payload reads the payload of a request and authenticates the caller, even if the payload
// is invalid. It returns the token of the metadata, and removes it from there.
func (s *Server) payload(w http.ResponseWriter, r *http.Request) (p payload, g grant, token string, err error) {
	g, denied := s.Guard.Identify(r, "")
	if denied != nil && !lacksCredential(denied) {
		return p, g, "", denied // before the body is read
	}
	text, err := s.bodies.Read(w, r)
	if err == nil {
		if jsonErr := json.Unmarshal(text, &p); jsonErr != nil {
			err = decodeError(text, jsonErr)
		} else {
			err = p.checkNames()
		}
	}
	if err != nil {
		if refusal, ok := errors.AsType[*httpserve.Refusal](err); denied != nil && !(ok && refusal.Status == http.StatusServiceUnavailable) {
			err = denied // a caller without a credential learns nothing about its body
		}
		return payload{}, g, "", err
	}
	token, given := p.Metadata["token"]
	if delete(p.Metadata, "token"); given {
		g, denied = s.Guard.Identify(r, token)
	}
	return p, g, token, denied
}

// lacksCredential reports whether a request was refused because it has no credential.
func lacksCredential(err error) bool {
	denial, ok := errors.AsType[*httpserve.Denial](err)
	return ok && denial.Kind == "missing"
}

// checkNames returns an error if a name is too long.
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

// key returns the gate of a request; name is the gate in the URL, "" for none.
func (p *payload) key(kind api.Kind, name string) api.Key {
	return api.Key{Kind: kind, Namespace: p.Namespace, Name: p.Name, Gate: cmp.Or(name, p.Gate, p.Metadata["gate"], api.DefaultGate)}
}

// displayText returns a text of the metadata that is shown to people, shortened and without
// control characters and credentials.
func (p *payload) displayText(key string) string {
	value := p.Metadata[key]
	if value == "" { // as in most checks
		return ""
	}
	return redact.String(strings.ToValidUTF8(value[:min(len(value), maxDisplayText)], ""))
}

// endWaits ends the waits of the canary if its rollout is over, except a wait at checked, the
// gate that the request checks.
func (s *Server) endWaits(p payload, checked api.Key) {
	if (p.Phase == "Failed" || p.Phase == "Succeeded") && p.Metadata[rollout.MetadataTrial] != "true" {
		s.Gates.EndWaits(p.Namespace, p.Name, checked)
	}
}

// A job is a request for a task, parsed and authorized.
type job struct {
	task.Common
	request run.Request
	task    run.Task
	launch  bool // it came by the k6 webhook
}

// commands are the types that run metadata cmd: the text of a failure names the command.
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

// job turns a payload into a job. It checks in the order of the reference
// implementation: body, access, metadata, type, keys. The first error is returned.
func (s *Server) job(p payload, g grant, token string) (*job, error) {
	given, is := p.Metadata["type"]
	if !is {
		given = "cmd"
	}
	kind := api.TypeName(given)
	if err := authorizeTask(g, verbRun, p.Namespace, cmp.Or(kind, given)); err != nil { // an unknown type by its name in the request
		return nil, err
	}
	s.endWaits(p, api.Key{})
	maps.DeleteFunc(p.Metadata, func(key, _ string) bool { return strings.HasPrefix(key, "headgate.") }) // facts about the canary, which tests do not get
	switch {
	case len(p.Metadata) == 0:
		return nil, httpserve.Refuse(http.StatusBadRequest, "metadata not found in payload")
	case kind == "":
		return nil, httpserve.Refuse(http.StatusBadRequest, "unknown task type %s", answerExcerpt(given))
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
	if secrets, err = collectSecrets(secrets, p.Metadata, token); err != nil {
		return nil, err
	}
	delete(p.Metadata, "type") // both names of a type ask for the same run
	return &job{Common: common, task: work, request: run.Request{
		Namespace: p.Namespace, Name: p.Name, Phase: p.Phase, Checksum: p.Checksum, Type: kind, Metadata: p.Metadata, Secrets: secrets,
		FailOnError: common.FailOnError, Timeout: common.Timeout, OutputLimit: common.OutputLimit, Actor: g.Actor,
	}}, nil
}

// Bounds of the secrets that are masked in the output of a run: without them a small
// request could demand an expensive search.
const (
	maxSecrets    = 500
	maxSecretSize = 256 << 10 // bytes of all
)

// userinfo matches a password in a URL.
var userinfo = regexp.MustCompile("://[^\\s/?#@\"'`]*:([^\\s/?#@\"'`]+)@")

// collectSecrets returns the secrets of a request: those given, the token, and the passwords
// in URLs of metadata, both as written and decoded. It refuses too many.
func collectSecrets(secrets []string, m map[string]string, token string) ([]string, error) {
	if token != "" {
		secrets = append(secrets, token)
	}
	for _, value := range m {
		for _, match := range userinfo.FindAllStringSubmatch(value, -1) {
			secrets = append(secrets, match[1])
			if decoded, err := url.PathUnescape(match[1]); err == nil {
				secrets = append(secrets, decoded)
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

// Bounds of the text of a failure: callers keep 64 KiB of an answer.
const (
	maxFailure = 64 << 10
	maxCommand = 4 << 10 // bytes of a command in the text of a failure
	maxReason  = 8 << 10
)

// final reports whether a run has ended.
func final(state api.RunState) bool { return state != api.Queued && state != api.Running }

// run starts a job and, if the caller waits, answers with how it ended. A caller that
// disconnects does not end the run: if the request has a checksum, the verdict is kept for
// the next equal request. Only for the k6 webhook, the run is cancelled when its last caller
// disconnects; that webhook may also be answered while the run goes on. A verdict that was
// written to a caller that is still connected is delivered: the next request starts a new run.
func (s *Server) run(w http.ResponseWriter, r *http.Request, j *job) error {
	if !s.taskRequests.TryAcquire(1) {
		return run.ErrClosed
	}
	defer s.taskRequests.Release(1)
	requestedAt := time.Now()
	var state api.Run
	var err error
	if j.Wait {
		state, err = s.Runs.Wait(r.Context(), j.request, j.task)
		if err != nil && r.Context().Err() != nil {
			return httpserve.Refuse(http.StatusServiceUnavailable, "the request ended before the run") // if the caller still reads
		}
	} else {
		state, err = s.Runs.Start(j.request, j.task)
	}
	if err != nil {
		return err
	}
	if j.launch && !j.Wait {
		state = s.awaitLaunch(r, state)
	}
	status, note, ended := http.StatusOK, "", final(state.State)
	accepted := !j.Wait && !j.launch && !(j.FailOnError && ended && state.State != api.Succeeded)
	switch {
	case accepted:
		status = http.StatusAccepted
	case state.State == api.Succeeded || !ended:
	case state.State == api.Stopped: // it has no verdict: the caller retries
		w.Header().Set("Retry-After", httpserve.RetryAfter)
		status = http.StatusServiceUnavailable
	case j.launch:
		status = http.StatusBadRequest
	default:
		status = cmp.Or(s.FailureStatus, http.StatusUnprocessableEntity)
	}
	if at := state.Ended.UTC().Format(time.RFC3339); !accepted && ended && state.Ended.Before(requestedAt) {
		w.Header().Set("Headgate-Run-Ended", at)
		note = "the run ended before this request, at " + at
	}
	switch {
	case httpserve.Accepts(r, "application/json"):
		state.URL = s.runURL(r, state.ID)
		err = httpserve.JSON(w, status, state)
	case accepted:
		err = httpserve.Text(w, status, "")
	default:
		err = httpserve.Text(w, status, j.answerText(state, note))
	}
	if err == nil && r.Context().Err() == nil && !accepted {
		s.Runs.Deliver(state.ID)
	}
	return err
}

// answerText returns the body of the answer. It contains the note, which may be "", unless the
// body is the output alone.
func (j *job) answerText(state api.Run, note string) string {
	if state.State == api.Succeeded || !final(state.State) {
		if j.ReturnOutput || j.launch {
			return state.Output
		}
		return note
	}
	reason := cutMiddle(cmp.Or(state.Reason, string(state.State)), maxReason)
	if note != "" {
		reason += " (" + note + ")"
	}
	head, tail := reason+"\n", ""
	switch {
	case j.launch:
		head = "k6 failed: " + reason + "\n"
	case slices.Contains(commands, state.Type):
		head, tail = "command "+cutMiddle(state.Metadata["cmd"], maxCommand)+" failed: ", ": "+reason
	case state.Output == "":
		return reason
	}
	return head + cutMiddle(state.Output, maxFailure-len(head)-len(tail)) + tail
}

// cutMiddle shortens text to at most maxLen bytes, by cutting out its middle. maxLen must be at
// least some hundreds.
func cutMiddle(text string, maxLen int) string {
	if len(text) <= maxLen {
		return text
	}
	mark := fmt.Sprintf("\n[%d bytes left out]\n", len(text)-maxLen)
	half := (maxLen - len(mark)) / 2
	return strings.ToValidUTF8(text[:half]+mark+text[len(text)-half:], "") // drop cut characters
}

// The constants of the k6 webhook, which answers every failure with 400 and a text.
const (
	launchDelay        = 2 * time.Minute  // how long calls fail after a failed test; metadata min_failure_delay overrides it
	launchStartTimeout = 20 * time.Second // limit of the wait for the start of a background test
	launchStartMark    = "output:"        // k6 writes it when it starts the test
)

// launch answers POST /launch-test. Keys of metadata for chats
// (slack_channels, notification_context) have no effect.
func (s *Server) launch(w http.ResponseWriter, r *http.Request) error {
	p, g, token, err := s.payload(w, r)
	if err == nil {
		err = authorizeTask(g, verbRun, p.Namespace, "k6")
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

// awaitLaunch waits until a background test has started, for launchStartTimeout at most, and returns
// its run.
func (s *Server) awaitLaunch(r *http.Request, state api.Run) api.Run {
	ctx, cancel := context.WithTimeout(r.Context(), launchStartTimeout)
	defer cancel()
	out, in := io.Pipe()
	defer out.Close()
	go func() { in.CloseWithError(s.Runs.Output(ctx, state.ID, true, in)) }()
	for lines := bufio.NewScanner(out); lines.Scan() && !strings.Contains(lines.Text(), launchStartMark); {
	}
	if now, err := s.Runs.Run(state.ID); err == nil {
		return now
	}
	return state
}
