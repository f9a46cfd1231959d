package logintest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// Identity is the identity token of the job, and of files that tests write.
const Identity = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.canary-signature"

// Services are the servers that a login talks to: servers with the names of real ones,
// behind a proxy and with certificates that the system trusts, including the token service
// of Actions. Values that must not appear in messages contain canary.
type Services struct {
	T       *testing.T
	CA      *testenv.CA
	Proxy   *testenv.ProxyServer
	Secrets Secrets // proxy and ca
	Clock   *Clock
	Env     map[string]string

	mu       sync.Mutex
	Requests []string         // requests to the token services
	Issued   int              // how many tokens they issued
	Revoked  bool             // whether servers refuse all of them
	Answer   http.HandlerFunc // in place of the token services, nil for none

	hosts map[string]string
}

// NewServices returns services with only the token service of Actions. vars are names and
// values of environment variables.
func NewServices(t *testing.T, vars ...string) *Services {
	w := &Services{T: t, CA: testenv.SystemCA(t), Clock: NewClock(time.Now()), Env: map[string]string{}, hosts: map[string]string{}}
	for pair := range slices.Chunk(vars, 2) {
		w.Env[pair[0]] = pair[1]
	}
	w.Serve(w.runner, "runner.example")
	w.Proxy = testenv.ServeProxy(t, testenv.ProxyConfig{Hosts: w.hosts})
	w.Secrets = Secrets{"proxy": {"address": w.Proxy.URL}, "ca": {"ca.crt": string(w.CA.PEM())}}
	return w
}

// Serve serves h under names.
func (w *Services) Serve(h http.HandlerFunc, names ...string) {
	w.Name(ServeTLS(w.T, w.CA, h, names...), names...)
}

// Name gives names to the server at an address. It must be called before the first request.
func (w *Services) Name(address string, names ...string) {
	for _, name := range names {
		w.hosts[name+":443"] = address
	}
}

// Lookup returns a variable of the environment.
func (w *Services) Lookup(name string) (string, bool) { v, ok := w.Env[name]; return v, ok }

// Note records a request to a token service.
func (w *Services) Note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Requests = append(w.Requests, fmt.Sprintf(format, args...))
}

// RequestsContaining returns the recorded requests that contain part.
func (w *Services) RequestsContaining(part string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.Requests), func(a string) bool { return !strings.Contains(a, part) })
}

// Next counts a token, and returns its number.
func (w *Services) Next() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Issued++
	return w.Issued
}

// Valid returns the number of the token that servers accept, 0 for none.
func (w *Services) Valid() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Revoked {
		return 0
	}
	return w.Issued
}

// SetAnswer sets Answer while requests may be under way.
func (w *Services) SetAnswer(h http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Answer = h
}

// TryAnswer responds with Answer, if it is set, and reports whether it is.
func (w *Services) TryAnswer(rw http.ResponseWriter, r *http.Request) bool {
	w.mu.Lock()
	answer := w.Answer
	w.mu.Unlock()
	if answer != nil {
		answer(rw, r)
	}
	return answer != nil
}

// runner issues identity tokens to jobs.
func (w *Services) runner(rw http.ResponseWriter, r *http.Request) {
	w.Note("runner %s", r.URL)
	switch {
	case w.TryAnswer(rw, r):
	case r.Header.Get("Authorization") != "Bearer runner-canary":
		rw.WriteHeader(http.StatusUnauthorized)
	default:
		Reply(rw, 200, map[string]any{"count": 1, "value": Identity})
	}
}

// Job returns the variables of a job of Actions, and more.
func Job(more ...string) []string {
	return append([]string{"ACTIONS_ID_TOKEN_REQUEST_URL", "https://runner.example/token?api-version=2.0", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "runner-canary"}, more...)
}

// Request returns the login request of an object that uses the proxy.
func (w *Services) Request(provider, u string) source.LoginRequest {
	w.T.Helper()
	at, err := url.Parse(u)
	if err != nil {
		w.T.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return url.Parse(w.Proxy.URL) }}}
	w.T.Cleanup(client.CloseIdleConnections)
	return source.LoginRequest{Provider: provider, URL: at, Namespace: "default", Client: client}
}

// ServiceAccount is the name of the service account of [Services.Account].
const ServiceAccount = "robot"

// Account returns a [source.AccountFunc] that knows only [ServiceAccount]. annotations are
// names and values. The token of the account is the identity token of jobs.
func (w *Services) Account(annotations ...string) source.AccountFunc {
	return func(_ context.Context, namespace, name string) (*source.Account, error) {
		if name != ServiceAccount {
			return nil, fmt.Errorf("service account %s/%s does not exist", namespace, name)
		}
		a := &source.Account{Namespace: namespace, Name: name, UID: "1", Annotations: map[string]string{}}
		for pair := range slices.Chunk(annotations, 2) {
			a.Annotations[pair[0]] = pair[1]
		}
		a.Token = func(_ context.Context, audience string) (string, error) {
			w.Note("account %s", audience)
			if w.Revoked {
				return "", errors.New("tokens of " + namespace + "/" + name + " are forbidden")
			}
			return Identity, nil
		}
		return a, nil
	}
}

// LogIn logs in to u as [ServiceAccount], and checks that an error shows no secret.
func (w *Services) LogIn(login source.LoginFunc, provider, u string, account source.AccountFunc) (source.Credential, error) {
	w.T.Helper()
	r := w.Request(provider, u)
	r.ServiceAccount = ServiceAccount
	r.Account = func(ctx context.Context) (*source.Account, error) { return account(ctx, r.Namespace, r.ServiceAccount) }
	c, err := login(w.T.Context(), r)
	if err != nil && (strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "eyJ")) {
		w.T.Errorf("a secret shows: %v", err)
	}
	return c, err
}

// Fetch is [Reconcile] with the Secrets of w.
func (w *Services) Fetch(login source.LoginFunc, g *source.GitRepository) Run {
	w.T.Helper()
	return w.checkSecrets(Reconcile(w.T, g, w.Secrets, login))
}

// Pull is [Pull] with the Secrets of w.
func (w *Services) Pull(login source.LoginFunc, o *source.OCIRepository) Run {
	w.T.Helper()
	return w.checkSecrets(Pull(w.T, o, w.Secrets, login))
}

// checkSecrets checks that no text of a run shows a secret.
func (w *Services) checkSecrets(run Run) Run {
	w.T.Helper()
	for _, secret := range []string{"canary", "eyJ", "PRIVATE"} {
		if strings.Contains(run.Texts, secret) {
			w.T.Errorf("a secret shows: %s", run.Texts)
		}
	}
	return run
}

// RequireTunnels checks that the proxy received only CONNECT requests, and none for direct.
func (w *Services) RequireTunnels(direct string) {
	w.T.Helper()
	for _, seen := range w.Proxy.Requests() {
		if !strings.HasPrefix(seen, "CONNECT ") || direct != "" && strings.Contains(seen, direct) {
			w.T.Errorf("the proxy could read along: %s", seen)
		}
	}
}

// RequireFailure checks that a run failed for a reason, and that its error contains each part of
// say, separated by |.
func (run Run) RequireFailure(t testing.TB, reason, say string) {
	t.Helper()
	if run.Err == nil || run.Reason != reason {
		t.Fatalf("%s, %v", run.Reason, run.Err)
	}
	for part := range strings.SplitSeq(say, "|") {
		if !strings.Contains(run.Err.Error(), part) {
			t.Errorf("%v: does not say %s", run.Err, part)
		}
	}
}

// Reply sends body as a JSON response.
func Reply(rw http.ResponseWriter, status int, body any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	json.NewEncoder(rw).Encode(body)
}

// Answers returns a handler that sends the same response to every request.
func Answers(status int, body string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(status)
		fmt.Fprint(rw, body)
	}
}

// Redirects returns a handler that redirects to a URL.
func Redirects(to string) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, to, http.StatusTemporaryRedirect) }
}

// ServeLoopback serves h without TLS on loopback, and returns its URL.
func ServeLoopback(t testing.TB, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// File writes a file, and returns its name.
func File(t testing.TB, text string) string {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
