package remote

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

const (
	startGrace   = 5 * time.Second // that a request which starts something goes on after its run was told to end
	stopTimeout  = 10 * time.Second
	minInterval  = 100 * time.Millisecond
	patience     = time.Minute // with a server that does not tell how it is going
	minAttempts  = 3
	longestPause = time.Minute // that a server may ask for
)

// A job is something that a server is to do.
type job struct {
	servers  *Servers
	to       server
	header   http.Header
	secrets  []string
	interval time.Duration
	timeout  time.Duration     // of all of it; 0 for that of the run alone
	endings  map[string]string // the states at the end, and how it failed then, "" for success
	kind     kind

	subject, stopping, stopped string // formats of what is said of an ID
}

// A kind of server starts, tells about and ends a job in its own way.
type kind interface {
	start(ctx context.Context, s *session) (id, said string, err error)
	state(ctx context.Context, s *session, id string) (state, message string, err error)
	stop(id string) (method string, at *url.URL)
}

// Run starts the job, waits for its end, and ends it when ctx ends first.
func (j *job) Run(ctx context.Context, out io.Writer) error {
	s := j.servers.open(j)
	defer s.client.CloseIdleConnections()
	starting, cancel := context.WithCancelCause(context.WithoutCancel(ctx)) // a start is not given up in the middle: without the id the test could not be stopped
	context.AfterFunc(ctx, func() { time.AfterFunc(startGrace, func() { cancel(context.Cause(ctx)) }) })
	id, said, err := j.kind.start(starting, s)
	cancel(nil)
	if err != nil {
		return err
	}
	fmt.Fprint(out, said)
	state, message, err := j.wait(ctx, s, id, out)
	if err == nil {
		if words := j.endings[state]; words != "" {
			err = fmt.Errorf(j.subject+" %s", id, strings.TrimSpace(words+" "+message))
		}
		return err
	}
	last, end := context.WithTimeoutCause(context.WithoutCancel(ctx), stopTimeout, fmt.Errorf("no answer within %s", stopTimeout))
	defer end()
	method, at := j.kind.stop(id)
	if _, failed := s.send(last, method, at, "", nil); failed != nil {
		fmt.Fprintf(out, j.stopping+": %v\n", id, failed)
	} else {
		fmt.Fprintf(out, j.stopped+"\n", id)
	}
	return err
}

// errLate is the end of the time of a job; the server is asked once more then.
var errLate = errors.New("late")

// wait returns the state at the end. The error says that there is none: ctx
// ended, or the server does not tell.
func (j *job) wait(ctx context.Context, s *session, id string, out io.Writer) (state, message string, err error) {
	within := ctx
	if j.timeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeoutCause(ctx, j.timeout, errLate)
		defer cancel()
	}
	state, message, err = j.poll(within, s, id, out)
	if errors.Is(err, errLate) && ctx.Err() == nil {
		last, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()
		state, message, err = j.kind.state(last, s, id)
		if _, ended := j.endings[state]; err == nil && ended {
			return state, message, nil
		}
		return "", "", fmt.Errorf("concord process timed out, after %s seconds", strconv.FormatFloat(j.timeout.Seconds(), 'f', -1, 64))
	}
	if err != nil {
		err = fmt.Errorf(j.subject+": %w", id, err)
	}
	return state, message, err
}

// poll asks for the state until it is one of the end.
func (j *job) poll(ctx context.Context, s *session, id string, out io.Writer) (string, string, error) {
	var failing time.Time // since when
	failures, shown, pause := 0, "", j.interval
	for {
		if err := retry.Sleep(ctx, pause); err != nil {
			return "", "", context.Cause(ctx)
		}
		pause = j.interval
		state, message, err := j.kind.state(ctx, s, id)
		switch {
		case ctx.Err() != nil:
			return "", "", context.Cause(ctx)
		case err == nil:
			failures = 0
			if said := strings.TrimSpace(state + " " + message); said != shown {
				fmt.Fprintf(out, "state %s\n", said)
				shown = said
			}
			if _, ended := j.endings[state]; ended {
				return state, message, nil
			}
			continue
		case final(err):
			return "", "", err
		}
		if failures++; failures == 1 {
			failing = time.Now()
			fmt.Fprintf(out, "%v\n", err)
		}
		if failures >= minAttempts && time.Since(failing) >= patience {
			return "", "", fmt.Errorf("given up after %d failures in a row: %w", failures, err)
		}
		if r, ok := errors.AsType[*refusal](err); ok {
			pause = max(pause, min(r.after, longestPause))
		}
	}
}

// trimmed returns values of metadata without white space around them.
func trimmed(metadata map[string]string) func(key string) string {
	return func(key string) string { return strings.TrimSpace(metadata[key]) }
}

// How tests of nGrinder end: before 3.5 and since.
var loadEndings = map[string]string{
	"FINISHED":              "",
	"FINISHED_WITH_WARNING": "",
	"STOP_BY_ERROR":         "stopped by an error (STOP_BY_ERROR)",
	"STOP_ON_ERROR":         "stopped by an error (STOP_ON_ERROR)",
	"CANCELED":              "was cancelled (CANCELED)",
	"UNKNOWN":               "ended in an unknown state (UNKNOWN)",
}

// A loadTest is a test of nGrinder that is to be cloned and started.
type loadTest struct {
	to    server
	clone int64
}

func (s *Servers) ngrinder(metadata map[string]string) (j *job, secrets []string, err error) {
	m := trimmed(metadata)
	if m("passwd") != "" {
		secrets = []string{m("passwd")}
	}
	if slices.Contains([]string{m("server") + s.LoadURL, m("clone"), m("username"), m("passwd") + m("passwdFrom")}, "") {
		return nil, secrets, errors.New("server, clone, username and passwd are required metadata")
	}
	t := &loadTest{}
	if t.to, err = s.server(m("server"), s.LoadURL); err != nil {
		return nil, secrets, fmt.Errorf("invalid url: %w", err)
	}
	if t.clone, err = strconv.ParseInt(m("clone"), 10, 64); err != nil || t.clone <= 0 {
		return nil, secrets, fmt.Errorf("metadata clone must be integer: %s is none above 0", strconv.QuoteToASCII(bounded(m("clone"), nil)))
	}
	password, err := s.password(m("passwd"), m("passwdFrom"))
	if err != nil {
		return nil, secrets, err
	}
	secrets = append(secrets, password)
	if strings.ContainsFunc(m("username"), func(r rune) bool { return r == ':' || isControl(r) }) {
		return nil, secrets, errors.New("metadata username must not have a colon or control characters")
	}
	interval, err := api.ParseInterval(m("pollInterval"), time.Second)
	if err != nil {
		return nil, secrets, fmt.Errorf("metadata pollInterval: %w", err)
	}
	return &job{
		servers: s, to: t.to, secrets: secrets, interval: max(interval, minInterval), endings: loadEndings, kind: t,
		header:  http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(m("username")+":"+password))}},
		subject: "ngrinder: test %s", stopping: "ngrinder: stop test %s", stopped: "ngrinder: stopped test %s",
	}, secrets, nil
}

// password reads the one of metadata. What a shell adds at its end does not count.
func (s *Servers) password(encoded, file string) (string, error) {
	switch {
	case encoded != "" && file != "":
		return "", errors.New("metadata passwd and passwdFrom exclude each other")
	case file != "":
		password, err := s.key(file)
		if err != nil {
			err = fmt.Errorf("metadata passwdFrom is invalid: %w", err)
		}
		return password, err
	}
	text, err := base64.StdEncoding.DecodeString(encoded)
	password := strings.TrimRight(string(text), "\r\n")
	if err == nil && password == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		return "", fmt.Errorf("metadata password is invalid: %w", err)
	}
	return password, nil
}

// start clones and starts the test. Servers before 3.5 take the request without a body
// as well, and some only with GET.
func (t *loadTest) start(ctx context.Context, s *session) (id, said string, err error) {
	at := t.to.at(fmt.Sprintf("perftest/api/%d/clone_and_start", t.clone))
	a, err := s.send(ctx, http.MethodPost, at, "application/json", []byte("{}"))
	if r, ok := errors.AsType[*refusal](err); ok && (r.status == 400 || r.status == 405 || r.status == 415) {
		var again error
		if a, again = s.send(ctx, http.MethodGet, at, "", nil); again == nil {
			err = nil
		} else {
			err = fmt.Errorf("%w; and then %w", err, again)
		}
	}
	var reply struct{ ID json.RawMessage }
	if err == nil {
		err = s.decode(a, &reply)
	}
	if n, wrong := strconv.ParseInt(string(reply.ID), 10, 64); err == nil && (wrong != nil || n <= 0) {
		err = errors.New("the answer has no number of a test: one may have been started all the same")
	}
	if err != nil {
		return "", "", fmt.Errorf("ngrinder: start a clone of test %d: %w", t.clone, err)
	}
	id = string(reply.ID)
	return id, fmt.Sprintf("ngrinder: started test %s, a clone of test %d, on %s\nresult %s\n", id, t.clone, t.to.url, t.to.at("perftest/"+id)), nil
}

// state reads the state of a test: status is a list whose first item has
// status_id (before 3.5), an object that has a name, or text.
func (t *loadTest) state(ctx context.Context, s *session, id string) (state, message string, err error) {
	var reply struct{ Message, Status any }
	a, err := s.send(ctx, http.MethodGet, t.to.at("perftest/api/"+id+"/status"), "", nil)
	if err == nil {
		err = s.decode(a, &reply)
	}
	if err != nil {
		return "", "", err
	}
	switch status := reply.Status.(type) {
	case string:
		state = status
	case map[string]any:
		state, _ = status["name"].(string)
	case []any:
		if len(status) > 0 {
			item, _ := status[0].(map[string]any)
			state, _ = item["status_id"].(string)
		}
	}
	if state = bounded(state, s.secrets); state == "" {
		return "", "", errors.New("the answer has no status of the test")
	}
	message, _ = reply.Message.(string)
	return state, bounded(message, s.secrets), nil
}

func (t *loadTest) stop(id string) (string, *url.URL) {
	at := t.to.at("perftest/api/" + id)
	at.RawQuery = "action=stop"
	return http.MethodPut, at
}

// How processes of Concord end.
var processEndings = map[string]string{"FINISHED": "", "FAILED": "failed", "CANCELLED": "was cancelled", "TIMED_OUT": "timed out"}

// A process is one of Concord that is to be started.
type process struct {
	to     server
	fields [][2]string
}

func (s *Servers) concord(metadata map[string]string) (j *job, secrets []string, err error) {
	m := trimmed(metadata)
	required := func(key string) error { return fmt.Errorf("`%s` is required with type concord", key) }
	for _, key := range []string{"server", "org", "project", "repo", "entrypoint", "apiKeyPath"} {
		if m(key) == "" && (key != "server" || s.ProcessURL == "") {
			return nil, nil, required(key)
		}
	}
	key, err := s.key(m("apiKeyPath"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("`apiKeyPath` file doesn't exist %s", bounded(m("apiKeyPath"), nil))
	case err != nil:
		return nil, nil, fmt.Errorf("`apiKeyPath`: %w", err)
	}
	secrets = []string{key}
	p := &process{fields: [][2]string{
		{"org", metadata["org"]}, {"project", metadata["project"]}, {"repo", metadata["repo"]},
		{"entryPoint", metadata["entrypoint"]}, {"arguments.endpoint", metadata["endpoint"]},
	}}
	j = &job{
		servers: s, header: http.Header{"Authorization": {key}}, secrets: secrets, endings: processEndings, kind: p,
		subject: "concord instanceID: %s", stopping: "concord: cancel process %s", stopped: "concord: cancelled process %s",
	}
	if m("endpoint") == "" {
		return nil, secrets, required("endpoint")
	}
	interval, err := api.ParseInterval(m("pollInterval"), 5*time.Second)
	if err != nil {
		return nil, secrets, fmt.Errorf("`pollInterval`: %w", err)
	}
	j.interval = max(interval, minInterval)
	if j.timeout, err = api.ParseInterval(m("pollTimeout"), 30*time.Second); err != nil {
		return nil, secrets, fmt.Errorf("`pollTimeout`: %w", err)
	}
	if _, ok := metadata["arguments.endpoint"]; ok {
		return nil, secrets, errors.New("`arguments.endpoint` is not for metadata to set: use `endpoint`")
	}
	if p.to, err = s.server(m("server"), s.ProcessURL); err != nil {
		return nil, secrets, fmt.Errorf("`server`: %w", err)
	}
	j.to = p.to
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if strings.HasPrefix(key, "arguments.") {
			p.fields = append(p.fields, [2]string{key, metadata[key]})
		}
	}
	return j, secrets, nil
}

// instance is what ids of processes look like: they become a part of a path.
var instance = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func (p *process) start(ctx context.Context, s *session) (id, said string, err error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, f := range p.fields {
		form.WriteField(f[0], f[1]) // into memory
	}
	form.Close()
	var reply struct {
		ID string `json:"instanceId"`
	}
	a, err := s.send(ctx, http.MethodPost, p.to.at("api/v1/process"), form.FormDataContentType(), body.Bytes())
	if err == nil {
		err = s.decode(a, &reply)
	}
	if err == nil && !instance.MatchString(reply.ID) {
		err = errors.New("the answer has no instanceId of a process: one may have been started all the same")
	}
	if err != nil {
		return "", "", fmt.Errorf("concord: start a process: %w", err)
	}
	said = fmt.Sprintf("concord: started process %s on %s\nresult %s/#/process/%s\n", reply.ID, p.to.url, strings.TrimSuffix(p.to.url.String(), "/"), reply.ID)
	return reply.ID, said, nil
}

func (p *process) state(ctx context.Context, s *session, id string) (state, message string, err error) {
	var reply struct{ Status string }
	a, err := s.send(ctx, http.MethodGet, p.to.at("api/v1/process/"+id), "", nil)
	if err == nil {
		err = s.decode(a, &reply)
	}
	if state = bounded(reply.Status, s.secrets); err == nil && state == "" {
		err = errors.New("the answer has no status of the process")
	}
	return state, "", err
}

func (p *process) stop(id string) (string, *url.URL) {
	return http.MethodDelete, p.to.at("api/v1/process/" + id)
}
