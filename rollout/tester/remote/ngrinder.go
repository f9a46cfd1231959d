package remote

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

const defaultLoadInterval = time.Second

// startGrace is how long a request that starts something goes on after its run
// was told to end.
const startGrace = 5 * time.Second

// How tests of nGrinder end: before 3.5 and since.
var loadEndings = map[string]ending{
	"FINISHED":              {},
	"FINISHED_WITH_WARNING": {},
	"STOP_BY_ERROR":         {"stopped by an error"},
	"STOP_ON_ERROR":         {"stopped by an error"},
	"CANCELED":              {"was cancelled"},
	"UNKNOWN":               {"ended in an unknown state"},
}

// A loadTest is a test of nGrinder that is to be cloned and started.
type loadTest struct {
	servers  *Servers
	to       server
	clone    int64
	header   http.Header
	secrets  []string
	interval time.Duration
}

func (s *Servers) ngrinder(metadata map[string]string) (*loadTest, []string, error) {
	m := func(key string) string { return strings.TrimSpace(metadata[key]) }
	t := &loadTest{servers: s}
	if m("passwd") != "" {
		t.secrets = []string{m("passwd")}
	}
	for _, value := range []string{m("server") + s.LoadURL, m("clone"), m("username"), m("passwd") + m("passwdFrom")} {
		if value == "" {
			return nil, t.secrets, errors.New("server, clone, username and passwd are required metadata")
		}
	}
	var err error
	if t.to, err = s.server(m("server"), s.LoadURL); err != nil {
		return nil, t.secrets, fmt.Errorf("invalid url: %w", err)
	}
	if t.clone, err = strconv.ParseInt(m("clone"), 10, 64); err != nil || t.clone <= 0 {
		return nil, t.secrets, fmt.Errorf("metadata clone must be integer: %s is none above 0", strconv.QuoteToASCII(bounded(m("clone"), nil)))
	}
	password, err := s.password(m("passwd"), m("passwdFrom"))
	if err != nil {
		return nil, t.secrets, err
	}
	t.secrets = append(t.secrets, password)
	if strings.ContainsFunc(m("username"), func(r rune) bool { return r == ':' || isControl(r) }) {
		return nil, t.secrets, errors.New("metadata username must not have a colon or control characters")
	}
	if t.interval, err = api.ParseInterval(m("pollInterval"), defaultLoadInterval); err != nil {
		return nil, t.secrets, fmt.Errorf("metadata pollInterval: %w", err)
	}
	t.header = http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(m("username")+":"+password))}}
	return t, t.secrets, nil
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

// Run clones and starts the test, and waits for its end.
func (t *loadTest) Run(ctx context.Context, out io.Writer) error {
	s := t.servers.open(t.to, t.header, t.secrets)
	defer s.close()
	id, err := t.start(ctx, s)
	if err != nil {
		return fmt.Errorf("ngrinder: start a clone of test %d: %w", t.clone, err)
	}
	fmt.Fprintf(out, "ngrinder: started test %d, a clone of test %d, on %s\nresult %s\n", id, t.clone, t.to.url, t.to.at(path("perftest", id)))
	p := poll{interval: max(t.interval, minInterval), endings: loadEndings, out: out, ask: func(ctx context.Context) (string, string, error) {
		a, err := s.send(ctx, http.MethodGet, t.to.at(path("perftest/api", id)+"/status"), "", nil)
		if err != nil {
			return "", "", err
		}
		return loadState(a, t.secrets)
	}}
	state, message, err := p.run(ctx)
	if err != nil {
		t.stop(ctx, s, id, out)
		return fmt.Errorf("ngrinder: test %d: %w", id, err)
	}
	if words := loadEndings[state].words; words != "" {
		return fmt.Errorf("ngrinder: test %d %s", id, strings.TrimSpace(words+" ("+state+") "+message))
	}
	return nil
}

func path(prefix string, id int64) string { return prefix + "/" + strconv.FormatInt(id, 10) }

// start returns the number of the test that was started. Servers before 3.5 take
// the request without a body as well, and some only with GET.
func (t *loadTest) start(ctx context.Context, s *session) (int64, error) {
	ctx, cancel := linger(ctx, startGrace)
	defer cancel()
	at := t.to.at(path("perftest/api", t.clone) + "/clone_and_start")
	a, err := s.send(ctx, http.MethodPost, at, "application/json", []byte("{}"))
	if r, ok := errors.AsType[*refusal](err); ok && (r.status == 400 || r.status == 405 || r.status == 415) {
		var again error
		if a, again = s.send(ctx, http.MethodGet, at, "", nil); again != nil {
			return 0, fmt.Errorf("%w; and then %w", err, again)
		}
		err = nil
	}
	if err != nil {
		return 0, err
	}
	return loadID(a, t.secrets)
}

// stop ends the test on the server.
func (t *loadTest) stop(ctx context.Context, s *session, id int64, out io.Writer) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stopTimeout, fmt.Errorf("no answer within %s", stopTimeout))
	defer cancel()
	at := t.to.at(path("perftest/api", id))
	at.RawQuery = "action=stop"
	if _, err := s.send(ctx, http.MethodPut, at, "", nil); err != nil {
		fmt.Fprintf(out, "ngrinder: stop test %d: %v\n", id, err)
		return
	}
	fmt.Fprintf(out, "ngrinder: stopped test %d\n", id)
}
