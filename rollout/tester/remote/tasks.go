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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

const (
	startGrace   = 5 * time.Second // how long a start request goes on after its run was told to end
	stopTimeout  = 10 * time.Second
	minInterval  = 100 * time.Millisecond
	patience     = time.Minute // how long failures to poll the state are tolerated
	minAttempts  = 3
	longestPause = time.Minute // the longest Retry-After that is obeyed
)

// A kind describes the API of one kind of servers, which run tests or processes. In its texts
// {} stands for the ID of a test or process.
type kind struct {
	starts []string // methods of the start request; the next one is tried if the server rejects one
	key    string   // key of the ID in the answer
	form   string   // pattern of its value, with the ID in parentheses: the ID becomes a part of paths
	noID   string   // the error if the answer has no ID
	status string   // path of the request for the state
	noun   string   // test or process
	cancel string   // method of the request that ends it
	end    string   // path of the request that ends it
	result string   // path of the web page of the result

	started, subject, stopping, stopped string // texts of messages

	endings map[string]string // final states, and the failure that each means; "" for success
}

// nGrinder runs tests. Versions before 3.5 accept the start request without a body too, some of
// them only with GET, and their tests end in other states.
var nGrinder = kind{
	starts: []string{http.MethodPost, http.MethodGet},
	key:    "id", form: `^([1-9][0-9]{0,17})$`, noID: "the answer has no number of a test: one may have been started all the same",
	status: "perftest/api/{}/status", noun: "test", cancel: http.MethodPut, end: "perftest/api/{}?action=stop", result: "/perftest/{}",
	started: "ngrinder: started test {}", subject: "ngrinder: test {}", stopping: "ngrinder: stop test {}", stopped: "ngrinder: stopped test {}",
	endings: map[string]string{
		"FINISHED":              "",
		"FINISHED_WITH_WARNING": "",
		"STOP_BY_ERROR":         "stopped by an error (STOP_BY_ERROR)",
		"STOP_ON_ERROR":         "stopped by an error (STOP_ON_ERROR)",
		"CANCELED":              "was cancelled (CANCELED)",
		"UNKNOWN":               "ended in an unknown state (UNKNOWN)",
	},
}

// concord runs processes.
var concord = kind{
	starts: []string{http.MethodPost},
	key:    "instanceId", form: `^"([A-Za-z0-9][A-Za-z0-9._-]{0,127})"$`, noID: "the answer has no instanceId of a process: one may have been started all the same",
	status: "api/v1/process/{}", noun: "process", cancel: http.MethodDelete, end: "api/v1/process/{}", result: "/#/process/{}",
	started: "concord: started process {}", subject: "concord instanceID: {}", stopping: "concord: cancel process {}", stopped: "concord: cancelled process {}",
	endings: map[string]string{"FINISHED": "", "FAILED": "failed", "CANCELLED": "was cancelled", "TIMED_OUT": "timed out"},
}

// A job is one test or process that a server runs.
type job struct {
	kind
	servers  *Servers
	to       server
	header   http.Header // with credentials
	secrets  []string
	interval time.Duration
	timeout  time.Duration // of the whole job; 0 if only the run has one

	path        string // of the request that starts it
	contentType string
	body        string
	starting    string // beginning of the errors of that request
	detail      string // added to the message that it has started

	client *http.Client // of its run
	out    io.Writer
	id     string // set once it has started
}

// checked returns the job as a task, or err, which says that metadata is wrong. Both come with
// the secrets.
func (j *job) checked(err error) (run.Task, []string, error) {
	if err != nil {
		return nil, j.secrets, redact.Error(err, j.secrets...)
	}
	return j, j.secrets, nil
}

// of returns a text of the kind, with the ID in place of {}.
func (j *job) of(text string) string { return strings.ReplaceAll(text, "{}", j.id) }

// Run starts the job, waits for its end, and stops it if ctx ends first.
func (j *job) Run(ctx context.Context, out io.Writer) error {
	j.client, j.out = j.open(), out
	defer j.client.CloseIdleConnections()
	starting, cancel := context.WithCancelCause(context.WithoutCancel(ctx)) // ctx does not interrupt a start: without the ID the job could not be stopped
	context.AfterFunc(ctx, func() { time.AfterFunc(startGrace, func() { cancel(context.Cause(ctx)) }) })
	err := j.start(starting)
	cancel(nil)
	if err != nil {
		return fmt.Errorf("%s: %w", j.starting, err)
	}
	base := strings.TrimSuffix(j.to.url.String(), "/")
	fmt.Fprintf(out, "%s%s on %s\nresult %s\n", j.of(j.started), j.detail, base, base+j.of(j.result))
	state, message, err := j.wait(ctx)
	if err == nil {
		if words := j.endings[state]; words != "" {
			err = fmt.Errorf("%s %s", j.of(j.subject), strings.TrimSpace(words+" "+message))
		}
		return err
	}
	last, end := context.WithTimeoutCause(context.WithoutCancel(ctx), stopTimeout, fmt.Errorf("no answer within %s", stopTimeout))
	defer end()
	if failed := j.ask(last, j.cancel, j.of(j.end), "", nil); failed != nil {
		fmt.Fprintf(out, "%s: %v\n", j.of(j.stopping), failed)
	} else {
		fmt.Fprintln(out, j.of(j.stopped))
	}
	return err
}

// start starts the job.
func (j *job) start(ctx context.Context) error {
	var reply map[string]json.RawMessage
	var failed error
	for i, method := range j.starts {
		body := j.body
		if method == http.MethodGet {
			body = ""
		}
		err := j.ask(ctx, method, j.path, body, &reply)
		if err != nil && i > 0 {
			err = fmt.Errorf("%w; and then %w", failed, err)
		}
		failed = err
		if r, ok := errors.AsType[*refusal](err); !ok || r.status != 400 && r.status != 405 && r.status != 415 {
			break
		}
	}
	if failed != nil {
		return failed
	}
	found := regexp.MustCompile(j.form).FindSubmatch(reply[j.key])
	if found == nil {
		return errors.New(j.noID)
	}
	j.id = string(found[1])
	return nil
}

// state asks for the state of the job. In the answer, status is a string, an object that has a
// name, or a list whose first item has status_id (nGrinder before 3.5).
func (j *job) state(ctx context.Context) (state, message string, err error) {
	var reply struct{ Message, Status any }
	if err := j.ask(ctx, http.MethodGet, j.of(j.status), "", &reply); err != nil {
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
	if state = redact.Excerpt(state, maxWords, j.secrets...); state == "" {
		return "", "", fmt.Errorf("the answer has no status of the %s", j.noun)
	}
	message, _ = reply.Message.(string)
	return state, redact.Excerpt(message, maxWords, j.secrets...), nil
}

// errLate says that the timeout of a job is over; the server is asked once more then.
var errLate = errors.New("late")

// wait waits for the final state and returns it. The error says that there is none: ctx or the
// time of the job ended, or the server does not report the state.
func (j *job) wait(ctx context.Context) (state, message string, err error) {
	within := ctx
	if j.timeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeoutCause(ctx, j.timeout, errLate)
		defer cancel()
	}
	state, message, err = j.poll(within)
	if errors.Is(err, errLate) && ctx.Err() == nil {
		last, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()
		state, message, err = j.state(last)
		if _, ended := j.endings[state]; err == nil && ended {
			return state, message, nil
		}
		return "", "", fmt.Errorf("concord process timed out, after %s seconds", strconv.FormatFloat(j.timeout.Seconds(), 'f', -1, 64))
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", j.of(j.subject), err)
	}
	return state, message, err
}

// poll asks for the state until it is final.
func (j *job) poll(ctx context.Context) (string, string, error) {
	var failing time.Time // time of the first failure in a row
	failures, shown, pause := 0, "", j.interval
	for {
		if err := retry.Sleep(ctx, pause); err != nil {
			return "", "", err
		}
		pause = j.interval
		state, message, err := j.state(ctx)
		switch r, refused := errors.AsType[*refusal](err); {
		case ctx.Err() != nil:
			return "", "", context.Cause(ctx)
		case err == nil:
			failures = 0
			if said := strings.TrimSpace(state + " " + message); said != shown {
				fmt.Fprintf(j.out, "state %s\n", said)
				shown = said
			}
			if _, ended := j.endings[state]; ended {
				return state, message, nil
			}
			continue
		case errors.Is(err, errRedirect), refused && (r.status == http.StatusUnauthorized || r.status == http.StatusForbidden || r.status == http.StatusNotFound):
			return "", "", err // asking again cannot help
		case refused:
			pause = max(pause, min(r.after, longestPause))
		}
		if failures++; failures == 1 {
			failing = time.Now()
			fmt.Fprintf(j.out, "%v\n", err)
		}
		if failures >= minAttempts && time.Since(failing) >= patience {
			return "", "", fmt.Errorf("given up after %d failures in a row: %w", failures, err)
		}
	}
}

// trimmed returns values of metadata without white space around them.
func trimmed(metadata map[string]string) func(key string) string {
	return func(key string) string { return strings.TrimSpace(metadata[key]) }
}

func (s *Servers) ngrinder(metadata map[string]string) (*job, error) {
	m := trimmed(metadata)
	j := &job{kind: nGrinder, servers: s, contentType: "application/json", body: "{}"}
	if m("passwd") != "" {
		j.secrets = []string{m("passwd")}
	}
	if slices.Contains([]string{m("server") + s.LoadURL, m("clone"), m("username"), m("passwd") + m("passwdFrom")}, "") {
		return j, errors.New("server, clone, username and passwd are required metadata")
	}
	var err error
	if j.to, err = s.server(m("server"), s.LoadURL); err != nil {
		return j, fmt.Errorf("invalid url: %w", err)
	}
	clone, err := strconv.ParseInt(m("clone"), 10, 64)
	if err != nil || clone <= 0 {
		return j, fmt.Errorf("metadata clone must be integer: %q is none above 0", redact.Excerpt(m("clone"), maxWords))
	}
	password, err := s.password(m("passwd"), m("passwdFrom"))
	if err != nil {
		return j, err
	}
	j.secrets = append(j.secrets, password)
	if strings.ContainsFunc(m("username"), func(r rune) bool { return r == ':' || isControl(r) }) {
		return j, errors.New("metadata username must not have a colon or control characters")
	}
	interval, err := api.ParseInterval(m("pollInterval"), time.Second)
	if err != nil {
		return j, fmt.Errorf("metadata pollInterval: %w", err)
	}
	j.interval = max(interval, minInterval)
	j.header = http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(m("username")+":"+password))}}
	j.path, j.starting = fmt.Sprintf("perftest/api/%d/clone_and_start", clone), fmt.Sprintf("ngrinder: start a clone of test %d", clone)
	j.detail = fmt.Sprintf(", a clone of test %d,", clone)
	return j, nil
}

// password returns the password that metadata has in base64 or names by a file. It removes line
// breaks at its end, which a shell may have added.
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

func (s *Servers) concord(metadata map[string]string) (*job, error) {
	m := trimmed(metadata)
	j := &job{kind: concord, servers: s, path: "api/v1/process", starting: "concord: start a process"}
	required := func(key string) error { return fmt.Errorf("`%s` is required with type concord", key) }
	for _, key := range []string{"server", "org", "project", "repo", "entrypoint", "apiKeyPath"} {
		if m(key) == "" && (key != "server" || s.ProcessURL == "") {
			return j, required(key)
		}
	}
	key, err := s.key(m("apiKeyPath"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return j, fmt.Errorf("`apiKeyPath` file doesn't exist %s", redact.Excerpt(m("apiKeyPath"), maxWords))
	case err != nil:
		return j, fmt.Errorf("`apiKeyPath`: %w", err)
	}
	j.secrets, j.header = []string{key}, http.Header{"Authorization": {key}}
	if m("endpoint") == "" {
		return j, required("endpoint")
	}
	interval, err := api.ParseInterval(m("pollInterval"), 5*time.Second)
	if err != nil {
		return j, fmt.Errorf("`pollInterval`: %w", err)
	}
	j.interval = max(interval, minInterval)
	if j.timeout, err = api.ParseInterval(m("pollTimeout"), 30*time.Second); err != nil {
		return j, fmt.Errorf("`pollTimeout`: %w", err)
	}
	if _, ok := metadata["arguments.endpoint"]; ok {
		return j, errors.New("`arguments.endpoint` is not for metadata to set: use `endpoint`")
	}
	if j.to, err = s.server(m("server"), s.ProcessURL); err != nil {
		return j, fmt.Errorf("`server`: %w", err)
	}
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, f := range [...][2]string{{"org", "org"}, {"project", "project"}, {"repo", "repo"}, {"entryPoint", "entrypoint"}, {"arguments.endpoint", "endpoint"}} {
		form.WriteField(f[0], metadata[f[1]]) // writes to memory never fail
	}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if strings.HasPrefix(key, "arguments.") {
			form.WriteField(key, metadata[key])
		}
	}
	form.Close()
	j.contentType, j.body = form.FormDataContentType(), body.String()
	return j, nil
}
