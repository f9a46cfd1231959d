// Package serve keeps any number of sources up to date with their origins, and serves their
// artifacts, statuses and events over HTTP. A [Server] does for a set of objects, for as long as it
// runs, what [source.Reconciler] does once for one object. A [Feed] supplies the objects,
// [Statuses] stores their statuses, and Config.Origin returns the origin of each object.
//
// # When an object runs
//
//   - An object runs at once if it is new, if its saved status does not match its document, if its
//     artifact is missing from the store, or if it needs other objects. An object whose saved
//     status is good runs at a random time within its interval: a restart does not check every
//     origin again, and a Secret that was rotated meanwhile takes effect with that run.
//   - After that an object runs once per interval, which is lengthened or shortened by a random
//     part of at most Config.Jitter. Objects with the same upstream (scheme, host and path) and the
//     same interval run at the same ticks, so that those with the same credentials can share one
//     answer ([source.Share]). A new object runs at once and joins these ticks afterwards. If there
//     are more objects than can run at a time, the first interval is shortened at random to spread
//     them.
//   - An object runs at once, or once more after the run under way, when its spec or one of the
//     annotations reconcile.headgate.dev/requestedAt and reconcile.fluxcd.io/requestedAt changes,
//     on [Server.Request], when the artifact, generation or readiness of a source that it needs
//     changes, and when a new [Desired] changes a Secret that its last run looked up, even if that
//     Secret was missing. Any number of requests during a run cause one more run.
//   - After a failure the server retries after MinRetry, and doubles the delay with each further
//     failure, up to MaxRetry or the interval. It does not retry before the time that the upstream
//     asked for ([source.Result].After). If a source that the object needs is not ready, it retries
//     after 30 s. A stalled object is not retried until something changes.
//   - A suspended object does not run, whether its spec or [Server.Suspend] suspends it. A run that
//     is under way ends first. If an object is removed, its run is interrupted.
//
// Due times use the monotonic clock: changes of the system time do not move them. [View].Next and
// [Run].Started use Config.Now.
//
// # In which order objects run
//
// The sources that an object needs run before it if they are due or under way. Meanwhile the object
// is [Blocked], for at most one run of each source that begins after the object is due. If objects
// need each other in a circle, one dependency is left out, as in [source.Order], so that none waits
// forever; all of them are stalled with an error that names the circle. An object never has two
// runs at the same time.
//
// Otherwise the host with the fewest runs under way is next, and of that host the object that has
// been due the longest. At most Runs reconciliations are under way, and PerHost of one host. At
// most Fetches contents are open, half of them from one host. Waiting for a fetch slot does not
// count against spec.timeout. Hosts that hang do not hold up the others: a host gets at most twice
// as many slots of either kind as are free, and the hosts whose last run failed get at most half of
// them together.
//
// # Objects and their state
//
// Each run works on a copy of its object. [View].Object, which origins find in [source.Sources] as
// well, is the object as its last run left it, and is never modified. A defect in one object, even
// a panic of its origin, fails only that object.
//
// The server never runs a [source.ExternalArtifact] that no generator makes, nor a foreign object
// ([Desired]). A foreign object has neither views nor metrics. An object whose spec is invalid is
// stalled with the reason InvalidSpec and keeps its artifact. An object that is no longer in the
// feed is [Removed], and deleted with its artifacts after Retention. While the feed has defects, a
// missing object is not removed: it is [View].Missing and is kept up to date as before.
//
// An event that equals the previous event of its object is not emitted again within 5 minutes. The
// metadata of the next event say how many were left out ([RepeatedKey]). Events of severity trace
// are always emitted.
//
// # The store
//
// At the start and once a day the server deletes the artifacts of objects that neither the feed nor
// the statuses contain, and verifies the digests of all artifacts, reading Config.Scrub bytes per
// second. An object whose artifact is damaged runs at once; until then the store does not serve the
// artifact.
//
// # Shutdown
//
// When the context of [Server.Run] ends, runs are interrupted and record nothing, except for runs
// that have stored their artifact: they record it. Run returns when all its goroutines have ended.
// An error of the feed ends Run in the same way.
//
// # HTTP
//
// [Server.Handler] serves these paths; package api lists those below /api/v1:
//
//	GET  /KIND/NAMESPACE/NAME/HEX/FILE   an artifact; KIND in lower case, HEX is its digest
//	GET  /KIND/NAMESPACE/NAME/POINTER    the current artifact, for kinds that have a pointer
//	POST /hook/KIND/NAME, /hook/KIND/NAMESPACE/NAME   a webhook: the object is checked at once
//	GET  /ui/                            the web page; browsers are redirected to it from /
//	GET  /healthz                        200: the process is serving
//	GET  /readyz                         200, or 503 with the parts that are not ready
//	GET  /metrics                        metrics in the Prometheus format
//	GET  /debug/pprof/                   profiles, if they are enabled
//
// Other paths are answered 404, a wrong method 405 with the header Allow. Every path that answers
// GET answers HEAD. Repeated slashes in a path count as one.
//
// If callers must authenticate ([OpenCallers]), lists, streams and counts cover the objects that
// the caller may read. /healthz, /readyz and the files of the web page need no credential;
// artifacts and metrics need none if the Config says so. A request that changes something is
// refused with 403 if a page of another site made a browser send it. Errors are an [api.Problem]
// below /api/, and plain text elsewhere. No answer contains credentials: documents are masked by
// [source.Masked], and Secrets are never sent.
//
// # Webhooks
//
// A webhook makes the server check a source as soon as something was pushed to its origin.
//
//   - The token of a webhook is in the key token of a Secret: the Secret that the annotation
//     [HookAnnotation] names in the namespace of the object, or else the one of Config.Hooks. The
//     server looks it up for each request, so a rotated token takes effect at once. An object with
//     the annotation cannot be triggered if its Secret or the token is missing.
//   - A request proves knowledge of the token by an HMAC of its body of at most 1 MiB, in
//     X-Hub-Signature-256, X-Hub-Signature, X-Signature, X-Forgejo-Signature, X-Gitea-Signature,
//     X-Gogs-Signature or X-Nexus-Webhook-Signature, or by the token itself, in X-Gitlab-Token, in
//     Authorization (alone, as bearer token or as password) or in the URL parameter token. One
//     valid proof is enough. Comparisons take constant time. HMAC-SHA1 is accepted for Nexus only,
//     which offers nothing else.
//   - Without such a Secret the caller needs a token of the server that allows changes, or nothing
//     if callers need not authenticate.
//   - All other callers get the same 401 whether the object exists or not. Only a caller whose
//     token of the server allows it to change the object gets a 404 if the object does not exist.
//   - A proven request asks for a check, whatever its body contains, and is answered 202. A ping of
//     GitHub or Bitbucket is answered 200. At most one check waits for the one under way, however
//     often the webhook is called.
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

// A Desired is the set of objects that a server keeps up to date. A feed does not modify it after passing it on.
type Desired struct {
	Objects []source.Object // valid, with defaults
	// Invalid are further objects, whose specs cannot be used: they keep their artifacts, and are stalled with
	// the reason InvalidSpec. If an object is in Objects as well, that entry takes precedence.
	Invalid []source.Invalid
	// Foreign reports whether another program keeps an object up to date, such as an ExternalArtifact that no
	// generator makes. Other objects may use a foreign object, but the server neither runs it nor touches its
	// status or its files in the store. Nil means that no object is foreign.
	Foreign func(source.Reference) bool
	Secrets source.Secrets // of the objects; looked up anew for each Desired
	// Watched says that the feed reports each changed Secret by [Server.SecretChanged], so that the server does
	// not look up the Secrets anew for this Desired.
	Watched bool
	// Defects are the errors of documents that are not among Objects. As long as there are defects,
	// the server removes no object: a missing object may be in a document that cannot be read at the moment.
	Defects []error
}

// all returns the objects of d, each with the reason why its spec cannot be used, or nil.
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

// A Feed supplies the objects that a server keeps up to date.
type Feed interface {
	// Follow calls set with the current objects, and again after each change of the objects or their
	// Secrets, until ctx ends. Then it returns nil. An error ends [Server.Run].
	Follow(ctx context.Context, set func(Desired)) error
}

// Statuses stores the statuses of objects. [source.Ledger] stores them in a directory; the comments of its
// methods are the contract of these. An implementation may store the status of an object and the state
// of its kind in different places.
type Statuses interface {
	Load(context.Context, source.Object) (source.State, error)
	Save(context.Context, source.Object, source.State) error
	Object(source.Reference) (source.Object, error) // the document as it was saved last
	References() ([]source.Reference, error)        // of all saved objects
	Remove(source.Reference) error                  // everything about an object, including its suspension

	Removed() (map[source.Reference]time.Time, error) // when objects were removed from the feed
	SetRemoved(source.Reference, time.Time) error

	Suspension(source.Reference) (*source.Suspension, error)
	Suspend(source.Reference, source.Suspension) error
	Resume(source.Reference) error // the error wraps fs.ErrNotExist for an object that is not suspended
}

// A Config configures a [Server]. Feed, Statuses, Store and Origin are required.
type Config struct {
	Feed     Feed
	Statuses Statuses
	Store    *artifact.Store
	// Origin returns the origin of an object, or an error for an object of an unknown kind.
	Origin func(source.Object, source.Env) (source.Origin, error)
	// Artifacts fetches the artifacts of foreign objects and ExternalArtifacts; default: a client with the limits of Env.
	Artifacts *artifact.Client
	// Env is passed to origins. The server sets Sources, Secrets, Share, Since and Archives, and sets Reuse,
	// Cache and Limits.Temp if they are empty.
	Env source.Env

	Runs    int // maximum number of reconciliations at a time; default 256
	PerHost int // the same for one upstream host; default 16
	Fetches int // maximum number of contents fetched and packed at a time, at most half of them from one host; default 2 per CPU

	Jitter    float64       // fraction by which intervals and retry delays vary; default 0.05, negative for none
	MinRetry  time.Duration // delay after the first failure; default 750ms
	MaxRetry  time.Duration // maximum delay of a retry, which is never longer than the interval of the object; default 15m
	Retention time.Duration // how long a removed object keeps its artifacts; default 1h
	Apart     bool          // objects with the same upstream do not share answers
	Scrub     int64         // bytes of stored artifacts verified per second, on average; default 32 MiB, negative for none

	Journal  *journal.Journal // keeps events; nil for none
	Notify   notify.Config    // receivers of events; if its Secrets are nil, those of the feed are used
	Callers  *Callers         // permissions of callers; nil lets all callers do everything
	BaseURL  string           // public URL of the server; "" for the address of the request
	Hooks    string           // name of the webhook Secret for objects that name none; "" for none
	Log      *slog.Logger     // nil for none
	Profiles bool             // serve /debug/pprof/ to callers that may debug

	OpenArtifacts bool // serve artifacts without a credential even if callers must authenticate
	OpenMetrics   bool // the same for metrics

	Keepalive time.Duration      // time between comments on an idle stream; default 15s
	Grace     time.Duration      // time for pending events when the server ends; default 30s
	Now       func() time.Time   // wall-clock time, shown to people; default time.Now
	Emit      func(source.Event) // called with each event, possibly by several goroutines at once; nil for none
	Observe   func(Run)          // called with each ended run before its view changes, possibly by several goroutines at once; nil for none
}

// A Server keeps sources up to date and serves them.
type Server struct {
	config     Config
	log        *slog.Logger
	handler    http.Handler
	bodies     *httpserve.Bodies
	metrics    metrics
	notifier   *notify.Dispatcher // nil for no receivers
	share      source.Share
	reuse      source.Connections
	archives   source.Archives
	seed       maphash.Seed    // for the jitter of ticks
	clockStart time.Time       // start of the clock; only its monotonic part is used
	started    time.Time       // the same by Config.Now
	ready      chan struct{}   // closed when the feed was read and the saved statuses are restored
	ctx        context.Context // ends with that of Run: runs and streams end
	end        context.CancelCauseFunc
	ran        atomic.Bool   // Run was called
	ended      chan struct{} // closed when Run has ended

	applyMu sync.Mutex // serializes Desireds, suspensions and removals; locked before mu
	listed  bool       // the saved statuses were listed for a Desired without defects

	mu             sync.Mutex     // guards the fields below, and the entries
	work           sync.WaitGroup // all goroutines
	serial         uint64         // of the last Desired
	version        uint64         // of the last view that changed
	news           chan struct{}  // closed and replaced when a view changes
	secrets        source.Secrets
	secretsVersion uint64 // how often Secrets may have changed
	objectCount    int    // of the last Desired
	defects        []error
	foreign        func(source.Reference) bool // of the last Desired
	entries        map[source.Reference]*entry
	sorted         []*entry                  // replaced and never changed
	pending        []*entry                  // due; dispatch handles them
	ticks          map[tickKey]time.Duration // the first tick of each key
	failedHosts    map[string]bool           // hosts whose last run failed
	runs           slots
	fetches        slots
}

// New returns a server, which does nothing before [Server.Run]. The error reports invalid receivers of events.
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
		log: c.Log, bodies: httpserve.NewBodies(64 << 10), seed: maphash.MakeSeed(), clockStart: time.Now(), started: c.Now(),
		ready: make(chan struct{}), ended: make(chan struct{}), news: make(chan struct{}), secrets: source.Chain(),
		entries: make(map[source.Reference]*entry), ticks: make(map[tickKey]time.Duration), failedHosts: make(map[string]bool),
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	fetches := cmp.Or(c.Fetches, 2*runtime.GOMAXPROCS(0))
	s.runs = slots{total: cmp.Or(c.Runs, 256), perHost: cmp.Or(c.PerHost, 16), failedHosts: s.failedHosts, queues: make(map[string]*queue)}
	s.fetches = slots{total: fetches, perHost: max(fetches/2, 1), failedHosts: s.failedHosts, queues: make(map[string]*queue)}
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
		c.Notify.Secrets = latestSecrets{s}
	}
	c.Notify.Delivered = func(source.Event) { s.metrics.deliveries.WithLabelValues("delivered").Inc() }
	c.Notify.Report = func(err error, lost bool) {
		s.metrics.deliveries.WithLabelValues(map[bool]string{false: "failed", true: "lost"}[lost]).Inc()
		s.log.Warn("events", "problem", clean(err.Error()))
	}
	var err error
	if s.notifier, err = notify.Start(c.Notify); err != nil {
		return nil, err
	}
	return s, nil
}

// Run keeps the objects up to date until parent ends. Then it interrupts the runs under way, waits for
// all its goroutines, and returns nil. It may be called only once. Run fails if the feed fails, or if
// the saved statuses cannot be listed at the start.
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
			if err := s.apply(d); err != nil {
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
	if s.notifier != nil {
		ending, cancel := context.WithTimeout(context.WithoutCancel(parent), s.config.Grace)
		defer cancel()
		if err := s.notifier.Close(ending); err != nil {
			s.log.Warn("ending", "problem", clean(err.Error()))
		}
	}
	if parent.Err() != nil {
		return nil
	}
	return context.Cause(s.ctx)
}

// clock returns the time since New by the monotonic clock, which changes of the system time do not affect.
func (s *Server) clock() time.Duration { return time.Since(s.clockStart) }

// Defects returns the current errors of the documents of the feed.
func (s *Server) Defects() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.defects)
}

// Ready reports whether the feed has been read and the saved statuses have been restored.
func (s *Server) Ready() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}
