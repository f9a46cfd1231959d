package serve_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

var (
	chaosSeed  = flag.Uint64("chaos.seed", 1, "seed of TestChaos")
	chaosHours = flag.Float64("chaos.hours", 1, "how long TestChaos lasts, in its own time")
)

const (
	chaosSteady    = 12 // objects of hosts that never fail
	chaosWild      = 48 // objects of hosts that do
	chaosHosts     = 8  // wild ones
	chaosTimeout   = 20 * time.Second
	chaosScrub     = 10 * time.Minute // between two rounds of the scrub
	chaosRetention = 15 * time.Minute
)

// A chaos is a controller on real files to which everything happens that can.
type chaos struct {
	*rig
	dir   string
	rand  *rand.Rand
	jump  atomic.Int64 // of the date, nanoseconds
	plans map[string]*plan
	names []string // of plans, in the order of their coming
	next  int      // number of the next name

	faults   map[string]func() // what ends each fault that there is now
	ends     map[string]time.Time
	defects  bool
	secrets  map[string]source.Secret
	damaged  map[string]damage             // by the path of the artifact
	base     map[string]time.Time          // from when on an object can be late
	looked   map[string]*artifact.Artifact // checked since the last round
	steps    map[string]int
	restarts int

	mu        sync.Mutex
	passwords map[string]string    // that upstreams want, by URL
	ran       map[string]time.Time // when it last began or ended a run
	good      map[string]time.Time // when the last run began that succeeded
	runs      map[source.Outcome]int
	triggers  map[serve.Trigger]int
	late      [2]time.Duration // the most, of wild and steady objects
}

// A plan is an object as the feed is to have it.
type plan struct {
	url      string
	interval time.Duration
	inputs   []string
	suspend  bool
	secret   bool
}

func newChaos(t *testing.T, seed uint64) *chaos {
	w := &chaos{
		rig: newRig(t), rand: rand.New(rand.NewPCG(seed, 99)), plans: map[string]*plan{},
		faults: map[string]func(){}, ends: map[string]time.Time{}, secrets: map[string]source.Secret{}, damaged: map[string]damage{},
		base: map[string]time.Time{}, looked: map[string]*artifact.Artifact{}, steps: map[string]int{}, passwords: map[string]string{},
		ran: map[string]time.Time{}, good: map[string]time.Time{}, runs: map[source.Outcome]int{}, triggers: map[serve.Trigger]int{},
	}
	w.dir = filepath.Dir(w.Ledger.Dir)
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: filepath.Join(w.dir, "store"), BaseURL: "http://localhost", Now: w.date})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	w.Store = store
	for i := range chaosSteady {
		p := &plan{url: fmt.Sprintf("https://steady%d.example/%d", i%2, i), interval: w.interval()}
		if i >= 4 && w.rand.IntN(3) == 0 {
			p.inputs = []string{w.names[w.rand.IntN(4)]}
		}
		w.add(p)
	}
	for range chaosWild {
		w.add(w.wild())
	}
	return w
}

// wild returns a plan of an object whose host is not to be relied upon. Some share an upstream.
func (w *chaos) wild() *plan {
	i := w.rand.IntN(chaosWild * 3 / 4)
	p := &plan{url: fmt.Sprintf("https://h%d.example/%d", i%chaosHosts, i), interval: w.interval(), suspend: w.rand.IntN(25) == 0}
	p.secret = i%3 == 0
	for range w.rand.IntN(3) {
		if name := w.any(); name != "" {
			p.inputs = append(p.inputs, name)
		}
	}
	return p
}

func (w *chaos) interval() time.Duration {
	return []time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute}[w.rand.IntN(4)]
}

// any returns the name of an object that there is, "" when there is none.
func (w *chaos) any() string {
	if len(w.names) == 0 {
		return ""
	}
	return w.names[w.rand.IntN(len(w.names))]
}

// wildName returns the name of an object of a host that is not to be relied upon.
func (w *chaos) wildName() string { return w.names[chaosSteady+w.rand.IntN(len(w.names)-chaosSteady)] }

// add has the feed have one more object.
func (w *chaos) add(p *plan) string {
	name := fmt.Sprintf("o%d", w.next)
	w.next++
	w.plans[name] = p
	w.names = append(w.names, name)
	return name
}

// desired is what the feed has.
func (w *chaos) desired() serve.Desired {
	set := &source.Set{Secrets: map[string]source.Secret{}}
	for name, s := range w.secrets {
		set.Secrets["default/"+name] = s
	}
	d := serve.Desired{Secrets: set}
	for i, name := range w.names {
		if w.defects && i%7 == 3 {
			continue
		}
		p := w.plans[name]
		g := repo(name, p.url, p.interval, p.inputs...)
		timeout := source.Duration(chaosTimeout)
		g.Spec.Timeout, g.Spec.Suspend = timeout, p.suspend
		if p.secret {
			g.Spec.SecretRef = &source.LocalReference{Name: secretOf(p.url)}
		}
		d.Objects = append(d.Objects, g)
	}
	if w.defects {
		d.Defects = []error{errors.New("some.yaml: line 1: not YAML")}
	}
	return d
}

// secretOf names the Secret for an upstream.
func secretOf(url string) string { return "s" + url[strings.LastIndex(url, "/")+1:] }

// rotate has an upstream want another password from now on.
func (w *chaos) rotate(url string) source.Secret {
	password := fmt.Sprintf("%x", w.rand.Uint64())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passwords[url] = password
	return source.Secret{Type: "Opaque", Data: map[string][]byte{"password": []byte(password)}}
}

// steady reports whether the host of an object never fails.
func steady(name string) bool {
	n, err := strconv.Atoi(name[1:])
	return err == nil && n < chaosSteady
}

// date is the wall-clock time, which jumps.
func (w *chaos) date() time.Time { return time.Now().Add(time.Duration(w.jump.Load())) }

// begin starts a controller on the files that there are.
func (w *chaos) begin() {
	w.Controller = &serve.Controller{
		Feed: w.feed, Store: w.Store, Ledger: &source.Ledger{Dir: w.Ledger.Dir}, Origin: w.origin, Now: w.date,
		Runs: 16, MinRetry: 3 * time.Second, PerHost: 4, Fetches: 4, Retention: chaosRetention, Scrub: 64 << 10, ScrubIdle: chaosScrub, Observe: w.observe,
		Emit: func(source.Event) {},
	}
	w.base, w.looked = map[string]time.Time{}, map[string]*artifact.Artifact{}
	w.feed.now = w.desired()
	w.start()
}

// observe notes what ran.
func (w *chaos) observe(run serve.Run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := run.Object.Name
	w.ran[name] = time.Now()
	w.runs[run.Result.Outcome]++
	w.triggers[run.Trigger]++
	if run.Result.Outcome == source.Stored || run.Result.Outcome == source.Unchanged {
		w.good[name] = time.Now().Add(-run.Took)
	}
	kind := 0
	if steady(name) {
		kind = 1
	}
	w.late[kind] = max(w.late[kind], run.Started.Sub(run.Due))
}

// origin returns origins that want a password and give content of any size.
func (w *chaos) origin(obj source.Object, env source.Env) (source.Origin, error) {
	from, err := w.rig.origin(obj, env)
	if err != nil {
		return nil, err
	}
	return &chaosOrigin{from.(*origin), w}, nil
}

type chaosOrigin struct {
	*origin
	world *chaos
}

func (o *chaosOrigin) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	w, g := o.world, o.obj.(*source.GitRepository)
	w.mu.Lock()
	w.ran[g.Metadata.Name] = time.Now()
	want := w.passwords[g.Spec.URL]
	w.mu.Unlock()
	if g.Spec.SecretRef != nil {
		s, err := o.env.Secrets.Secret(ctx, "default", g.Spec.SecretRef.Name)
		if err != nil {
			return source.Revision{}, nil, err
		}
		if string(s.Data["password"]) != want {
			return source.Revision{}, nil, errors.New("status 401")
		}
	}
	return o.origin.Resolve(ctx, last)
}

func (o *chaosOrigin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	c, err := o.origin.Open(ctx, rev)
	if err != nil {
		return nil, err
	}
	return &chaosContent{c.(*content)}, nil
}

type chaosContent struct{ *content }

func (c *chaosContent) WriteTo(_ context.Context, out io.Writer) (source.Report, error) {
	_, err := io.WriteString(out, textOf(c.rev.ID, c.rev.Inputs))
	return source.Report{}, err
}

// textOf returns the content of a revision, up to 16 KiB.
func textOf(rev string, inputs []artifact.Artifact) string {
	var b strings.Builder
	fmt.Fprintln(&b, rev)
	for _, in := range inputs {
		fmt.Fprintln(&b, in.Digest)
	}
	sum := sha256.Sum256([]byte(rev))
	for range sum[0] {
		fmt.Fprintf(&b, "%x\n", sum)
	}
	return b.String()
}

// Hours of everything that can go wrong, at once and in any order. What is
// published is right at every moment, nobody starves, and when all is well
// again everything is new and nothing is left behind.
func TestChaos(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir) // what it writes is below
	synctest.Test(t, func(t *testing.T) { runChaos(t, *chaosSeed) })
	if left := measure.OpenFiles(t, dir); len(left) > 0 {
		t.Errorf("%q are open", left)
	}
}

func runChaos(t *testing.T, seed uint64) {
	w := newChaos(t, seed)
	for _, p := range w.plans {
		if w.secrets[secretOf(p.url)].Data == nil && p.secret {
			w.secrets[secretOf(p.url)] = w.rotate(p.url)
		}
	}
	w.begin()
	hours := *chaosHours
	if race {
		hours /= 4
	}
	end := time.Now().Add(time.Duration(hours * float64(time.Hour)))
	for n := 0; time.Now().Before(end); n++ {
		w.step()
		synctest.Wait()
		w.check(n%25 == 0)
		if t.Failed() {
			t.Logf("seed %d, after %s", seed, time.Until(end))
			break
		}
		time.Sleep(time.Duration(w.rand.ExpFloat64() * float64(5*time.Second)))
	}
	w.settle()
	t.Logf("seed %d: steps %v, runs %v for %v, the latest %v", seed, w.steps, w.runs, w.triggers, w.late)
}
