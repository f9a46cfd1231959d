package serve

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// A Desired is what there is to be. It is not changed once it was handed over.
type Desired struct {
	Objects []source.Object // valid, with defaults
	Secrets source.Secrets  // for them; looked up anew for each Desired
	// Defects says what is wrong with documents that are not among Objects. As
	// long as there are defects nothing is taken for removed: what is missing
	// may be in a document that cannot be read just now.
	Defects []error
}

// A Feed says which objects there are to be.
type Feed interface {
	// Follow calls set with what there is, and again after each change of it or
	// of the Secrets, until ctx ends: then it returns nil. An error ends the
	// [Controller].
	Follow(ctx context.Context, set func(Desired)) error
}

// A Controller runs the objects of a feed. Its fields are set before Run.
type Controller struct {
	Feed   Feed
	Store  *artifact.Store
	Ledger *source.Ledger
	// Env is what origins get; Sources, Secrets, Share and Since are the controller's,
	// and so is Reuse where it is nil. Cache and Limits.Temp are those of Store where they are not set.
	Env source.Env
	// Origin returns the origin of an object. Its error is for an object of a kind it does not know.
	Origin func(source.Object, source.Env) (source.Origin, error)

	Runs    int // reconciliations at a time, besides those that take long; default 256
	PerHost int // of them with one upstream host; default 16
	Fetches int // contents that are fetched and packed at a time, half of them from one host at most; default 2 for each CPU

	Jitter    float64       // of intervals and retries, a part of them; default 0.05, negative for none
	MinRetry  time.Duration // after the first failure; default 750ms
	MaxRetry  time.Duration // the longest between two attempts; default 15m, and never longer than the interval of the object
	Retention time.Duration // for which what is removed keeps its artifacts; default 1h
	Apart     bool          // objects with the same upstream do not share answers
	Scrub     int64         // bytes of artifacts hashed again in a second; default 32 MiB, negative for none
	Repeat    time.Duration // within which an event equal to the last of its object is not told again; default 5m, negative for none
	ScrubIdle time.Duration // between two rounds; default 24h

	Now     func() time.Time   // wall-clock time, for what people read; default time.Now
	Emit    func(source.Event) // told of events; several goroutines may call it at once; nil for no reports
	Observe func(Run)          // told of each run that ended, before its view changes; several goroutines may call it at once; nil for no reports

	engine
}

// An engine is what a controller has while it runs.
type engine struct {
	setting sync.Mutex // one Desired, suspension or retirement after the other; taken before mu
	mu      sync.Mutex // guards all that follows, and entries

	ctx     context.Context // of Run; nil before
	closing bool            // nothing begins any more
	end     chan struct{}   // closed when all has ended
	goes    sync.WaitGroup  // all goroutines
	began   time.Time
	timer   *time.Timer

	minRetry, maxRetry, retention time.Duration
	jitter                        float64
	seed                          maphash.Seed // of ticks and of sums of inputs
	env                           source.Env   // completed by begin
	stock                         *stock
	share                         source.Share
	reuse                         source.Connections
	events                        lastEvents

	ready   chan struct{} // closed when the feed was read and the saved statuses are restored
	serial  uint64        // of the last Desired
	secrets source.Secrets
	defects []error
	listed  bool // the ledger was, for a Desired without defects
	marking bool // marks that could not be saved are tried again
	entries map[source.Reference]*entry
	sorted  []*entry // replaced and never changed
	agenda  agenda
	ticks   map[tickKey]time.Duration // the first of them
	runs    turns[*entry]
	fetches turns[chan struct{}]

	version uint64 // of the newest view
	gone    []*entry
	lost    uint64        // the newest version of an entry that is gone and not kept
	news    chan struct{} // closed when a view changes; nil when that is not asked for
}

// Run keeps the objects up to date until ctx ends, then ends what is under way
// and returns nil when all has ended. It may be called once. The error is the feed's, or that of a
// ledger that cannot be listed at the start.
func (c *Controller) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := c.begin(ctx); err != nil {
		return err
	}
	defer c.timer.Stop()
	var failed error
	c.goes.Go(func() {
		if failed = c.followFeed(ctx); failed != nil {
			cancel()
		}
	})
	for ctx.Err() == nil {
		select {
		case <-c.timer.C:
			c.mu.Lock()
			c.pump()
			c.mu.Unlock()
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.goes.Wait()
	c.reuse.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.end)
	return failed
}

// begin prepares a run of the controller.
func (c *Controller) begin(ctx context.Context) error {
	end := c.over()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx != nil {
		return errors.New("the controller was run before")
	}
	c.ctx, c.end = ctx, end
	c.began, c.seed = time.Now(), maphash.MakeSeed()
	c.runs.all = positive(c.Runs, 256)
	c.runs.each = positive(c.PerHost, 16)
	c.fetches.all = positive(c.Fetches, 2*runtime.GOMAXPROCS(0))
	c.fetches.each = max(c.fetches.all/2, 1)
	c.minRetry = cmp.Or(c.MinRetry, 750*time.Millisecond)
	c.maxRetry = cmp.Or(c.MaxRetry, 15*time.Minute)
	c.retention = cmp.Or(c.Retention, time.Hour)
	c.jitter = max(cmp.Or(c.Jitter, 0.05), 0)
	c.entries = make(map[source.Reference]*entry)
	c.env = c.Env.In(c.Store)
	c.stock = &stock{c, &source.Inventory{Store: c.Store, Client: &artifact.Client{MaxBytes: c.env.Limits.Bytes, Temp: c.env.Limits.Temp}}}
	c.timer = time.NewTimer(time.Hour)
	c.timer.Stop()
	return nil
}

func positive(n, otherwise int) int {
	if n > 0 {
		return n
	}
	return otherwise
}

// followFeed has the feed say what there is to be, until ctx ends.
func (c *Controller) followFeed(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
	}()
	feeding, cancel := context.WithCancel(ctx)
	defer cancel()
	var unrestored error
	err = c.Feed.Follow(feeding, func(d Desired) {
		if unrestored == nil {
			unrestored = c.set(ctx, d)
		}
		if unrestored != nil {
			cancel()
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	return cmp.Or(unrestored, err)
}

// clock returns how long the controller has run: it does not know the date.
func (c *Controller) clock() time.Duration { return time.Since(c.began) }

// wall returns wall-clock time.
func (c *Controller) wall() time.Time {
	if c.Now != nil {
		return c.Now()
	}
	return time.Now()
}

// over returns a channel that is closed when the controller has ended.
func (c *Controller) over() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end == nil {
		c.end = make(chan struct{})
	}
	return c.end
}

// Defects returns what is wrong with the documents of the feed now.
func (c *Controller) Defects() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.defects)
}

// Ready reports whether the feed was read and the saved statuses are restored.
func (c *Controller) Ready() bool {
	select {
	case <-c.readiness():
		return true
	default:
		return false
	}
}

// WaitReady waits until [Controller.Ready]; the error is that of ctx.
func (c *Controller) WaitReady(ctx context.Context) error {
	select {
	case <-c.readiness():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Controller) readiness() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ready == nil {
		c.ready = make(chan struct{})
	}
	return c.ready
}

// ErrSuspended marks an object that is suspended.
var ErrSuspended = errors.New("suspended")
