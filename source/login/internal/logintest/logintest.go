// Package logintest holds what the tests of logins share: a clock, fetches of a
// GitRepository or OCIRepository that use a login, and checks of the hosts that a provider
// accepts as its own.
package logintest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// A Clock is set by hand.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows now.
func NewClock(now time.Time) *Clock { return &Clock{now: now} }

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock on.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Secrets are the Secrets of every namespace, by name.
type Secrets map[string]map[string]string

// Secret implements [source.Secrets].
func (m Secrets) Secret(_ context.Context, _, name string) (source.Secret, error) {
	if m[name] == nil {
		return source.Secret{}, fs.ErrNotExist
	}
	s := source.Secret{Data: map[string][]byte{}}
	for k, v := range m[name] {
		s.Data[k] = []byte(v)
	}
	return s, nil
}

// PullSecrets implements [source.Secrets].
func (m Secrets) PullSecrets(context.Context, string, string) ([]source.Secret, error) {
	return nil, nil
}

// Repository returns a GitRepository that uses the proxy in the Secret called proxy.
func Repository(provider, url string) *source.GitRepository {
	return &source.GitRepository{
		Header: source.Header{APIVersion: "source.toolkit.fluxcd.io/v1", Kind: "GitRepository", Metadata: source.Metadata{Name: "app", Namespace: "default", Generation: 1}},
		Spec: source.GitRepositorySpec{
			URL: url, Provider: provider, Ref: &source.GitRepositoryRef{Branch: "main"}, ProxySecretRef: &source.LocalReference{Name: "proxy"},
			Timeout: source.Duration(time.Minute), Interval: source.Duration(time.Minute),
		},
	}
}

// Artifact returns an OCIRepository that uses the proxy in the Secret called proxy.
func Artifact(provider, url string) *source.OCIRepository {
	return &source.OCIRepository{
		Header: source.Header{APIVersion: "source.toolkit.fluxcd.io/v1", Kind: "OCIRepository", Metadata: source.Metadata{Name: "app", Namespace: "default", Generation: 1}},
		Spec: source.OCIRepositorySpec{
			URL: url, Provider: provider, ProxySecretRef: &source.LocalReference{Name: "proxy"},
			Timeout: source.Duration(time.Minute), Interval: source.Duration(time.Minute),
		},
	}
}

// Repo returns a repository with one commit.
func Repo(t testing.TB) *testenv.Repo {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: fstest.MapFS{"a": {Data: []byte("1"), Mode: 0o644}}})
	return repo
}

// Serve serves a repository at path over TLS, for names in addition to localhost. allow
// decides which requests succeed.
func Serve(t testing.TB, ca *testenv.CA, path string, repo *testenv.Repo, allow func(*http.Request) bool, names ...string) *testenv.GitServer {
	return testenv.ServeRepos(t, testenv.GitConfig{CA: ca, Names: names, Allow: allow}, map[string]*testenv.Repo{path: repo})
}

// Registry runs a registry that has an artifact at path.
func Registry(t testing.TB, c testenv.RegistryConfig, path string) *testenv.Registry {
	g := testenv.StartRegistry(t, c)
	g.Push(path, "latest", testenv.Manifest{Layers: []testenv.Blob{testenv.TarGzip(t, fstest.MapFS{"a": {Data: []byte("1"), Mode: 0o644}})}})
	return g
}

// ServeTLS serves h for names in addition to localhost, and returns its address.
func ServeTLS(t testing.TB, ca *testenv.CA, h http.HandlerFunc, names ...string) string {
	s := httptest.NewUnstartedServer(h)
	s.TLS = ca.ServerConfig(false, names...)
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return Host(s.URL)
}

// Stall returns a handler that reads a request, calls then, and sends nothing until the
// client has gone.
func Stall(then func()) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // a server notices that a client is gone only after its request
		then()
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // an answer could still reach a client that is closing
	}
}

// Host returns the host and port of a URL.
func Host(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u.Host
}

// A Run is one reconciliation.
type Run struct {
	Reason  string   // of Ready
	Err     error    // nil if an artifact was published
	Texts   string   // everything that users may see: the status, the events and the error
	Secrets []string // known to the origin
}

// Reconcile fetches g with login into a new store.
func Reconcile(t testing.TB, g *source.GitRepository, secrets Secrets, login source.LoginFunc) Run {
	t.Helper()
	return reconcile(t, g, git.New(g, source.Env{Secrets: secrets, Login: login}))
}

// Pull fetches o with login into a new store.
func Pull(t testing.TB, o *source.OCIRepository, secrets Secrets, login source.LoginFunc) Run {
	t.Helper()
	return reconcile(t, o, oci.New(o, source.Env{Secrets: secrets, Login: login}, nil))
}

// origin is an origin that reports the secrets that it keeps out of texts.
type origin interface {
	source.Origin
	Secrets() []string
}

func reconcile(t testing.TB, obj source.Object, from origin) (run Run) {
	t.Helper()
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var events []source.Event
	r := &source.Reconciler{Store: store, Emit: func(e source.Event) { events = append(events, e) }}
	_, run.Err = r.Reconcile(t.Context(), obj, from)
	run.Reason, run.Secrets = obj.Common().Condition(source.ReadyCondition).Reason, from.Secrets()
	all, err := json.Marshal([]any{obj, events, fmt.Sprint(run.Err)})
	if err != nil {
		t.Fatal(err)
	}
	run.Texts = string(all)
	return run
}

// A EndpointFunc is the function by which a provider recognises the URL of a login as one of its
// endpoints. It returns an error for any other URL.
type EndpointFunc[P comparable] func(*url.URL) (P, error)

// CheckEndpoints checks the endpoints that judge returns for URLs.
func CheckEndpoints[P comparable](t *testing.T, judge EndpointFunc[P], want map[string]P) {
	t.Helper()
	for s, want := range want {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := judge(u); got != want || err != nil {
			t.Errorf("%s: %#v, %v", s, got, err)
		}
	}
}

// CheckForeignURLs checks that judge rejects each URL in a text. The URLs look like those of the
// provider.
func CheckForeignURLs[P comparable](t *testing.T, judge EndpointFunc[P], urls string) {
	t.Helper()
	for s := range strings.FieldsSeq(urls) {
		u, err := url.Parse(s)
		if err != nil {
			continue // an invalid URL never reaches a login
		}
		if at, err := judge(u); err == nil {
			t.Errorf("%s is taken for %#v", s, at)
		}
	}
}
