package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// A fixture is a server whose feed and origins a test controls.
type fixture struct {
	testing.TB
	serve.Config
	*serve.Server
	feed   *feed
	cancel context.CancelFunc
	ended  chan error

	mu        sync.Mutex
	origins   map[string]*upstream // by the URL of the object
	runs      []serve.Run
	events    []source.Event
	firstRuns []serve.Run // the runs at the start
}

// newFixture returns a fixture whose server does not run yet.
func newFixture(t *testing.T) *fixture {
	dir := t.TempDir()
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: filepath.Join(dir, "store"), BaseURL: "http://localhost"})
	must(t, err)
	t.Cleanup(func() { store.Close() })
	r := &fixture{TB: t, feed: &feed{news: make(chan struct{}, 1)}, ended: make(chan error, 1), origins: make(map[string]*upstream)}
	r.Config = serve.Config{
		Feed: r.feed, Store: store, Statuses: &source.Ledger{Dir: filepath.Join(dir, "ledger")},
		Origin: r.origin, Scrub: -1,
		Observe: func(run serve.Run) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.runs = append(r.runs, run)
		},
		Emit: func(e source.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e)
		},
	}
	return r
}

// withFixture calls test in a [synctest] bubble, with a fixture whose objects have had their first run. If before is not nil, it
// adjusts the fixture first.
func withFixture(t *testing.T, objects []source.Object, before, test func(*fixture)) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t)
		if r.feed.now.Objects = objects; before != nil {
			before(r)
		}
		r.start()
		r.firstRuns = r.takeRuns()
		test(r)
		r.stop()
	})
}

func list(objects ...source.Object) []source.Object { return objects }

// put makes the feed supply objects.
func (r *fixture) put(objects ...source.Object) { r.feed.put(serve.Desired{Objects: objects}) }

// describe returns the names, triggers and outcomes of runs.
func describe(runs []serve.Run) string {
	var all []string
	for _, run := range runs {
		all = append(all, fmt.Sprintf("%s %s %s", run.Object.Name, run.Trigger, run.Result.Outcome))
	}
	return strings.Join(all, ", ")
}

// wantRuns expects the runs since the last call of wantRuns or takeRuns, in their order.
func (r *fixture) wantRuns(want string) {
	r.Helper()
	testenv.Equal(r.TB, describe(r.takeRuns()), want, "ran")
}

func (r *fixture) view(name string) serve.View {
	r.Helper()
	v, err := r.View(repoRef(name))
	r.must(err)
	return v
}

// wantPhase expects the named objects to be in a phase.
func (r *fixture) wantPhase(phase serve.Phase, names ...string) {
	r.Helper()
	for _, name := range names {
		testenv.Equal(r.TB, r.view(name).Phase, phase, name)
	}
}

// count returns how many objects are in the phases.
func (r *fixture) count(phases ...serve.Phase) (n int) {
	for _, v := range r.Views() {
		if slices.Contains(phases, v.Phase) {
			n++
		}
	}
	return n
}

// restart replaces the server by another one with the same files, feed and upstreams. It calls between, unless nil, while
// no server runs.
func (r *fixture) restart(between func()) {
	r.Helper()
	r.stop()
	r.takeRuns()
	r.Statuses = &source.Ledger{Dir: r.ledger().Dir}
	if between != nil {
		between()
	}
	r.start()
}

// must ends the test if there is an error.
func (r *fixture) must(errs ...error) {
	r.Helper()
	must(r.TB, errors.Join(errs...))
}

// push gives an upstream a new revision.
func (u *upstream) push() {
	u.set(func(u *upstream) {
		u.pushed++
		u.rev = fmt.Sprintf("main@sha1:%040d", u.pushed)
	})
}

// fail makes an upstream answer with err, or succeed again if err is nil.
func (u *upstream) fail(err error) { u.set(func(u *upstream) { u.err = err }) }

// start runs a new server until stop.
func (r *fixture) start() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.Server = newServer(r.TB, r.Config)
	go func() { r.ended <- r.Run(ctx) }()
	settle()
}

// newServer returns a server with a valid configuration.
func newServer(t testing.TB, c serve.Config) *serve.Server {
	t.Helper()
	s, err := serve.New(c)
	must(t, err)
	return s
}

// ledger returns the ledger with the statuses of the fixture.
func (r *fixture) ledger() *source.Ledger { return r.Statuses.(*source.Ledger) }

// settle waits until all goroutines are blocked, and those that found a file locked have retried.
func settle() {
	synctest.Wait()
	time.Sleep(settleTime)
	synctest.Wait()
}

const settleTime = 100 * time.Millisecond

// stop ends the server.
func (r *fixture) stop() {
	r.Helper()
	r.cancel()
	testenv.Equal(r.TB, <-r.ended, nil, "Run")
}

// takeRuns returns the runs that ended since its last call.
func (r *fixture) takeRuns() []serve.Run {
	settle()
	r.mu.Lock()
	defer r.mu.Unlock()
	runs := r.runs
	r.runs = nil
	return runs
}

// emittedEvents returns the events so far.
func (r *fixture) emittedEvents() []source.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// upstream returns the upstream at a URL.
func (r *fixture) upstream(url string) *upstream {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.origins[url]
	if u == nil {
		u = &upstream{rev: fmt.Sprintf("main@sha1:%040d", 0)}
		r.origins[url] = u
	}
	return u
}

func (r *fixture) origin(obj source.Object, env source.Env) (source.Origin, error) {
	return &origin{r.upstream(source.OriginOf(obj)), obj, env}, nil
}

// An upstream answers the requests of origins.
type upstream struct {
	mu           sync.Mutex
	rev          string
	pushed       int
	err          error         // of Resolve
	panics       bool          // in Resolve
	resolveDelay time.Duration // of Resolve
	openDelay    time.Duration // of Open
	secret       string        // name of the Secret that Resolve looks up
	account      string        // service account whose pull Secrets Resolve looks up
	resolves     int
	opens        int
}

func (u *upstream) set(change func(u *upstream)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	change(u)
}

type origin struct {
	upstream *upstream
	obj      source.Object
	env      source.Env
}

func (o *origin) Resolve(ctx context.Context, _ source.State) (source.Revision, source.State, error) {
	o.upstream.mu.Lock()
	o.upstream.resolves++
	hang, err, rev, panics, secret, account := o.upstream.resolveDelay, o.upstream.err, o.upstream.rev, o.upstream.panics, o.upstream.secret, o.upstream.account
	o.upstream.mu.Unlock()
	if panics {
		panic("a defect")
	}
	if secret != "" {
		if _, err := o.env.Secrets.Secret(ctx, "default", secret); err != nil {
			return source.Revision{}, nil, err
		}
	}
	if account != "" {
		o.env.Secrets.PullSecrets(ctx, "default", account)
	}
	if err := pause(ctx, hang); err != nil {
		return source.Revision{}, nil, err
	}
	if err != nil {
		return source.Revision{}, nil, err
	}
	needed, err := source.Needed(ctx, o.obj, o.env.Sources)
	if err != nil {
		return source.Revision{}, nil, err
	}
	r := source.Revision{ID: rev, File: "content.tar.gz"}
	if _, is := o.obj.(*source.PkgRepository); is {
		r.File = "index.yaml"
	}
	for _, n := range needed {
		if rev == "" {
			break // inputs matter only for artifacts
		}
		if n.Artifact() == nil {
			return source.Revision{}, nil, fmt.Errorf("%w: %s has no artifact", source.ErrWaiting, n.Head())
		}
		r.Inputs = append(r.Inputs, *n.Artifact())
	}
	return r, nil, nil
}

func (o *origin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	var slow time.Duration
	o.upstream.set(func(u *upstream) {
		u.opens++
		slow = u.openDelay
	})
	if err := pause(ctx, slow); err != nil {
		return nil, err
	}
	return content{rev}, nil
}

type content struct{ rev source.Revision }

func (content) Verify(context.Context) (source.Verification, error) {
	return source.Verification{}, nil
}

func (content) Close() error { return nil }

func (c content) WriteTo(_ context.Context, w io.Writer) (source.Report, error) {
	_, err := fmt.Fprintln(w, c.rev.ID)
	for _, in := range c.rev.Inputs {
		fmt.Fprintln(w, in.Digest)
	}
	return source.Report{}, err
}

// An archiveOrigin origin packs the files of each revision into an archive.
type archiveOrigin struct {
	source.Origin
	files func(id string) fstest.MapFS
}

func (a archiveOrigin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	c, err := a.Origin.Open(ctx, rev)
	return archiveContent{c, a.files(rev.ID)}, err
}

type archiveContent struct {
	source.Content
	files fstest.MapFS
}

func (c archiveContent) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	report, err := artifact.Pack(ctx, w, c.files)
	return source.Report{Report: report}, err
}

func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A feed supplies the Desired that a test sets.
type feed struct {
	mu   sync.Mutex
	now  serve.Desired
	err  error
	news chan struct{}
}

// set makes the feed supply d.
func (f *feed) set(d serve.Desired) {
	f.mu.Lock()
	f.now = d
	f.mu.Unlock()
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// put calls set in a [synctest] bubble, and waits until the server has handled d.
func (f *feed) put(d serve.Desired) {
	f.set(d)
	synctest.Wait()
}

func (f *feed) Follow(ctx context.Context, set func(serve.Desired)) error {
	for {
		f.mu.Lock()
		d, err := f.now, f.err
		f.mu.Unlock()
		if err != nil {
			return err
		}
		set(d)
		select {
		case <-f.news:
		case <-ctx.Done():
			return nil
		}
	}
}

// repo returns a GitRepository with an interval, which includes others.
func repo(name, url string, interval time.Duration, includes ...string) *source.GitRepository {
	g := new(source.GitRepository)
	g.APIVersion, g.Kind = source.Group+"/v1", "GitRepository"
	g.Metadata.Name, g.Metadata.Namespace = name, "default"
	g.Spec.URL, g.Spec.Interval = url, source.Duration(interval)
	for _, name := range includes {
		g.Spec.Include = append(g.Spec.Include, source.GitRepositoryInclude{Repository: source.IncludeReference{Name: name}})
	}
	source.Default(g)
	return g
}

func repoRef(name string) source.Reference {
	return source.Reference{Kind: "GitRepository", Namespace: "default", Name: name}
}

// memoryStatuses stores statuses in memory.
type memoryStatuses struct {
	mu    sync.Mutex
	saved map[source.Reference]source.Object
}

func (m *memoryStatuses) Load(_ context.Context, obj source.Object) (source.State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g, known := m.saved[source.ReferenceTo(obj)]
	if known {
		obj.(*source.GitRepository).Status = g.(*source.GitRepository).Status
	}
	source.AssignGeneration(obj, g)
	return nil, nil
}

func (m *memoryStatuses) Save(_ context.Context, obj source.Object, _ source.State) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.saved == nil {
		m.saved = make(map[source.Reference]source.Object)
	}
	g := *obj.(*source.GitRepository)
	m.saved[source.ReferenceTo(obj)] = &g
	return nil
}

func (m *memoryStatuses) Remove(ref source.Reference) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.saved, ref)
	return nil
}

func (*memoryStatuses) Object(source.Reference) (source.Object, error)          { return nil, fs.ErrNotExist }
func (*memoryStatuses) References() ([]source.Reference, error)                 { return nil, nil }
func (*memoryStatuses) Removed() (map[source.Reference]time.Time, error)        { return nil, nil }
func (*memoryStatuses) SetRemoved(source.Reference, time.Time) error            { return nil }
func (*memoryStatuses) Suspend(source.Reference, source.Suspension) error       { return nil }
func (*memoryStatuses) Resume(source.Reference) error                           { return nil }
func (*memoryStatuses) Suspension(source.Reference) (*source.Suspension, error) { return nil, nil }

var must = testenv.Must
