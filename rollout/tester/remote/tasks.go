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
	startGrace     = 5 * time.Second // how long a start request goes on after its run was told to end
	stopTimeout    = 10 * time.Second
	minInterval    = 100 * time.Millisecond
	maxFailureTime = time.Minute // how long failures to poll the state are tolerated
	minFailures    = 3
	maxRetryAfter  = time.Minute // the longest Retry-After that is obeyed
)

// A serverAPI describes the API of one kind of servers, which run tests or processes. In its texts
// {} stands for the ID of a test or process.
type serverAPI struct {
	startMethods []string // methods of the start request; the next one is tried if the server rejects one
	idKey        string   // key of the ID in the answer
	idPattern    string   // pattern of its value, with the ID in parentheses: the ID becomes a part of paths
	noIDError    string   // the error if the answer has no ID
	statusPath   string   // path of the request for the state
	noun         string   // test or process
	stopMethod   string   // method of the request that ends it
	stopPath     string   // path of the request that ends it
	resultPath   string   // path of the web page of the result

	startedText, subject, stopErrorPrefix, stoppedText string // texts of messages

	finalStates map[string]string // final states, and the failure that each means; "" for success
}

// nGrinderAPI runs tests. Versions before 3.5 accept the start request without a body too, some of
// them only with GET, and their tests end in other states.
var nGrinderAPI = serverAPI{
	startMethods: []string{http.MethodPost, http.MethodGet},
	idKey:        "id", idPattern: `^([1-9][0-9]{0,17})$`, noIDError: "the answer has no number of a test: one may have been started all the same",
	statusPath: "perftest/api/{}/status", noun: "test", stopMethod: http.MethodPut, stopPath: "perftest/api/{}?action=stop", resultPath: "/perftest/{}",
	startedText: "ngrinder: started test {}", subject: "ngrinder: test {}", stopErrorPrefix: "ngrinder: stop test {}", stoppedText: "ngrinder: stopped test {}",
	finalStates: map[string]string{
		"FINISHED":              "",
		"FINISHED_WITH_WARNING": "",
		"STOP_BY_ERROR":         "stopped by an error (STOP_BY_ERROR)",
		"STOP_ON_ERROR":         "stopped by an error (STOP_ON_ERROR)",
		"CANCELED":              "was cancelled (CANCELED)",
		"UNKNOWN":               "ended in an unknown state (UNKNOWN)",
	},
}

// concordAPI runs processes.
var concordAPI = serverAPI{
	startMethods: []string{http.MethodPost},
	idKey:        "instanceId", idPattern: `^"([A-Za-z0-9][A-Za-z0-9._-]{0,127})"$`, noIDError: "the answer has no instanceId of a process: one may have been started all the same",
	statusPath: "api/v1/process/{}", noun: "process", stopMethod: http.MethodDelete, stopPath: "api/v1/process/{}", resultPath: "/#/process/{}",
	startedText: "concord: started process {}", subject: "concord instanceID: {}", stopErrorPrefix: "concord: cancel process {}", stoppedText: "concord: cancelled process {}",
	finalStates: map[string]string{"FINISHED": "", "FAILED": "failed", "CANCELLED": "was cancelled", "TIMED_OUT": "timed out"},
}

// A job is one test or process that a server runs.
type job struct {
	serverAPI
	servers  *Servers
	target   server
	header   http.Header // with credentials
	secrets  []string
	interval time.Duration
	timeout  time.Duration // of the whole job; 0 if only the run has one

	startPath        string // of the request that starts it
	contentType      string
	body             string
	startErrorPrefix string // beginning of the errors of that request
	detail           string // added to the message that it has started

	client *http.Client // of its run
	out    io.Writer
	id     string // set once it has started
}

// asTask returns the job as a task, or err, which says that metadata is wrong. Both come with
// the secrets.
func (j *job) asTask(err error) (run.Task, []string, error) {
	if err != nil {
		return nil, j.secrets, redact.Error(err, j.secrets...)
	}
	return j, j.secrets, nil
}

// withID returns a text of the API, with the ID in place of {}.
func (j *job) withID(text string) string { return strings.ReplaceAll(text, "{}", j.id) }

// Run starts the job, waits for its end, and stops it if ctx ends first.
func (j *job) Run(ctx context.Context, out io.Writer) error {
	j.client, j.out = j.newClient(), out
	defer j.client.CloseIdleConnections()
	starting, cancel := context.WithCancelCause(context.WithoutCancel(ctx)) // ctx does not interrupt a start: without the ID the job could not be stopped
	context.AfterFunc(ctx, func() { time.AfterFunc(startGrace, func() { cancel(context.Cause(ctx)) }) })
	err := j.start(starting)
	cancel(nil)
	if err != nil {
		return fmt.Errorf("%s: %w", j.startErrorPrefix, err)
	}
	base := strings.TrimSuffix(j.target.url.String(), "/")
	fmt.Fprintf(out, "%s%s on %s\nresult %s\n", j.withID(j.startedText), j.detail, base, base+j.withID(j.resultPath))
	state, message, err := j.wait(ctx)
	if err == nil {
		if words := j.finalStates[state]; words != "" {
			err = fmt.Errorf("%s %s", j.withID(j.subject), strings.TrimSpace(words+" "+message))
		}
		return err
	}
	last, end := context.WithTimeoutCause(context.WithoutCancel(ctx), stopTimeout, fmt.Errorf("no answer within %s", stopTimeout))
	defer end()
	if failed := j.requestJSON(last, j.stopMethod, j.withID(j.stopPath), "", nil); failed != nil {
		fmt.Fprintf(out, "%s: %v\n", j.withID(j.stopErrorPrefix), failed)
	} else {
		fmt.Fprintln(out, j.withID(j.stoppedText))
	}
	return err
}

// start starts the job.
func (j *job) start(ctx context.Context) error {
	var reply map[string]json.RawMessage
	var failed error
	for i, method := range j.startMethods {
		body := j.body
		if method == http.MethodGet {
			body = ""
		}
		err := j.requestJSON(ctx, method, j.startPath, body, &reply)
		if err != nil && i > 0 {
			err = fmt.Errorf("%w; and then %w", failed, err)
		}
		failed = err
		if r, ok := errors.AsType[*statusError](err); !ok || r.status != 400 && r.status != 405 && r.status != 415 {
			break
		}
	}
	if failed != nil {
		return failed
	}
	found := regexp.MustCompile(j.idPattern).FindSubmatch(reply[j.idKey])
	if found == nil {
		return errors.New(j.noIDError)
	}
	j.id = string(found[1])
	return nil
}

// state asks for the state of the job. In the answer, status is a string, an object that has a
// name, or a list whose first item has status_id (nGrinder before 3.5).
func (j *job) state(ctx context.Context) (state, message string, err error) {
	var reply struct{ Message, Status any }
	if err := j.requestJSON(ctx, http.MethodGet, j.withID(j.statusPath), "", &reply); err != nil {
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
	if state = redact.Excerpt(state, maxMessage, j.secrets...); state == "" {
		return "", "", fmt.Errorf("the answer has no status of the %s", j.noun)
	}
	message, _ = reply.Message.(string)
	return state, redact.Excerpt(message, maxMessage, j.secrets...), nil
}

// errJobTimeout says that the timeout of a job is over; the server is asked once more then.
var errJobTimeout = errors.New("late")

// wait waits for the final state and returns it. The error says that there is none: ctx or the
// time of the job ended, or the server does not report the state.
func (j *job) wait(ctx context.Context) (state, message string, err error) {
	within := ctx
	if j.timeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeoutCause(ctx, j.timeout, errJobTimeout)
		defer cancel()
	}
	state, message, err = j.poll(within)
	if errors.Is(err, errJobTimeout) && ctx.Err() == nil {
		last, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()
		state, message, err = j.state(last)
		if _, ended := j.finalStates[state]; err == nil && ended {
			return state, message, nil
		}
		return "", "", fmt.Errorf("concord process timed out, after %s seconds", strconv.FormatFloat(j.timeout.Seconds(), 'f', -1, 64))
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", j.withID(j.subject), err)
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
		switch r, refused := errors.AsType[*statusError](err); {
		case ctx.Err() != nil:
			return "", "", context.Cause(ctx)
		case err == nil:
			failures = 0
			if status := strings.TrimSpace(state + " " + message); status != shown {
				fmt.Fprintf(j.out, "state %s\n", status)
				shown = status
			}
			if _, ended := j.finalStates[state]; ended {
				return state, message, nil
			}
			continue
		case errors.Is(err, errRedirect), refused && (r.status == http.StatusUnauthorized || r.status == http.StatusForbidden || r.status == http.StatusNotFound):
			return "", "", err // asking again cannot help
		case refused:
			pause = max(pause, min(r.retryAfter, maxRetryAfter))
		}
		if failures++; failures == 1 {
			failing = time.Now()
			fmt.Fprintf(j.out, "%v\n", err)
		}
		if failures >= minFailures && time.Since(failing) >= maxFailureTime {
			return "", "", fmt.Errorf("given up after %d failures in a row: %w", failures, err)
		}
	}
}

// trimmed returns values of metadata without white space around them.
func trimmed(metadata map[string]string) func(key string) string {
	return func(key string) string { return strings.TrimSpace(metadata[key]) }
}

func (s *Servers) nGrinderJob(metadata map[string]string) (*job, error) {
	m := trimmed(metadata)
	j := &job{serverAPI: nGrinderAPI, servers: s, contentType: "application/json", body: "{}"}
	if m("passwd") != "" {
		j.secrets = []string{m("passwd")}
	}
	if slices.Contains([]string{m("server") + s.LoadURL, m("clone"), m("username"), m("passwd") + m("passwdFrom")}, "") {
		return j, errors.New("server, clone, username and passwd are required metadata")
	}
	var err error
	if j.target, err = s.server(m("server"), s.LoadURL); err != nil {
		return j, fmt.Errorf("invalid url: %w", err)
	}
	clone, err := strconv.ParseInt(m("clone"), 10, 64)
	if err != nil || clone <= 0 {
		return j, fmt.Errorf("metadata clone must be integer: %q is none above 0", redact.Excerpt(m("clone"), maxMessage))
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
	j.startPath, j.startErrorPrefix = fmt.Sprintf("perftest/api/%d/clone_and_start", clone), fmt.Sprintf("ngrinder: start a clone of test %d", clone)
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
		password, err := s.readKey(file)
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

func (s *Servers) concordJob(metadata map[string]string) (*job, error) {
	m := trimmed(metadata)
	j := &job{serverAPI: concordAPI, servers: s, startPath: "api/v1/process", startErrorPrefix: "concord: start a process"}
	required := func(key string) error { return fmt.Errorf("`%s` is required with type concord", key) }
	for _, key := range []string{"server", "org", "project", "repo", "entrypoint", "apiKeyPath"} {
		if m(key) == "" && (key != "server" || s.ProcessURL == "") {
			return j, required(key)
		}
	}
	key, err := s.readKey(m("apiKeyPath"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return j, fmt.Errorf("`apiKeyPath` file doesn't exist %s", redact.Excerpt(m("apiKeyPath"), maxMessage))
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
	if j.target, err = s.server(m("server"), s.ProcessURL); err != nil {
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
