package sourcetest

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// TestMutants tests the suite: for every check there is a kind that breaks the
// one promise, and the check says so.
func TestMutants(t *testing.T) {
	caught := make(map[string]bool)
	for _, m := range mutants {
		t.Run(m.check+"/"+m.name, func(t *testing.T) {
			kind := Memory()
			if m.want == stays || m.want == stuck { // the check sees it when it has lost patience; all others have time
				kind.patience = time.Second
			}
			m.mutate(t, &kind)
			report := failuresOf(t, m.check, kind)
			if !strings.Contains(report, m.want) {
				t.Errorf("the check does not see it; want %q in: %s", m.want, report)
			}
			caught[m.check] = true
		})
	}
	for _, c := range checks {
		if !caught[c.name] {
			t.Errorf("check %q has no mutant: nothing shows that it can fail", c.name)
		}
	}
}

// What the checks report of runs that do not end.
const (
	stuck = "did not end"
	stays = "goroutines are left behind"
)

var mutants = []struct {
	check, name string
	mutate      func(t *testing.T, k *Kind)
	want        string // in the report of the check
}{
	{"resolve is stable", "another revision each time", origins(func(o memoryOrigin) source.Origin { return restless{o} }), "then"},
	{"resolve is stable", "content is read", origins(func(o memoryOrigin) source.Origin { return greedy{o} }), "units of content"},
	{"new content is a new revision", "one revision for all", origins(func(o memoryOrigin) source.Origin { return frozen{o} }), `outcome "unchanged"`},
	{"same tree, same bytes", "bytes depend on the time", contents(func(c *memoryContent) source.Content { return unique{c} }), "that differ"},
	{"artifact reads back", "a file is lost", publishes(func(tree fstest.MapFS) { delete(tree, "deploy/app.yaml") }), "holds 5 of 6 files"},
	{"artifact reads back", "the mode is lost", publishes(func(tree fstest.MapFS) { tree["bin/run.sh"] = &fstest.MapFile{Data: tree["bin/run.sh"].Data} }), "has mode"},
	{"artifact reads back", "a file is changed", publishes(func(tree fstest.MapFS) { tree["README.md"] = tree["deploy/app.yaml"] }), "not the 9 bytes published"},
	{"unchanged does not fetch", "content is read", origins(func(o memoryOrigin) source.Origin { return greedy{o} }), "units of content"},
	{"unchanged does not fetch", "always drifted", objects(func(m MemoryRepository) source.Object { return &drifting{m} }), `outcome "stored"`},
	{"drift fetches", "never drifted", objects(func(m MemoryRepository) source.Object { return &blind{m} }), `outcome "unchanged"`},
	{"ignore files", "not read", contents(func(c *memoryContent) source.Content { return unfiltered{c} }), "holds a.tmp"},
	{"failures", "another reason", origins(func(o memoryOrigin) source.Origin { return misjudging{o} }), "condition FetchFailed"},
	{"failures", "secrets show", origins(func(o memoryOrigin) source.Origin { return struct{ source.Origin }{o} }), "secret shows"},
	{"failures", "no failure", func(_ *testing.T, k *Kind) { k.Failures = []Failure{{Defect: "none", Outcome: source.Failed}} }, `outcome "stored"`},
	{"failure keeps the artifact", "the origin tidies the store", origins(func(o memoryOrigin) source.Origin { return tidying{o} }), "status 404"},
	{"forged content is not stored", "every signature is good", contents(func(c *memoryContent) source.Content { return gullible{c} }), `outcome "stored"`},
	{"stalled upstream obeys cancellation", "context is not used", contexts(context.WithoutCancel), stuck},
	{"stalled upstream obeys cancellation", "a goroutine stays", origins(func(o memoryOrigin) source.Origin { return leaky{o} }), stays},
	{"stalled upstream obeys cancellation", "never reached", func(_ *testing.T, k *Kind) { k.Stalls = []Defect{"none"} }, "ended before it"},
	{"stalled upstream obeys the timeout", "deadline is not used", contexts(onlyCancelled), stuck},
	{"hostile names", "names are not checked", contents(func(c *memoryContent) source.Content { return trusting{c} }), "the artifact has an entry"},
	{"status survives JSON", "a field is not written", objects(func(m MemoryRepository) source.Object { return &oblivious{MemoryRepository: m} }), `outcome "stored"`},
	{"lost artifact is made again", "other bytes", contents(func(c *memoryContent) source.Content { return unique{c} }), "digest was"},
	{"suspended is left alone", "suspend is not read", objects(func(m MemoryRepository) source.Object { return &tireless{m} }), `outcome "stored"`},
	{"request to reconcile", "annotations are lost", objects(func(m MemoryRepository) source.Object { return &deaf{m} }), "lastHandledReconcileAt"},
	{"runs at once", "another revision each time", origins(func(o memoryOrigin) source.Origin { return restless{o} }), "outcomes map"},
}

// failuresOf runs one check and returns what it reports.
func failuresOf(t *testing.T, name string, k Kind) string {
	r := &recorder{T: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, c := range checks {
			if c.name == name {
				c.run(r, k)
			}
		}
	}()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report.String()
}

// A recorder is a test that writes down its failures.
type recorder struct {
	*testing.T
	mu     sync.Mutex
	report strings.Builder
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.report, format+"\n", args...)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// A mutated upstream is a memory that differs in one thing.
type mutated struct {
	*memory
	publish func(fstest.MapFS)
	object  func(MemoryRepository) source.Object
	origin  func(memoryOrigin) source.Origin
}

func (m mutated) Publish(tree fstest.MapFS) error {
	tree = maps.Clone(tree)
	if m.publish != nil {
		m.publish(tree)
	}
	return m.memory.Publish(tree)
}

func (m mutated) Object() source.Object {
	obj := m.memory.Object()
	if m.object != nil {
		return m.object(*obj.(*MemoryRepository))
	}
	return obj
}

func (m mutated) Origin(obj source.Object) source.Origin {
	repo, ok := obj.(*MemoryRepository)
	if !ok {
		repo = obj.(interface{ base() *MemoryRepository }).base()
	}
	origin := memoryOrigin{repo, m.memory}
	if m.origin != nil {
		return m.origin(origin)
	}
	return origin
}

func (m *MemoryRepository) base() *MemoryRepository { return m }

func mutation(m mutated) func(*testing.T, *Kind) {
	return func(_ *testing.T, k *Kind) {
		k.Open = func(TB) Upstream { m := m; m.memory = new(memory); return m }
		k.Drift = func(obj source.Object) { obj.(interface{ base() *MemoryRepository }).base().Spec.Ignore = "*.md" }
	}
}

func publishes(f func(fstest.MapFS)) func(*testing.T, *Kind) { return mutation(mutated{publish: f}) }

func objects(f func(MemoryRepository) source.Object) func(*testing.T, *Kind) {
	return mutation(mutated{object: f})
}

func origins(f func(memoryOrigin) source.Origin) func(*testing.T, *Kind) {
	return mutation(mutated{origin: f})
}

func contents(f func(*memoryContent) source.Content) func(*testing.T, *Kind) {
	return origins(func(o memoryOrigin) source.Origin { return recontented{o, f} })
}

// contexts has the origin work with another context, which ends with the test at the latest.
func contexts(f func(context.Context) context.Context) func(*testing.T, *Kind) {
	return func(t *testing.T, k *Kind) {
		origins(func(o memoryOrigin) source.Origin { return inContext{o, f, t.Context()} })(t, k)
	}
}

// Origins.

type restless struct{ memoryOrigin }

var count atomic.Int64

func (o restless) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	rev, state, err := o.memoryOrigin.Resolve(ctx, last)
	rev.ID += fmt.Sprint(count.Add(1))
	return rev, state, err
}

type greedy struct{ memoryOrigin }

func (o greedy) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	o.memory.fetch(ctx)
	return o.memoryOrigin.Resolve(ctx, last)
}

type frozen struct{ memoryOrigin }

func (frozen) Resolve(context.Context, source.State) (source.Revision, source.State, error) {
	return source.Revision{ID: "memory@sha256:0", File: "0.tar.gz"}, nil, nil
}

type misjudging struct{ memoryOrigin }

func (o misjudging) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	rev, state, err := o.memoryOrigin.Resolve(ctx, last)
	if err != nil {
		err = &source.StepError{Reason: "Whatever", Err: err}
	}
	return rev, state, err
}

type tidying struct{ memoryOrigin }

func (o tidying) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	rev, state, err := o.memoryOrigin.Resolve(ctx, last)
	if a := o.repo.Artifact(); err != nil && a != nil {
		os.Remove(strings.TrimPrefix(a.URL, "file://"))
	}
	return rev, state, err
}

type leaky struct{ memoryOrigin }

func (o leaky) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	leave := context.WithoutCancel(ctx)
	go func() { <-o.forever(leave) }()
	return o.memoryOrigin.Resolve(ctx, last)
}

func (leaky) forever(ctx context.Context) <-chan struct{} { return ctx.Done() }

type inContext struct {
	memoryOrigin
	change func(context.Context) context.Context
	end    context.Context
}

func (o inContext) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	ctx, stop := context.WithCancel(o.change(ctx))
	defer context.AfterFunc(o.end, stop)()
	return o.memoryOrigin.Resolve(ctx, last)
}

// onlyCancelled returns a context that ends with ctx, unless its time is up.
func onlyCancelled(ctx context.Context) context.Context {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel()
		}
	})
	return out
}

// Contents.

type recontented struct {
	memoryOrigin
	change func(*memoryContent) source.Content
}

func (o recontented) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	c, err := o.memoryOrigin.Open(ctx, rev)
	if err != nil {
		return nil, err
	}
	return o.change(c.(*memoryContent)), nil
}

type unique struct{ *memoryContent }

func (c unique) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	report, err := c.memoryContent.WriteTo(ctx, w)
	trailer := gzip.NewWriter(w)
	trailer.Comment = fmt.Sprint(count.Add(1))
	return report, errors.Join(err, trailer.Close())
}

type unfiltered struct{ *memoryContent }

func (c unfiltered) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	_, err := artifact.Pack(ctx, w, c.tree)
	return source.Report{}, err
}

type gullible struct{ *memoryContent }

func (gullible) Verify(context.Context) (source.Verification, error) {
	return source.Verification{Mode: "tree", Message: "looks good"}, nil
}

type trusting struct{ *memoryContent }

func (c trusting) WriteTo(_ context.Context, w io.Writer) (source.Report, error) {
	zw := gzip.NewWriter(w)
	tw := tar.NewWriter(zw)
	for name := range c.tree.(fstest.MapFS) {
		tw.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Format: tar.FormatGNU})
	}
	return source.Report{}, errors.Join(tw.Close(), zw.Close())
}

// Objects.

type drifting struct{ MemoryRepository }

func (*drifting) Drift(source.Revision) string { return "something" }

type blind struct{ MemoryRepository }

func (*blind) Drift(source.Revision) string { return "" }

type oblivious struct {
	MemoryRepository
	seen bool
}

func (o *oblivious) Drift(source.Revision) string {
	if o.seen {
		return ""
	}
	return "something"
}

func (o *oblivious) Observe(source.Revision) { o.seen = true }

type tireless struct{ MemoryRepository }

func (o *tireless) Plan() source.Plan {
	plan := o.MemoryRepository.Plan()
	plan.Suspend = false
	return plan
}

type deaf struct{ MemoryRepository }

func (o *deaf) Head() *source.Header {
	o.Metadata.Annotations = nil
	return o.MemoryRepository.Head()
}
