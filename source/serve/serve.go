// Package serve keeps any number of sources up to date with their origins for as long as
// it runs, and serves their artifacts, statuses and events over HTTP: it is to a set of
// objects what [source.Reconciler] is to one. A [Feed] says which objects there are,
// [Statuses] keep what is known of them, and a constructor of origins says where they come from.
//
// # When an object runs
//
//   - An object that is new, whose saved status is not that of its document, or
//     whose artifact is gone from the store, or that needs others, runs at once. One whose saved status is
//     good runs some time within its interval: a restart asks nothing again, and a
//     Secret that was rotated meanwhile counts then.
//   - Then it runs once in each interval, which is longer or shorter by a random part,
//     Config.Jitter at most. Objects with the same upstream (scheme, host and
//     path) and interval have the same ticks, so that one answer is enough for those with the same
//     credentials ([source.Share]); a new one runs at once and then joins them. When there are more
//     objects than can run at a time, the first interval is shorter, which spreads them.
//   - It runs at once, or once more after the run under way, when its spec or one
//     of the annotations reconcile.headgate.dev/requestedAt and
//     reconcile.fluxcd.io/requestedAt changes, on [Server.Request], when a source that it
//     needs has another artifact, generation or readiness, and when a Secret that
//     its last run looked up, whether it was there or not, is another in a new
//     [Desired]. Any number of requests during a run make one more run.
//   - After a failure it is tried again after MinRetry, and each time after twice as
//     long, until MaxRetry or its interval; not before the upstream wants to be asked
//     ([source.Result].After). If a source that it needs is not ready, it is tried again in
//     30 s. A stalled object is not tried again before something changes.
//   - A suspended object does not run, by its spec or by [Server.Suspend]. A run that
//     is under way ends first. That of an object that is removed is interrupted.
//
// Due times are of the monotonic clock: a date that jumps moves none. [View].Next and
// [Run].Started are by Config.Now.
//
// # In which order
//
// The sources that an object needs go first if they are due or under way; the object is
// [Blocked] meanwhile, for one run of each that begins when the object is due. Where objects
// need each other in a circle one demand is left out, as in [source.Order], so that none
// waits for ever, and all of them are stalled with an error that names the circle. No object
// is run twice at once.
//
// Otherwise the host with the fewest runs under way is next, and within a host the object
// that is due first. At most Runs reconciliations are under way, PerHost of one host;
// at most Fetches contents are open, half of them from one host. Waiting for the latter
// does not count against spec.timeout. No host gets more of either than twice as many as
// are free, and hosts whose last run failed have half of either together, so that hosts
// that hang do not hold up the others.
//
// # What an object is
//
// Each run works on a copy. [View].Object, which origins find in [source.Sources] too,
// is the object as it was after its last run, and is never changed. A defect of one
// object, a panic of its origin included, is its own failure.
//
// A [source.ExternalArtifact] that no generator makes is never run, nor is a foreign object ([Desired]), which no view
// and no metric is about. An object whose spec cannot be used is stalled with the reason InvalidSpec and keeps its artifact. An object
// that is not in the feed any more is [Removed], and gone with its artifacts after Retention; while the feed has
// defects it is [View].Missing instead, and goes on as it was.
//
// An event that equals the last one of its object is not emitted again within 5 minutes; the
// next one has in its metadata how many there were ([RepeatedKey]). Traces all are.
//
// # The store
//
// At the start and once a day the server removes artifacts of objects that neither the feed nor
// the statuses know, and hashes all artifacts, at Config.Scrub bytes a second. An object
// whose artifact is damaged runs at once; the store does not serve it until then.
//
// # The end
//
// When the context of [Server.Run] ends, runs are interrupted and record nothing,
// except those that have stored their artifact: they record that. Run returns when
// all of its goroutines have ended. An error of the feed ends it in the same way.
//
// # HTTP
//
// [Server.Handler] answers these paths; package api lists those below /api/v1:
//
//	GET  /KIND/NAMESPACE/NAME/HEX/FILE   an artifact; KIND in lower case, HEX of its digest
//	GET  /KIND/NAMESPACE/NAME/POINTER    the artifact that is published now, for kinds that have a pointer
//	POST /hook/KIND/NAME, /hook/KIND/NAMESPACE/NAME   a webhook: the object is checked at once
//	GET  /ui/                            the web page; / is redirected to it when a browser asks
//	GET  /healthz                        200: the process serves
//	GET  /readyz                         200, or 503 and which part is not ready
//	GET  /metrics                        in the format of Prometheus
//	GET  /debug/pprof/                   profiles, where they are switched on
//
// Anything else is 404, a wrong method 405 with the header Allow. HEAD is
// answered wherever GET is. Repeated slashes in a path count as one.
//
// Where callers have to say who they are ([OpenCallers]), lists, streams and counts are of
// what the caller may read. /healthz, /readyz and the files of the web page are for all
// callers, artifacts and metrics too where the Config says so. Requests that change something
// and that a page of another site made a browser send are refused (403). Errors are an
// [api.Problem] below /api/, and text elsewhere. No answer holds credentials: documents are as
// [source.Masked] has them, and Secrets are never answered.
//
// # Webhooks
//
// A push makes a source be checked at once.
//
//   - The Secret of an object has the key token. It is the one that the annotation
//     [HookAnnotation] names in the object's namespace, or else the one of Config.Hooks. It is
//     looked up for each request, so that a rotated one counts at once. An object with
//     the annotation whose Secret is missing or has no token cannot be triggered.
//   - The token proves a request when one of these is right: an HMAC of the body, of at most
//     1 MiB, in X-Hub-Signature-256, X-Hub-Signature, X-Signature, X-Forgejo-Signature,
//     X-Gitea-Signature, X-Gogs-Signature or X-Nexus-Webhook-Signature; the token itself
//     in X-Gitlab-Token, in Authorization (alone, as bearer token or as
//     password) or in the parameter token of the URL. Comparisons take the same time
//     whatever differs. HMAC-SHA1 counts for Nexus only, which has no other.
//   - Without a Secret a token of the server that allows changes is asked for, or nothing where callers need not say who they are.
//   - All other callers are answered 401 with the same words, whether the object exists or
//     not. Only callers whose token of the server lets them change an object are told, by 404, that it
//     does not exist.
//   - A proven call asks for a check, whatever its body says, and is answered 202; a ping of
//     GitHub and Bitbucket is answered 200. Of calls that are repeated one at most waits for
//     the check under way.
package serve

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"iter"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/journal"
	"github.com/headgate-io/headgate/source/serve/notify"
)

// A Desired is which objects there are to be. It is not changed once it was handed over.
type Desired struct {
	Objects []source.Object // valid, with defaults
	// Invalid are further objects, whose specs cannot be used: they keep their artifacts, and are stalled with
	// the reason InvalidSpec. An object that is in Objects too counts as it is there.
	Invalid []source.Invalid
	// Foreign reports whether another program keeps an object up to date, as is the case for an ExternalArtifact that
	// no generator makes: others are made of it, it is not run, and neither its status nor files of it in the store are touched. Nil: none is.
	Foreign func(source.Reference) bool
	Secrets source.Secrets // for them; looked up anew for each Desired
	// Watched says that the feed tells of each Secret that changed by [Server.SecretChanged]: Secrets are
	// not looked up anew for this Desired.
	Watched bool
	// Defects says what is wrong with documents that are not among Objects. As
	// long as there are defects no object is removed: what is missing
	// may be in a document that cannot be read just now.
	Defects []error
}

// all returns the objects of d, and why the spec of some cannot be used.
func (d Desired) all() iter.Seq2[source.Object, error] {
	return func(yield func(source.Object, error) bool) {
		for _, obj := range d.Objects {
			if !yield(obj, nil) {
				return
			}
		}
		for _, invalid := range d.Invalid {
			if !yield(invalid.Object, invalid.Err) {
				return
			}
		}
	}
}

// foreign reports whether another program keeps an object up to date.
func (d Desired) foreign(ref source.Reference) bool { return d.Foreign != nil && d.Foreign(ref) }

// A Feed says which objects there are to be.
type Feed interface {
	// Follow calls set with what there is, and again after each change of it or
	// of the Secrets, until ctx ends: then it returns nil. An error ends the [Server].
	Follow(ctx context.Context, set func(Desired)) error
}

// Statuses is where statuses live. [source.Ledger] keeps them in a directory, and its methods
// say what each has to do. The status of an object and the state that its kind remembers may
// live in different places.
type Statuses interface {
	Load(context.Context, source.Object) (source.State, error)
	Save(context.Context, source.Object, source.State) error
	Object(source.Reference) (source.Object, error) // the document as it was saved last
	References() ([]source.Reference, error)        // of all that is saved
	Remove(source.Reference) error                  // all of an object, its suspension too

	Removed() (map[source.Reference]time.Time, error) // since when objects are not in the feed
	SetRemoved(source.Reference, time.Time) error

	Suspension(source.Reference) (*source.Suspension, error)
	Suspend(source.Reference, source.Suspension) error
	Resume(source.Reference) error // the error wraps fs.ErrNotExist for an object that is not suspended
}

// A Config says what a [Server] does. Feed, Statuses, Store and Origin are required.
type Config struct {
	Feed     Feed
	Statuses Statuses
	Store    *artifact.Store
	// Origin returns the origin of an object. Its error is for an object of a kind it does not know.
	Origin func(source.Object, source.Env) (source.Origin, error)
	// Artifacts fetches the artifacts of foreign objects and ExternalArtifacts; default one with the limits of Env.
	Artifacts *artifact.Client
	// Env is what origins get; Sources, Secrets, Share, Since and Archives are the server's, and so are Reuse,
	// Cache and Limits.Temp where they are not set.
	Env source.Env

	Runs    int // reconciliations at a time, besides those that take long; default 256
	PerHost int // of them with one upstream host; default 16
	Fetches int // contents that are fetched and packed at a time, half of them from one host at most; default 2 for each CPU

	Jitter    float64       // of intervals and retries, a part of them; default 0.05, negative for none
	MinRetry  time.Duration // after the first failure; default 750ms
	MaxRetry  time.Duration // the longest between two attempts; default 15m, and never longer than the interval of the object
	Retention time.Duration // for which what is removed keeps its artifacts; default 1h
	Apart     bool          // objects with the same upstream do not share answers
	Scrub     int64         // bytes of artifacts hashed again in a second, on average; default 32 MiB, negative for none

	Journal  *journal.Journal // keeps events; nil for none
	Notify   notify.Config    // receivers of events; its Secrets are the feed's where they are nil
	Callers  *Callers         // who may do what; nil lets all callers do everything
	BaseURL  string           // by which callers know the server; "" for the address of the request
	Hooks    string           // name of the Secret of webhooks of objects that name none; "" for none
	Log      *slog.Logger     // nil for none
	Profiles bool             // /debug/pprof/ is there, for callers that may debug

	OpenArtifacts bool // artifacts need no credential although callers have to say who they are
	OpenMetrics   bool // nor do metrics

	Keepalive time.Duration      // between comments of an idle stream; default 15s
	Grace     time.Duration      // for events that wait when the server ends; default 30s
	Now       func() time.Time   // wall-clock time, for what people read; default time.Now
	Emit      func(source.Event) // is told of events as well; several goroutines may call it at once
	Observe   func(Run)          // is told of each run that ended, before its view changes; several goroutines may call it at once
}

// A Server keeps sources up to date and serves them.
type Server struct {
	config   Config
	log      *slog.Logger
	handler  http.Handler
	bodies   *httpserve.Bodies
	metrics  metrics
	told     *notify.Dispatcher // nil for no receivers
	share    source.Share
	reuse    source.Connections
	archives source.Archives
	seed     maphash.Seed    // of ticks
	began    time.Time       // of the clock, by its monotonic part
	started  time.Time       // the same by Config.Now
	ready    chan struct{}   // closed when the feed was read and the saved statuses are restored
	ctx      context.Context // ends with that of Run: runs and streams end
	end      context.CancelCauseFunc
	ran      atomic.Bool   // Run was called
	ended    chan struct{} // closed when Run has ended

	setting sync.Mutex // one Desired, suspension or removal after the other; taken before mu
	listed  bool       // all statuses were, for a Desired without defects

	mu      sync.Mutex     // guards all that follows, and entries
	work    sync.WaitGroup // all goroutines
	serial  uint64         // of the last Desired
	version uint64         // of the last view that changed
	news    chan struct{}  // closed and replaced when a view changes
	secrets source.Secrets
	rotated uint64 // how often Secrets may have changed
	objects int    // of the last Desired
	defects []error
	foreign func(source.Reference) bool // as the last Desired has it
	entries map[source.Reference]*entry
	sorted  []*entry                  // replaced and never changed
	pending []*entry                  // due, for dispatch
	ticks   map[tickKey]time.Duration // the first of them
	failed  map[string]bool           // hosts whose last run failed
	runs    slots
	fetches slots
}

// New returns a server that does nothing yet. The error says which receiver of events is wrong.
func New(c Config) (*Server, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Jitter = max(cmp.Or(c.Jitter, 0.05), 0)
	c.MinRetry, c.MaxRetry = cmp.Or(c.MinRetry, 750*time.Millisecond), cmp.Or(c.MaxRetry, 15*time.Minute)
	c.Retention, c.Scrub = cmp.Or(c.Retention, time.Hour), cmp.Or(c.Scrub, 32<<20)
	c.Keepalive, c.Grace = cmp.Or(c.Keepalive, 15*time.Second), cmp.Or(c.Grace, 30*time.Second)
	c.Env = c.Env.In(c.Store)
	s := &Server{
		log: c.Log, bodies: httpserve.NewBodies(64 << 10), seed: maphash.MakeSeed(), began: time.Now(), started: c.Now(),
		ready: make(chan struct{}), ended: make(chan struct{}), news: make(chan struct{}), secrets: source.Chain(),
		entries: make(map[source.Reference]*entry), ticks: make(map[tickKey]time.Duration), failed: make(map[string]bool),
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	fetches := cmp.Or(c.Fetches, 2*runtime.GOMAXPROCS(0))
	s.runs = slots{all: cmp.Or(c.Runs, 256), each: cmp.Or(c.PerHost, 16), failed: s.failed, queues: make(map[string]*queue)}
	s.fetches = slots{all: fetches, each: max(fetches/2, 1), failed: s.failed, queues: make(map[string]*queue)}
	if c.Artifacts == nil {
		c.Artifacts = &artifact.Client{MaxBytes: c.Env.Limits.Bytes, Temp: c.Env.Limits.Temp}
	}
	c.Env.Sources = &sources{s, &source.Inventory{Store: c.Store, Client: c.Artifacts}}
	if !c.Apart {
		c.Env.Share = &s.share
	}
	if c.Env.Reuse == nil {
		c.Env.Reuse = &s.reuse
	}
	c.Env.Archives = &s.archives
	s.config = c
	s.metrics.build(s)
	s.handler = s.routes()
	if len(c.Notify.Receivers) == 0 {
		return s, nil
	}
	if c.Notify.Secrets == nil {
		c.Notify.Secrets = latest{s}
	}
	c.Notify.Delivered = func(source.Event) { s.metrics.told.WithLabelValues("delivered").Inc() }
	c.Notify.Report = func(err error, lost bool) {
		s.metrics.told.WithLabelValues(map[bool]string{false: "failed", true: "lost"}[lost]).Inc()
		s.log.Warn("events", "problem", clean(err.Error()))
	}
	var err error
	if s.told, err = notify.Start(c.Notify); err != nil {
		return nil, err
	}
	return s, nil
}

// Run keeps the objects up to date until ctx ends, then ends what is under way
// and returns nil when all has ended. It may be called once. The error is the feed's, or that of
// statuses that cannot be listed at the start.
func (s *Server) Run(parent context.Context) error {
	if s.ran.Swap(true) {
		return errors.New("the server was run before")
	}
	defer context.AfterFunc(parent, func() { s.end(nil) })()
	s.work.Go(func() {
		err := s.config.Feed.Follow(s.ctx, func(d Desired) {
			if s.ctx.Err() != nil {
				return
			}
			if err := s.set(d); err != nil {
				s.end(err)
			}
		})
		if err != nil {
			s.end(err)
		}
	})
	<-s.ctx.Done()
	s.mu.Lock()
	for _, e := range s.entries {
		if e.timer != nil {
			e.timer.Stop()
		}
	}
	s.mu.Unlock()
	s.work.Wait()
	s.reuse.Close()
	s.archives.Close()
	close(s.ended)
	if s.told != nil {
		ending, cancel := context.WithTimeout(context.WithoutCancel(parent), s.config.Grace)
		defer cancel()
		if err := s.told.Close(ending); err != nil {
			s.log.Warn("ending", "problem", clean(err.Error()))
		}
	}
	if parent.Err() != nil {
		return nil
	}
	return context.Cause(s.ctx)
}

// clock returns how long the server has been there: it does not know the date.
func (s *Server) clock() time.Duration { return time.Since(s.began) }

// Defects returns what is wrong with the documents of the feed now.
func (s *Server) Defects() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.defects)
}

// Ready reports whether the feed was read and the saved statuses are restored.
func (s *Server) Ready() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}
