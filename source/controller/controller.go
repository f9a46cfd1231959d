// Package controller keeps any number of sources up to date with their origins
// for as long as it runs: it is to a set of objects what [source.Reconciler] is
// to one.
package controller

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// errTODO marks what is not written yet.
var errTODO = errors.New("not written yet")

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
	// Env is what origins get; Sources, Secrets, Share and Since are the controller's.
	Env source.Env
	// Origin returns the origin of an object. Its error is for an object of a kind it does not know.
	Origin func(source.Object, source.Env) (source.Origin, error)

	Runs    int // reconciliations at a time; default 256
	PerHost int // of them with one upstream host; default 16
	Fetches int // contents that are fetched and packed at a time, half of them from one host at most; default 2 for each CPU

	Jitter    float64       // of intervals and retries, a part of them; default 0.05, negative for none
	MinRetry  time.Duration // after the first failure; default 750ms
	MaxRetry  time.Duration // the longest between two attempts; default 15m, and never longer than the interval of the object
	Retention time.Duration // for which what is removed keeps its artifacts; default 1h
	Apart     bool          // objects with the same upstream do not share answers
	Scrub     int64         // bytes of artifacts hashed again in a second; default 32 MiB, negative for none
	ScrubIdle time.Duration // between two rounds; default 24h

	Now     func() time.Time   // wall-clock time, for what people read; default time.Now
	Emit    func(source.Event) // told of events; several goroutines may call it at once; nil for nobody
	Observe func(Run)          // told of each run that ended; several goroutines may call it at once; nil for nobody
}

// Run keeps the objects up to date until ctx ends, then ends what is under way
// and returns nil when all has ended. It may be called once.
func (c *Controller) Run(ctx context.Context) error { return errTODO }

// Views returns all objects as they are now, in the order of kind, namespace and name.
func (c *Controller) Views() []View { return nil }

// View returns one object as it is now. The error wraps fs.ErrNotExist.
func (c *Controller) View(ref source.Reference) (View, error) { return View{}, errTODO }

// Watch calls changed with each object whose view changed, those of all objects
// at first, until ctx ends. Who is slow is told of the last change only.
func (c *Controller) Watch(ctx context.Context, changed func(View)) error { return errTODO }

// Request asks for a run of an object at once, after the one under way if there
// is one, and returns the number of that run. The error wraps fs.ErrNotExist,
// or [ErrSuspended].
func (c *Controller) Request(ref source.Reference, by Trigger) (int64, error) { return 0, errTODO }

// Wait waits until the run of that number, or a later one, of an object has
// ended, and returns the object's view then. The error is that of ctx, or wraps
// fs.ErrNotExist when the object is removed.
func (c *Controller) Wait(ctx context.Context, ref source.Reference, run int64) (View, error) {
	return View{}, errTODO
}

// Suspend has an object left alone until Resume; a run that is under way ends
// first. It is durable. Suspending again changes who and why.
func (c *Controller) Suspend(ref source.Reference, s source.Suspension) error { return errTODO }

// Resume ends what Suspend began, and asks for a run. The error wraps
// [ErrSuspended] when the spec itself suspends the object.
func (c *Controller) Resume(ref source.Reference) error { return errTODO }

// Defects returns what is wrong with the documents of the feed now.
func (c *Controller) Defects() []error { return nil }

// Ready reports whether the feed was read and the saved statuses are restored.
func (c *Controller) Ready() bool { return false }

// Stats returns how much there is to do.
func (c *Controller) Stats() Stats { return Stats{} }

// ErrSuspended marks an object that is suspended.
var ErrSuspended = errors.New("suspended")
