package chart_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// TestRepositoryUnchangedCostsOne304 stores exactly the index of the server, however it is
// sent. An unchanged index costs one response without content.
func TestRepositoryUnchangedCostsOne304(t *testing.T) {
	for name, c := range map[string]testenv.ChartsConfig{
		"ETag and date": {}, "weak ETag": {WeakETags: true}, "ETag alone, JSON": {NoLastModified: true, JSON: true}, "date alone": {NoETag: true}, "gzip": {Gzip: true, WeakETags: true}, "gzip, JSON": {Gzip: true, JSON: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepositorySetup(t, c)
			for i := range 40 {
				r.server.Put(testenv.ChartVersion{Name: "web", Version: fmt.Sprint("1.0.", i)})
			}
			obj := r.object(nil)
			r.run(obj, source.Stored)
			testenv.Equal(t, r.server.ContentBytes() < int64(len(r.server.Index())), c.Gzip, "it came compressed: %d bytes for %d", r.server.ContentBytes(), len(r.server.Index()))
			if !strings.HasSuffix(obj.Status.URL, "/pkgrepository/default/charts/index.yaml") {
				t.Errorf("status.url %s", obj.Status.URL)
			}
			r.requireStatuses(200)
			for range 2 {
				r.run(r.object(nil), source.Unchanged)
				r.requireStatuses(304)
			}
			r.server.Put(testenv.ChartVersion{Name: "web", Version: "1.1.0"})
			r.run(obj, source.Stored)
			r.requireStatuses(200)
			if !bytes.Equal(r.bytes(obj.Artifact()), r.server.Index()) {
				t.Error("the new artifact is not the new index")
			}
			r.run(r.object(nil), source.Unchanged)
			r.requireStatuses(304)
		})
	}
}

// TestRepositoryWithoutValidators compares the content if there are no validators, and
// rejects a 304 to an unconditional request.
func TestRepositoryWithoutValidators(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{NoETag: true, NoLastModified: true})
	r.server.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	obj := r.object(nil)
	r.run(obj, source.Stored)
	r.run(obj, source.Unchanged)
	r.requireStatuses(200, 200)
	r.server.Break(testenv.Status(http.StatusNotModified))
	r.mustRefuse(obj, "Failed", "304 Not Modified: the server answers as if")
}

func TestRepositoryInAnotherOrderIsNoNewArtifact(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{})
	entry := func(name, version string) string {
		return "  - {name: " + name + ", version: " + version + ", urls: [" + name + ".tgz], digest: \"" + strings.Repeat("0", 64) + "\"}\n"
	}
	r.server.SetIndex([]byte("apiVersion: v1\nentries:\n  a:\n" + entry("a", "1.0.0") + entry("a", "2.0.0") + "  b:\n" + entry("b", "1.0.0")))
	obj := r.object(nil)
	r.run(obj, source.Stored)
	r.server.SetIndex([]byte("entries:\n  b:\n" + entry("b", "1.0.0") + "  a:\n" + entry("a", "2.0.0") + entry("a", "1.0.0") + "apiVersion: v1\ngenerated: \"2026-01-01T00:00:00Z\"\n"))
	r.run(obj, source.Unchanged)
	r.run(obj, source.Unchanged)
	r.requireStatuses(200, 200, 304)
}

// TestRepositoryLostArtifactOfBytesThatAreGone uses a server that sets a new timestamp at
// each request, so that the lost bytes cannot be fetched again.
func TestRepositoryLostArtifactOfBytesThatAreGone(t *testing.T) {
	var r *repositorySetup
	stamp := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r = newRepositorySetup(t, testenv.ChartsConfig{Allow: func(*http.Request) bool {
		stamp = stamp.Add(time.Second)
		r.server.SetIndex(fmt.Appendf(nil, "apiVersion: v1\nentries:\n  web:\n  - name: web\n    version: 1.0.0\n    urls: [web.tgz]\ngenerated: %q\n", stamp.Format(time.RFC3339)))
		return true
	}})
	obj := r.object(nil)
	r.run(obj, source.Stored)
	r.run(obj, source.Unchanged)
	lost := *obj.Artifact()
	r.deleteFile(&lost)
	r.run(obj, source.Stored)
	if obj.Artifact().Revision == lost.Revision {
		t.Error("another index goes by the revision of the one that is lost")
	}
	r.bytes(obj.Artifact())
	r.run(obj, source.Unchanged)
}

// TestRepositoryMovesOn treats an index that changes between Resolve and Open as another
// revision.
func TestRepositoryMovesOn(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{})
	r.server.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	obj := r.object(nil)
	first := r.origin(obj)
	rev, state, err := first.Resolve(t.Context(), nil)
	must(t, err)
	r.server.Put(testenv.ChartVersion{Name: "web", Version: "1.1.0"})
	nextOrigin := r.origin(obj)
	if _, err := nextOrigin.Open(t.Context(), rev); !errors.Is(err, source.ErrMoved) {
		t.Fatalf("open: %v", err)
	}
	now, _, err := nextOrigin.Resolve(t.Context(), state)
	if err != nil || now.ID == rev.ID {
		t.Fatalf("resolved %s, %v", now.ID, err)
	}
	c, err := nextOrigin.Open(t.Context(), now)
	must(t, err)
	c.Close()
	if c, err = first.Open(t.Context(), rev); err != nil { // the first origin has kept it
		t.Fatal(err)
	}
	c.Close()
}

func TestRepositoryFromADirectory(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{})
	r.server.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	dir, obj := t.TempDir(), r.object(nil)
	r.local = map[string]string{obj.Spec.URL: dir}
	r.mustRefuse(obj, "Failed", "run helm repo index", "index.yaml")
	must(t, os.WriteFile(filepath.Join(dir, "index.yaml"), r.server.Index(), 0o644))
	r.run(obj, source.Stored)
	if !bytes.Equal(r.bytes(obj.Artifact()), r.server.Index()) {
		t.Error("the artifact is not the file")
	}
	r.run(obj, source.Unchanged)
	must(t, os.WriteFile(filepath.Join(dir, "index.yaml"), []byte("[]"), 0o644))
	r.mustRefuse(obj, "IndexationFailed", dir)
	r.requireStatuses()
}

// TestRepositoryStoresWhatFollowsTheIndex stores the whole response, including everything
// after the index.
func TestRepositoryStoresWhatFollowsTheIndex(t *testing.T) {
	for _, end := range []string{"", "...\n"} { // the second ends the document
		r := newRepositorySetup(t, testenv.ChartsConfig{})
		r.server.SetIndex([]byte("apiVersion: v1\nentries: {}\n" + end + strings.Repeat("# more\n", 40_000)))
		obj := r.object(nil)
		r.run(obj, source.Stored)
		if got := r.bytes(obj.Artifact()); !bytes.Equal(got, r.server.Index()) {
			t.Errorf("after %q: stored %d of %d bytes", end, len(got), len(r.server.Index()))
		}
	}
}

func TestRepositoryReportsProgress(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{})
	r.server.SetIndex([]byte("apiVersion: v1\nentries: {}\n" + strings.Repeat("# more\n", 1<<19)))
	var progress []int64
	env := source.Env{Limits: r.limits, Progress: func(p source.Progress) {
		if p.Object != "pkgrepository/default/charts" || p.Total != int64(len(r.server.Index())) || p.Unit != "bytes" {
			t.Errorf("progress %+v", p)
		}
		progress = append(progress, p.Done)
	}}
	obj := r.object(nil)
	r.MustStore(obj, chart.NewRepository(obj, env))
	if len(progress) < 3 || len(progress) > 10 || !slices.IsSorted(progress) {
		t.Errorf("progress %v", progress)
	}
}

// TestRepositoryChangedTwiceInOneSecond: a date has a resolution of a second, in which an
// index may change twice.
func TestRepositoryChangedTwiceInOneSecond(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{NoETag: true, NoLastModified: true})
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	modified := now
	r.server.Break(serveInstead(func(w http.ResponseWriter, req *http.Request, _ http.Handler) {
		w.Header().Set("Date", now.Format(http.TimeFormat))
		http.ServeContent(w, req, "", modified, bytes.NewReader(r.server.Index()))
	}))
	obj := r.object(nil)
	r.server.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	r.run(obj, source.Stored)
	r.server.Put(testenv.ChartVersion{Name: "web", Version: "1.1.0"})
	now = now.Add(time.Hour)
	r.run(obj, source.Stored)
	r.run(obj, source.Unchanged)
	r.requireStatuses(200, 200, 304)
}

// sharedEnv returns an environment in which objects share everything that they can.
func (r *repositorySetup) sharedEnv() source.Env {
	r.Helper()
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: r.TempDir()})
	must(r, err)
	r.Cleanup(func() { cache.Close() })
	env := source.Env{Secrets: r.secrets, Cache: cache, Share: new(source.Share), Since: time.Now(), Reuse: new(source.Connections)}
	r.Cleanup(env.Reuse.Close)
	return env
}

// repositories reconciles several objects for one repository, and keeps their states.
type repositories struct {
	*repositorySetup
	mu     sync.Mutex
	states map[string]source.State
	status map[string]source.Status
}

// run reconciles n objects concurrently, and returns the statuses of the server's
// responses.
func (f *repositories) run(n int, env source.Env, edit func(i int, obj *source.PkgRepository)) (statuses []int, err error) {
	errs := make([]error, n)
	var all sync.WaitGroup
	before := len(f.server.Requests())
	for i := range n {
		obj := f.object(nil)
		obj.Metadata.Name = fmt.Sprint("charts-", i)
		edit(i, obj)
		name := obj.Metadata.Namespace + "/" + obj.Metadata.Name
		f.mu.Lock() // objects started earlier are running already
		obj.Status = f.status[name]
		last := f.states[name]
		f.mu.Unlock()
		all.Go(func() { errs[i] = f.runOne(obj, name, last, env) })
	}
	all.Wait()
	for _, q := range f.server.Requests()[before:] {
		statuses = append(statuses, q.Status)
	}
	return statuses, errors.Join(errs...)
}

func (f *repositories) runOne(obj *source.PkgRepository, name string, last source.State, env source.Env) error {
	var next source.State
	reconciler := &source.Reconciler{Store: f.Store,
		Load: func(context.Context, source.Object) (source.State, error) { return last, nil },
		Save: func(_ context.Context, _ source.Object, s source.State) error { next = s; return nil }}
	_, err := reconciler.Reconcile(f.Context(), obj, chart.NewRepository(obj, env))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states[name], f.status[name] = next, obj.Status
	if err == nil && obj.Artifact() == nil {
		err = errors.New("no artifact")
	}
	return err
}

func newRepositories(t *testing.T, c testenv.ChartsConfig) *repositories {
	r := newRepositorySetup(t, c)
	r.server.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	return &repositories{repositorySetup: r, states: map[string]source.State{}, status: map[string]source.Status{}}
}

// TestRepositoryFleetAsksOnce: objects of one repository that are due together cost as many
// requests as one object.
func TestRepositoryFleetAsksOnce(t *testing.T) {
	f := newRepositories(t, testenv.ChartsConfig{})
	env := f.sharedEnv()
	noEdit := func(int, *source.PkgRepository) {}
	for _, want := range []string{"[200]", "[304]", "[304]"} {
		env.Since = time.Now()
		if statuses, err := f.run(10, env, noEdit); fmt.Sprint(statuses) != want || err != nil {
			t.Errorf("statuses %v, %v, want %v", statuses, err, want)
		}
	}
	f.server.Put(testenv.ChartVersion{Name: "web", Version: "1.1.0"})
	env.Since = time.Now()
	if statuses, err := f.run(12, env, noEdit); fmt.Sprint(statuses) != "[200 200]" || err != nil { // two of them are new
		t.Errorf("statuses %v, %v", statuses, err)
	}
}

// TestRepositoryFleetApart: objects with other credentials send their own request.
func TestRepositoryFleetApart(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(i int, obj *source.PkgRepository)
		want    string
		refused string
	}{
		"the same": {func(int, *source.PkgRepository) {}, "[200]", ""},
		"no Secret": {func(i int, obj *source.PkgRepository) {
			if i == 1 {
				obj.Spec.SecretRef = nil
			}
		}, "[200 401]", "401"},
		"who passes them on": {func(i int, obj *source.PkgRepository) { obj.Spec.PassCredentials = i == 1 }, "[200 200]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newRepositories(t, testenv.ChartsConfig{Username: "user", Password: repoCanary})
			f.secrets["default/login"] = source.Secret{Data: map[string][]byte{"username": []byte("user"), "password": []byte(repoCanary)}}
			env := f.sharedEnv()
			total := []int{}
			var errs []error
			for i := range 2 { // in sequence, so that the order is known
				statuses, err := f.run(1, env, func(_ int, obj *source.PkgRepository) {
					obj.Metadata.Name = fmt.Sprint("own-", i)
					obj.Spec.SecretRef = &source.LocalReference{Name: "login"}
					c.edit(i, obj)
				})
				total, errs = append(total, statuses...), append(errs, err)
			}
			err := errors.Join(errs...)
			if fmt.Sprint(total) != c.want || (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("statuses %v, %v; want %v", total, err, c.want)
			}
		})
	}
}

// serveInstead responds with a handler instead of the server.
func serveInstead(h func(w http.ResponseWriter, r *http.Request, next http.Handler)) *testenv.Defect {
	return &testenv.Defect{Do: testenv.Serve, Handler: h}
}

func TestRepositoryHostileIndexes(t *testing.T) {
	for name, text := range map[string]string{
		"NULs alone": strings.Repeat("\x00", 1<<20),
		"escape":     "apiVersion: v1\nentries:\n  \"a\x1b]0;pwned\x07\": x\n",
		"archive":    string(testenv.ChartArchive(t, map[string]string{"a": "b"})),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepositorySetup(t, testenv.ChartsConfig{})
			r.server.SetIndex([]byte(text))
			obj := r.object(nil)
			r.mustRefuse(obj, "IndexationFailed", r.server.URL()+"/index.yaml")
			r.server.SetIndex(nil)
			r.run(obj, source.Stored)
			r.server.SetIndex([]byte(text))
			r.mustRefuse(obj, "IndexationFailed")
		})
	}
}

func TestRepositoryLimitHoldsWhileReading(t *testing.T) {
	const limit = 1 << 20
	squeezed := func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Encoding", "gzip")
		writeForever(gzip.NewWriter(w), "apiVersion: v1\nentries: {}\n# ", "x")
	}
	for name, d := range map[string]*testenv.Defect{
		"versions without end": {Do: testenv.EndlessList},
		"compressed bomb":      serveInstead(squeezed),
		"one name without end": {Do: testenv.OversizedBody, After: 64 << 20},
		"blank lines after all": serveInstead(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			writeForever(w, "apiVersion: v1\nentries: {}\n", "\n")
		}),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepositorySetup(t, testenv.ChartsConfig{})
			obj := r.object(nil)
			r.run(obj, source.Stored)
			r.limits.Bytes = limit
			r.server.Reset()
			r.server.Break(d)
			r.mustRefuse(obj, "Failed", "larger than 1048576 bytes")
			if got := r.server.ContentBytes(); got > limit+8<<20 {
				t.Errorf("the server sent %d bytes", got)
			}
		})
	}
}

// writeForever writes first, and then filler until writing fails.
func writeForever(w io.Writer, first, filler string) {
	_, err := io.WriteString(w, first)
	for block := strings.Repeat(filler, 64<<10); err == nil; {
		_, err = io.WriteString(w, block)
	}
}

func TestRepositoryCodingThatWasNotAskedFor(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{})
	coding := ""
	r.server.Break(serveInstead(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		w.Header().Set("Content-Encoding", coding)
		next.ServeHTTP(w, r)
	}))
	for _, coding = range []string{"br", "BR", "zstd", "x-gzip", "aws-chunked, deflate"} {
		r.mustRefuse(r.object(nil), "Failed", "which was not asked for")
	}
}

// TestRepositoryCodingThatIsNone: a Content-Encoding that names no compression changes no
// bytes.
func TestRepositoryCodingThatIsNone(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{})
	coding := ""
	r.server.Break(serveInstead(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		w.Header().Set("Content-Encoding", coding)
		next.ServeHTTP(w, r)
	}))
	obj := r.object(nil)
	for _, coding = range []string{"utf-8", "aws-chunked", "identity", "none"} {
		r.server.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0", Entry: map[string]any{"description": coding}})
		r.run(obj, source.Stored)
	}
}

// TestRepositoryETagThatLies: a server may lie about what changed, but stored content
// always matches its revision.
func TestRepositoryETagThatLies(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{})
	r.server.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	n := 0
	r.server.Break(serveInstead(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		n++
		w.Header().Set("ETag", fmt.Sprintf(`"%d"`, n))
		w.Write(r.server.Index())
	}))
	obj := r.object(nil)
	r.run(obj, source.Stored)
	r.run(obj, source.Unchanged)
	r.run(obj, source.Unchanged)
	r.requireStatuses(200, 200, 200)
	r.bytes(obj.Artifact())
	r.server.Break(serveInstead(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("ETag", strings.Repeat("e", 64<<10)) // too long to be stored
		w.Write(r.server.Index())
	}))
	r.run(obj, source.Unchanged)
	r.run(obj, source.Unchanged)
	if got := r.server.Requests()[1].Header.Get("If-None-Match"); got != "" {
		t.Errorf("an ETag of %d bytes came back", len(got))
	}
}

// TestRepositoryRedirectToAnotherHost: the target of a redirect of the index gets neither
// password nor certificate.
func TestRepositoryRedirectToAnotherHost(t *testing.T) {
	for _, pass := range []bool{false, true} {
		t.Run(fmt.Sprintf("passCredentials %t", pass), func(t *testing.T) {
			ca := testenv.NewCA(t)
			other := testenv.StartCharts(t, testenv.ChartsConfig{CA: ca})
			other.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
			r := newRepositorySetup(t, testenv.ChartsConfig{CA: ca, Mutual: true, Username: "user", Password: repoCanary, Defect: testenv.Redirect(other.Base)})
			obj := r.object(func(s *source.PkgRepositorySpec) {
				s.SecretRef, s.CertSecretRef, s.PassCredentials = &source.LocalReference{Name: "login"}, &source.LocalReference{Name: "tls"}, pass
			})
			r.run(obj, source.Stored)
			if q := r.server.Requests()[0]; q.Authorization == "" || q.Certificate != "user" {
				t.Errorf("the repository was shown %q and the certificate %q", q.Authorization, q.Certificate)
			}
			if q := other.Requests(); len(q) != 1 || q[0].Authorization != "" || q[0].Certificate != "" {
				t.Errorf("the other host was asked %+v", q)
			}
			r.run(obj, source.Unchanged)
			if q := other.Requests(); len(q) != 2 || q[1].Status != http.StatusNotModified {
				t.Errorf("the other host was asked %+v", q)
			}
		})
	}
}

func TestRepositoryTLSSettings(t *testing.T) {
	ca, stranger := testenv.NewCA(t), testenv.NewCA(t)
	cert, key := stranger.Client("stranger")
	for _, c := range []struct {
		name         string
		login, certs source.Secret
		says         string // in the error, "" if there is none
		note         string
	}{
		{"certSecretRef", source.Secret{}, tlsSecret(ca, "ca.crt", "tls.crt", "tls.key"), "", ""},
		{"certSecretRef, deprecated spelling", source.Secret{}, tlsSecret(ca, "caFile", "certFile", "keyFile"), "", ""},
		{"secretRef, deprecated", tlsSecret(ca, "caFile", "certFile", "keyFile"), source.Secret{}, "", "caFile, certFile, keyFile of spec.secretRef are deprecated"},
		{"certSecretRef wins", sourcetest.Secret("caFile", string(stranger.PEM()), "certFile", string(cert), "keyFile", string(key)), tlsSecret(ca, "ca.crt", "tls.crt", "tls.key"), "", ""},
		{"certSecretRef wins as a whole", tlsSecret(ca, "caFile", "certFile", "keyFile"), sourcetest.Secret("ca.crt", string(stranger.PEM())), "certificate", ""},
		{"newer keys in secretRef", tlsSecret(ca, "ca.crt", "tls.crt", "tls.key"), source.Secret{}, "certificate", ""},
		{"nothing", source.Secret{}, source.Secret{}, "ca.crt of a server that the system does not know", ""},
		{"certificate without key", source.Secret{}, sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert)), "key tls.key is missing", ""},
		{"key that is none", sourcetest.Secret("caFile", string(ca.PEM()), "certFile", string(cert), "keyFile", repoCanary), source.Secret{}, "key keyFile is not PEM", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRepositorySetup(t, testenv.ChartsConfig{CA: ca, Mutual: true})
			obj := r.object(nil)
			if c.login.Data != nil {
				r.secrets["default/login"], obj.Spec.SecretRef = c.login, &source.LocalReference{Name: "login"}
			}
			if c.certs.Data != nil {
				r.secrets["default/tls"], obj.Spec.CertSecretRef = c.certs, &source.LocalReference{Name: "tls"}
			}
			if c.says != "" {
				r.mustRefuse(obj, "AuthenticationFailed", c.says)
				return
			}
			result := r.run(obj, source.Stored)
			if notes := strings.Join(result.Report.Notes, "\n"); !strings.Contains(notes, c.note) || c.note == "" && notes != "" {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
			testenv.Equal(t, r.server.Requests()[0].Certificate, "user", "certificate")
		})
	}
}

// tlsSecret returns a CA, a client certificate and its key under the given keys.
func tlsSecret(ca *testenv.CA, caKey, certKey, keyKey string) source.Secret {
	cert, key := ca.Client("user")
	return sourcetest.Secret(caKey, string(ca.PEM()), certKey, string(cert), keyKey, string(key))
}

func TestRepositoryCredentials(t *testing.T) {
	r := newRepositorySetup(t, testenv.ChartsConfig{Username: "user", Password: repoCanary})
	r.server.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0"})
	named := func(name string) func(*source.PkgRepositorySpec) {
		return func(s *source.PkgRepositorySpec) { s.SecretRef = &source.LocalReference{Name: name} }
	}
	r.mustRefuse(r.object(nil), "AuthenticationFailed", "401 Unauthorized")
	r.mustRefuse(r.object(named("wrong")), "AuthenticationFailed", "401 Unauthorized")
	inURL := func(user *url.Userinfo, edit func(*source.PkgRepositorySpec)) func(*source.PkgRepositorySpec) {
		return func(s *source.PkgRepositorySpec) {
			u, _ := url.Parse(s.URL)
			u.User = user
			if s.URL = u.String(); edit != nil {
				edit(s)
			}
		}
	}
	r.mustRefuse(r.object(inURL(url.UserPassword("user", repoCanary), named("wrong"))), "AuthenticationFailed", "401") // the Secret takes precedence
	r.run(r.object(inURL(url.UserPassword("user", repoCanary), nil)), source.Stored)
	r.server.Reset()
	r.run(r.object(named("login")), source.Unchanged)
	r.run(r.object(named("login")), source.Unchanged)
	r.requireStatuses(200, 304) // the ETag was sent to other credentials

	r.secrets["default/login"] = sourcetest.Secret("username", "user", "password", repoCanary, "other", "value")
	r.run(r.object(named("login")), source.Unchanged)
	r.requireStatuses(200)
}
