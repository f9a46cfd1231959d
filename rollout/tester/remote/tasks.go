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
	kind     jobKind
}

// A jobKind is how one kind of server starts, tells about and ends a job.
type jobKind interface {
	start(ctx context.Context, s *session) (id string, err error)
	started(id string) string // what is said of it
	state(ctx context.Context, s *session, id string) (state, message string, err error)
	stop(ctx context.Context, s *session, id string) error
	stopping(id string) (doing, done string) // words of it
	failed(id string, err error) error       // the error of a run
	words(id, state, message, ending string) error
}

// Run starts the job, waits for its end, and ends it when ctx ends first.
func (j *job) Run(ctx context.Context, out io.Writer) error {
	s := j.servers.open(j.to, j.header, j.secrets)
	defer s.client.CloseIdleConnections()
	lasting, cancel := linger(ctx, startGrace)
	id, err := j.kind.start(lasting, s)
	cancel()
	if err != nil {
		return err
	}
	fmt.Fprint(out, j.kind.started(id))
	state, message, err := j.wait(ctx, s, id, out)
	if err != nil {
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stopTimeout, fmt.Errorf("no answer within %s", stopTimeout))
		defer cancel()
		doing, done := j.kind.stopping(id)
		if failed := j.kind.stop(ctx, s, id); failed != nil {
			fmt.Fprintf(out, "%s: %v\n", doing, failed)
		} else {
			fmt.Fprintln(out, done)
		}
		return err
	}
	if words := j.endings[state]; words != "" {
		return j.kind.words(id, state, message, words)
	}
	return nil
}

// errLate is the end of the time of a job; the server is asked once more then.
var errLate = errors.New("late")

// wait returns the state at the end. The error says that there is none: ctx
// ended, or the server does not tell.
func (j *job) wait(ctx context.Context, s *session, id string, out io.Writer) (state, message string, err error) {
	within, cancel := ctx, context.CancelFunc(func() {})
	if j.timeout > 0 {
		within, cancel = context.WithTimeoutCause(ctx, j.timeout, errLate)
	}
	defer cancel()
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
		err = j.kind.failed(id, err)
	}
	return state, message, err
}

// poll asks for the state until it is one of the end.
func (j *job) poll(ctx context.Context, s *session, id string, out io.Writer) (string, string, error) {
	var failing time.Time // since when
	interval := max(j.interval, minInterval)
	failures, shown, pause := 0, "", interval
	for {
		if err := retry.Sleep(ctx, pause); err != nil {
			return "", "", context.Cause(ctx)
		}
		pause = interval
		state, message, err := j.kind.state(ctx, s, id)
		_, ended := j.endings[state]
		switch {
		case ctx.Err() != nil:
			return "", "", context.Cause(ctx)
		case err == nil:
			failures = 0
			if said := strings.TrimSpace(state + " " + message); said != shown {
				fmt.Fprintf(out, "state %s\n", said)
				shown = said
			}
			if ended {
				return state, message, nil
			}
			continue
		case final(err):
			return "", "", err
		}
		now := time.Now()
		if failures++; failures == 1 {
			failing = now
			fmt.Fprintf(out, "%v\n", err)
		}
		if failures >= minAttempts && now.Sub(failing) >= patience {
			return "", "", fmt.Errorf("given up after %d failures in a row: %w", failures, err)
		}
		if r, ok := errors.AsType[*refusal](err); ok {
			pause = max(pause, min(r.after, longestPause))
		}
	}
}

// linger returns a context that ends a while after ctx has: what starts something
// is not given up in the middle, or nobody could end it.
func linger(ctx context.Context, while time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if retry.Sleep(late, while) == nil {
			cancel(context.Cause(ctx))
		}
	})
	return late, func() { stop(); cancel(nil) }
}

// trimmed returns values of metadata without white space around them.
func trimmed(metadata map[string]string) func(key string) string {
	return func(key string) string { return strings.TrimSpace(metadata[key]) }
}

// How tests of nGrinder end: before 3.5 and since.
var loadEndings = map[string]string{
	"FINISHED":              "",
	"FINISHED_WITH_WARNING": "",
	"STOP_BY_ERROR":         "stopped by an error",
	"STOP_ON_ERROR":         "stopped by an error",
	"CANCELED":              "was cancelled",
	"UNKNOWN":               "ended in an unknown state",
}

// A loadTest is a test of nGrinder that is to be cloned and started.
type loadTest struct {
	to    server
	clone int64
}

func (s *Servers) ngrinder(metadata map[string]string) (*job, []string, error) {
	m := trimmed(metadata)
	t, j := &loadTest{}, &job{servers: s, endings: loadEndings}
	j.kind = t
	if m("passwd") != "" {
		j.secrets = []string{m("passwd")}
	}
	if slices.Contains([]string{m("server") + s.LoadURL, m("clone"), m("username"), m("passwd") + m("passwdFrom")}, "") {
		return nil, j.secrets, errors.New("server, clone, username and passwd are required metadata")
	}
	var err error
	if j.to, err = s.server(m("server"), s.LoadURL); err != nil {
		return nil, j.secrets, fmt.Errorf("invalid url: %w", err)
	}
	if t.clone, err = strconv.ParseInt(m("clone"), 10, 64); err != nil || t.clone <= 0 {
		return nil, j.secrets, fmt.Errorf("metadata clone must be integer: %s is none above 0", strconv.QuoteToASCII(bounded(m("clone"), nil)))
	}
	password, err := s.password(m("passwd"), m("passwdFrom"))
	if err != nil {
		return nil, j.secrets, err
	}
	j.secrets = append(j.secrets, password)
	if strings.ContainsFunc(m("username"), func(r rune) bool { return r == ':' || isControl(r) }) {
		return nil, j.secrets, errors.New("metadata username must not have a colon or control characters")
	}
	if j.interval, err = api.ParseInterval(m("pollInterval"), time.Second); err != nil {
		return nil, j.secrets, fmt.Errorf("metadata pollInterval: %w", err)
	}
	t.to = j.to
	j.header = http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(m("username")+":"+password))}}
	return j, j.secrets, nil
}

// password reads the one of metadata. What a shell adds at its end does not count.
func (s *Servers) password(encoded, file string) (string, error) {
	if encoded != "" && file != "" {
		return "", errors.New("metadata passwd and passwdFrom exclude each other")
	}
	if file != "" {
		password, err := s.key(file)
		if err != nil {
			return "", fmt.Errorf("metadata passwdFrom is invalid: %w", err)
		}
		return password, nil
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
func (t *loadTest) start(ctx context.Context, s *session) (string, error) {
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
		err = s.read(a, &reply)
	}
	var id int64
	if err == nil {
		if id, err = strconv.ParseInt(string(reply.ID), 10, 64); err != nil || id <= 0 {
			err = errors.New("the answer has no number of a test: one may have been started all the same")
		}
	}
	if err != nil {
		return "", fmt.Errorf("ngrinder: start a clone of test %d: %w", t.clone, err)
	}
	return strconv.FormatInt(id, 10), nil
}

func (t *loadTest) started(id string) string {
	return fmt.Sprintf("ngrinder: started test %s, a clone of test %d, on %s\nresult %s\n", id, t.clone, t.to.url, t.to.at("perftest/"+id))
}

// state reads the state of a test: status is a list whose first item has
// status_id (before 3.5), an object that has a name, or text.
func (t *loadTest) state(ctx context.Context, s *session, id string) (state, message string, err error) {
	a, err := s.send(ctx, http.MethodGet, t.to.at("perftest/api/"+id+"/status"), "", nil)
	if err != nil {
		return "", "", err
	}
	var reply struct{ Message, Status json.RawMessage }
	if err := s.read(a, &reply); err != nil {
		return "", "", err
	}
	var text string
	var object struct{ Name string }
	var list []json.RawMessage
	switch {
	case json.Unmarshal(reply.Status, &text) == nil:
	case json.Unmarshal(reply.Status, &object) == nil:
		text = object.Name
	case json.Unmarshal(reply.Status, &list) == nil && len(list) > 0:
		var item struct {
			State string `json:"status_id"`
		}
		if json.Unmarshal(list[0], &item) == nil {
			text = item.State
		}
	}
	if text = bounded(text, s.secrets); text == "" {
		return "", "", errors.New("the answer has no status of the test")
	}
	if json.Unmarshal(reply.Message, &message) == nil {
		message = bounded(message, s.secrets)
	}
	return text, message, nil
}

func (t *loadTest) stop(ctx context.Context, s *session, id string) error {
	at := t.to.at("perftest/api/" + id)
	at.RawQuery = "action=stop"
	_, err := s.send(ctx, http.MethodPut, at, "", nil)
	return err
}

func (t *loadTest) stopping(id string) (doing, done string) {
	return "ngrinder: stop test " + id, "ngrinder: stopped test " + id
}

func (t *loadTest) failed(id string, err error) error {
	return fmt.Errorf("ngrinder: test %s: %w", id, err)
}

func (t *loadTest) words(id, state, message, ending string) error {
	return fmt.Errorf("ngrinder: test %s %s", id, strings.TrimSpace(ending+" ("+state+") "+message))
}

// How processes of Concord end.
var processEndings = map[string]string{
	"FINISHED":  "",
	"FAILED":    "failed",
	"CANCELLED": "was cancelled",
	"TIMED_OUT": "timed out",
}

// A process is one of Concord that is to be started.
type process struct {
	to     server
	fields [][2]string
}

func (s *Servers) concord(metadata map[string]string) (*job, []string, error) {
	m := trimmed(metadata)
	p, j := &process{}, &job{servers: s, endings: processEndings}
	j.kind = p
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
	j.secrets, j.header = []string{key}, http.Header{"Authorization": {key}}
	if m("endpoint") == "" {
		return nil, j.secrets, required("endpoint")
	}
	if j.interval, err = api.ParseInterval(m("pollInterval"), 5*time.Second); err != nil {
		return nil, j.secrets, fmt.Errorf("`pollInterval`: %w", err)
	}
	if j.timeout, err = api.ParseInterval(m("pollTimeout"), 30*time.Second); err != nil {
		return nil, j.secrets, fmt.Errorf("`pollTimeout`: %w", err)
	}
	if _, ok := metadata["arguments.endpoint"]; ok {
		return nil, j.secrets, errors.New("`arguments.endpoint` is not for metadata to set: use `endpoint`")
	}
	if j.to, err = s.server(m("server"), s.ProcessURL); err != nil {
		return nil, j.secrets, fmt.Errorf("`server`: %w", err)
	}
	p.to = j.to
	p.fields = [][2]string{
		{"org", metadata["org"]}, {"project", metadata["project"]}, {"repo", metadata["repo"]},
		{"entryPoint", metadata["entrypoint"]}, {"arguments.endpoint", metadata["endpoint"]},
	}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if strings.HasPrefix(key, "arguments.") {
			p.fields = append(p.fields, [2]string{key, metadata[key]})
		}
	}
	return j, j.secrets, nil
}

// instance is what ids of processes look like, of at most maxInstance bytes:
// they become a part of a path.
var instance = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

const maxInstance = 128

func (p *process) start(ctx context.Context, s *session) (string, error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, f := range p.fields {
		form.WriteField(f[0], f[1]) // into memory
	}
	form.Close()
	a, err := s.send(ctx, http.MethodPost, p.to.at("api/v1/process"), form.FormDataContentType(), body.Bytes())
	var reply struct {
		ID string `json:"instanceId"`
		OK *bool
	}
	if err == nil {
		err = decode(a, &reply)
	}
	switch {
	case err != nil:
	case reply.OK != nil && !*reply.OK:
		err = fmt.Errorf("the server says that it did not succeed: %s", explain(a, s.secrets))
	case len(reply.ID) > maxInstance || !instance.MatchString(reply.ID):
		err = errors.New("the answer has no instanceId of a process: one may have been started all the same")
	}
	if err != nil {
		return "", fmt.Errorf("concord: start a process: %w", err)
	}
	return reply.ID, nil
}

func (p *process) started(id string) string {
	return fmt.Sprintf("concord: started process %s on %s\nresult %s/#/process/%s\n", id, p.to.url, strings.TrimSuffix(p.to.url.String(), "/"), id)
}

func (p *process) state(ctx context.Context, s *session, id string) (state, message string, err error) {
	a, err := s.send(ctx, http.MethodGet, p.to.at("api/v1/process/"+id), "", nil)
	if err != nil {
		return "", "", err
	}
	var reply struct{ Status string }
	if err := decode(a, &reply); err != nil {
		return "", "", err
	}
	if state = bounded(reply.Status, s.secrets); state == "" {
		return "", "", errors.New("the answer has no status of the process")
	}
	return state, "", nil
}

func (p *process) stop(ctx context.Context, s *session, id string) error {
	_, err := s.send(ctx, http.MethodDelete, p.to.at("api/v1/process/"+id), "", nil)
	return err
}

func (p *process) stopping(id string) (doing, done string) {
	return "concord: cancel process " + id, "concord: cancelled process " + id
}

func (p *process) failed(id string, err error) error {
	return fmt.Errorf("concord instanceID: %s: %w", id, err)
}

func (p *process) words(id, _, _, ending string) error {
	return fmt.Errorf("concord instanceID: %s %s", id, ending)
}
