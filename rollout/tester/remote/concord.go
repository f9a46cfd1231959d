package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

const (
	defaultProcessInterval = 5 * time.Second
	defaultProcessTimeout  = 30 * time.Second

	argument = "arguments."
	endpoint = argument + "endpoint"
)

// How processes of Concord end.
var processEndings = map[string]ending{
	"FINISHED":  {},
	"FAILED":    {"failed"},
	"CANCELLED": {"was cancelled"},
	"TIMED_OUT": {"timed out"},
}

// A process is one of Concord that is to be started.
type process struct {
	servers           *Servers
	to                server
	fields            [][2]string
	header            http.Header
	secrets           []string
	interval, timeout time.Duration
}

func (s *Servers) concord(metadata map[string]string) (*process, []string, error) {
	m := func(key string) string { return strings.TrimSpace(metadata[key]) }
	p := &process{servers: s}
	for _, key := range []string{"server", "org", "project", "repo", "entrypoint", "apiKeyPath"} {
		if m(key) == "" && (key != "server" || s.ProcessURL == "") {
			return nil, nil, required(key)
		}
	}
	key, err := s.apiKey(m("apiKeyPath"))
	if err != nil {
		return nil, nil, err
	}
	p.secrets = []string{key}
	if m("endpoint") == "" {
		return nil, p.secrets, required("endpoint")
	}
	if p.interval, err = api.ParseInterval(m("pollInterval"), defaultProcessInterval); err != nil {
		return nil, p.secrets, fmt.Errorf("`pollInterval`: %w", err)
	}
	if p.timeout, err = api.ParseInterval(m("pollTimeout"), defaultProcessTimeout); err != nil {
		return nil, p.secrets, fmt.Errorf("`pollTimeout`: %w", err)
	}
	if _, ok := metadata[endpoint]; ok {
		return nil, p.secrets, fmt.Errorf("`%s` is not for metadata to set: use `endpoint`", endpoint)
	}
	if p.to, err = s.server(m("server"), s.ProcessURL); err != nil {
		return nil, p.secrets, fmt.Errorf("`server`: %w", err)
	}
	p.header = http.Header{"Authorization": {key}}
	p.fields = fields(metadata)
	return p, p.secrets, nil
}

func (s *Servers) apiKey(path string) (string, error) {
	key, err := s.key(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("`apiKeyPath` file doesn't exist %s", bounded(path, nil))
	case err != nil:
		return "", fmt.Errorf("`apiKeyPath`: %w", err)
	}
	return key, nil
}

func required(key string) error {
	return fmt.Errorf("`%s` is required with type concord", key)
}

// fields returns the form that starts the process, in its order.
func fields(metadata map[string]string) [][2]string {
	form := [][2]string{
		{"org", metadata["org"]}, {"project", metadata["project"]}, {"repo", metadata["repo"]},
		{"entryPoint", metadata["entrypoint"]}, {endpoint, metadata["endpoint"]},
	}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if strings.HasPrefix(key, argument) {
			form = append(form, [2]string{key, metadata[key]})
		}
	}
	return form
}

// Run starts the process and waits for its end.
func (p *process) Run(ctx context.Context, out io.Writer) error {
	s := p.servers.open(p.to, p.header, p.secrets)
	defer s.close()
	id, err := p.start(ctx, s)
	if err != nil {
		return fmt.Errorf("concord: start a process: %w", err)
	}
	fmt.Fprintf(out, "concord: started process %s on %s\nresult %s/#/process/%s\n", id, p.to.url, strings.TrimSuffix(p.to.url.String(), "/"), id)
	state, err := p.wait(ctx, s, id, out)
	if err != nil {
		p.cancel(ctx, s, id, out)
		return err
	}
	if words := processEndings[state].words; words != "" {
		return fmt.Errorf("concord instanceID: %s %s", id, words)
	}
	return nil
}

// wait returns the state at the end of the process. The time that it may take
// counts as a whole; when it is over the server is asked once more.
func (p *process) wait(ctx context.Context, s *session, id string, out io.Writer) (string, error) {
	late := fmt.Errorf("concord process timed out, after %s seconds", strconv.FormatFloat(p.timeout.Seconds(), 'f', -1, 64))
	within, cancel := context.WithTimeoutCause(ctx, p.timeout, late)
	defer cancel()
	poll := poll{interval: max(p.interval, minInterval), endings: processEndings, out: out, ask: func(ctx context.Context) (string, string, error) {
		a, err := s.send(ctx, http.MethodGet, p.to.at("api/v1/process/"+id), "", nil)
		if err != nil {
			return "", "", err
		}
		return processState(a, p.secrets)
	}}
	state, _, err := poll.run(within)
	if errors.Is(err, late) && ctx.Err() == nil {
		last, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()
		if state, _, err = poll.ask(last); err == nil && poll.ended(state) {
			return state, nil
		}
		return "", late
	}
	if err != nil {
		return "", fmt.Errorf("concord instanceID: %s: %w", id, err)
	}
	return state, nil
}

// start returns the id of the process that was started.
func (p *process) start(ctx context.Context, s *session) (string, error) {
	ctx, cancel := linger(ctx, startGrace)
	defer cancel()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, f := range p.fields {
		form.WriteField(f[0], f[1]) // into memory
	}
	form.Close()
	a, err := s.send(ctx, http.MethodPost, p.to.at("api/v1/process"), form.FormDataContentType(), body.Bytes())
	if err != nil {
		return "", err
	}
	return processID(a, p.secrets)
}

// cancel ends the process on the server.
func (p *process) cancel(ctx context.Context, s *session, id string, out io.Writer) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stopTimeout, fmt.Errorf("no answer within %s", stopTimeout))
	defer cancel()
	if _, err := s.send(ctx, http.MethodDelete, p.to.at("api/v1/process/"+id), "", nil); err != nil {
		fmt.Fprintf(out, "concord: cancel process %s: %v\n", id, err)
		return
	}
	fmt.Fprintf(out, "concord: cancelled process %s\n", id)
}
