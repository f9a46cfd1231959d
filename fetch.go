package headgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"slices"
	"sync"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/lock"
	"github.com/headgate-io/headgate/source/provenance"
)

// Options say what [Fetch] does, and with what.
type Options struct {
	// Objects are those of the set that are wanted; what they need is brought up to
	// date as well. Default: all objects of the set.
	Objects []source.Object
	// Until is the last step: [source.StepResolve] finds out the revision,
	// [source.StepVerify] fetches and verifies it. Neither stores anything.
	// Default: [source.StepStore].
	Until source.Step

	// Lock has what objects are to be brought to, in the place of what their origins
	// are at now; an entry that leaves the content open brings its revision. Results have
	// the entries of objects as they are now. Nil: nothing is locked, and there are none.
	Lock lock.Entries
	// Locked wants an entry in Lock for each object that is worked on, and does all or
	// nothing: what cannot be had as it is locked is a [source.PinError], and then nothing
	// is stored. Repositories of charts are not asked. Results come when all have ended.
	Locked bool
	// Offline, with Locked, asks no origin: what is locked comes from the store or the
	// cache, or its PinError has the Problem [Absent].
	Offline bool
	// Bundle, with Locked, has what is locked beside the store and the cache. What comes
	// from it has the content that is locked.
	Bundle *oci.Bundle

	// A Builder with an ID is in whose name Results have the provenance of artifacts.
	// Unless it is Locked, each is made anew: the provenance is of what this call fetched.
	Builder provenance.Builder

	Origins Origins
	// Env is what origins get. Fetch fills in Sources and Archives, and if they are not set,
	// Secrets (those of the set), Cache and Limits.Temp (those of Store).
	Env source.Env

	Store    *artifact.Store    // of artifacts; needed unless Until says otherwise
	Ledger   *source.Ledger     // of statuses; default: they are in the objects only
	Emit     func(source.Event) // default: events are dropped; several objects may call it at once
	Parallel int                // objects worked on at once; default, and below 1: 4
}

// A Result says what became of one object.
type Result struct {
	Object source.Object
	Index  int // the place of the object: those wanted come first, in their order
	source.Result
	Revision source.Revision // that Until StepResolve or StepVerify found
	Entry    lock.Entry      // what locks the object, if it succeeded and Lock is not nil
	// Provenance of the artifact, if it was asked for and the object succeeded; that of a
	// suspended object, or of one that another program publishes, is not known.
	Provenance *provenance.Statement
}

// Fetch brings the objects of a set up to date with their origins once. An object
// begins when those that it needs have ended, whatever became of them. Objects
// that do not need each other run at the same time; they begin in the order of the
// set. A suspended object stays as it is, and so do those that only it needs. What a
// generator made once and does not list any more is removed, as far as Ledger knows it.
//
// Fetch fills in the defaults of all objects of the set (see [source.Default]), and
// writes the status of those that it brings up to date. The set must not change meanwhile.
//
// The sequence has a result for each object, as it ends. The error beside it is
// that of [source.Reconciler.Reconcile]; it wraps [source.ErrInvalid] for an object
// that cannot work until it is changed. If Fetch cannot begin, the sequence has one
// error, and its Object is nil. Objects begin when the loop asks for the next
// result; leaving the loop ends the objects that run.
//
// With Until StepResolve or StepVerify the objects that charts are made of, and what
// generators make, are fetched into a temporary directory. They have a result if they failed, or are
// wanted themselves. Includes only have to exist. The spec.timeout of an object
// bounds all of its steps. Verifying an object whose spec asks for no verification
// fails with [source.ErrVerification].
func Fetch(ctx context.Context, set *source.Set, o Options) iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		f := &fetch{Options: o, set: set, wanted: map[source.Object]bool{}, inputs: map[source.Object]bool{}}
		err := f.begin(ctx)
		if f.temporary != "" {
			defer f.removeStore()
		}
		defer f.archives.Close()
		if err != nil {
			yield(Result{}, err)
			return
		}
		if f.Locked && f.stores {
			f.allOrNothing(ctx, yield)
		} else {
			f.run(ctx, yield)
		}
	}
}

// A fetch is one call of Fetch.
type fetch struct {
	Options
	set        *source.Set
	stores     bool                   // artifacts are wanted, not only what origins say
	objects    []source.Object        // those wanted, and behind them what they need
	wanted     map[source.Object]bool // Options.Objects
	inputs     map[source.Object]bool // what charts and outputs of generators are made of, if nothing is to be stored
	reconciler source.Reconciler
	temporary  string // directory of the store if it is a temporary one
	archives   source.Archives

	mu      sync.Mutex
	unsaved map[source.Object]*pendingSave // of a run that does all or nothing
}

// begin finds the objects, and prepares what their origins get.
func (f *fetch) begin(ctx context.Context) error {
	f.Until = cmp.Or(f.Until, source.StepStore)
	f.stores = f.Until == source.StepStore
	if f.Parallel < 1 {
		f.Parallel = 4
	}
	if f.Builder.ID != "" && f.Lock == nil {
		f.Lock = lock.Entries{} // entries tell what it was made of
	}
	switch {
	case !f.stores && f.Until != source.StepResolve && f.Until != source.StepVerify:
		return fmt.Errorf("fetch until %q: want %s, %s or %s", f.Until, source.StepResolve, source.StepVerify, source.StepStore)
	case f.Offline && !f.Locked:
		return errors.New("fetch: without Locked, origins have to be asked")
	case f.stores && f.Store == nil:
		return errors.New("fetch: there is no store")
	}
	for _, obj := range slices.Concat(f.set.Objects, f.Objects) {
		source.Default(obj)
	}
	if f.Objects == nil {
		f.Objects = f.set.Objects
	}
	for _, obj := range f.Objects {
		f.wanted[obj] = true
	}
	needing := f.Objects
	if !f.stores {
		if needing = made(f.Objects); len(needing) > 0 {
			if err := f.makeStore(); err != nil {
				return err
			}
		}
	}
	if f.Store != nil {
		f.Env = f.Env.In(f.Store)
	}
	if f.Env.Secrets == nil {
		f.Env.Secrets = f.set
	}
	f.Env.Archives = &f.archives
	f.Env.Sources = &source.Inventory{Objects: f.set.Objects, Store: f.Store,
		Client: &artifact.Client{MaxBytes: f.Env.Limits.Bytes, Temp: f.Env.Limits.Temp}}
	all, err := source.WithNeeds(ctx, needing, f.Env.Sources)
	if err != nil {
		return err
	}
	f.objects = slices.Clone(f.Objects)
	for _, obj := range all[len(needing):] {
		f.inputs[obj] = !f.stores
		if !f.wanted[obj] {
			f.objects = append(f.objects, obj)
		}
	}
	f.reconciler = source.Reconciler{Store: f.Store, Emit: f.Emit}
	if f.Ledger != nil && f.stores {
		f.reconciler.Load, f.reconciler.Save = f.Ledger.Load, f.Ledger.Save
	}
	if !f.Locked {
		return nil
	}
	f.reconciler.Save, f.unsaved = f.hold, map[source.Object]*pendingSave{}
	return f.checkLock()
}

// made returns the charts and the outputs of generators among objects, whose revisions
// depend on what they are made of. These are wanted although they are suspended, so that
// the copies are not.
func made(objects []source.Object) (made []source.Object) {
	for _, obj := range objects {
		switch o := obj.(type) {
		case *source.PkgChart:
			running := *o
			source.Unsuspend(&running)
			made = append(made, &running)
		case *source.ExternalArtifact:
			if running := *o; o.Composed != nil {
				source.Unsuspend(&running)
				made = append(made, &running)
			}
		}
	}
	return made
}

// makeStore makes a store in a temporary directory.
func (f *fetch) makeStore() (err error) {
	if f.temporary, err = os.MkdirTemp("", "headgate-*"); err != nil {
		return err
	}
	f.Store, err = artifact.OpenStore(artifact.StoreConfig{Dir: f.temporary})
	return err
}

// removeStore removes what makeStore made.
func (f *fetch) removeStore() {
	if f.Store != nil {
		f.Store.Close()
	}
	os.RemoveAll(f.temporary)
}

// finished is the result of an object and its error.
type finished struct {
	Result
	err error
}

// run does the objects in the order of their needs, Parallel at once.
func (f *fetch) run(ctx context.Context, yield func(Result, error) bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	waiting := make([]int, len(f.objects)) // how many objects have to end before
	after := make([][]int, len(f.objects)) // which objects wait
	var ready []int                        // sorted
	for i, before := range source.Order(f.objects) {
		waiting[i] = len(before)
		for _, b := range before {
			after[b] = append(after[b], i)
		}
		if len(before) == 0 {
			ready = append(ready, i)
		}
	}
	ended := make(chan finished, len(f.objects)) // a loop that panics leaves no goroutine behind
	listens := true
	for running := 0; running > 0 || len(ready) > 0; {
		if len(ready) > 0 && running < f.Parallel {
			i := ready[0]
			ready = ready[1:]
			running++
			go func() { ended <- f.do(ctx, i) }()
			continue
		}
		e := <-ended
		running--
		told := f.stores || f.wanted[e.Object] || e.err != nil
		if listens && told && !yield(e.Result, e.err) {
			listens, ready = false, nil
			cancel()
		}
		if !listens {
			continue
		}
		for _, next := range after[e.Index] {
			if waiting[next]--; waiting[next] == 0 {
				at, _ := slices.BinarySearch(ready, next)
				ready = slices.Insert(ready, at, next)
			}
		}
	}
}

// do does one object.
func (f *fetch) do(ctx context.Context, i int) finished {
	r := Result{Object: f.objects[i], Index: i}
	if f.stores || f.inputs[r.Object] {
		if err := f.reconcile(ctx, &r); err != nil || f.stores || !f.wanted[r.Object] {
			return finished{r, err}
		}
		if a := r.Object.Artifact(); a != nil {
			r.Revision.ID = a.Revision
		}
	}
	err := f.look(ctx, &r)
	return finished{r, err}
}

// reconcile brings one object up to date.
func (f *fetch) reconcile(ctx context.Context, r *Result) (err error) {
	if f.Lock != nil {
		if r.Entry, err = lock.New(r.Object); err != nil {
			return err
		}
		if f.Ledger == nil {
			source.AssignGeneration(r.Object, nil) // it is part of the version of a chart
		}
	}
	if source.External(r.Object) {
		r.Outcome, r.Why = source.Unchanged, "its artifact is published elsewhere"
		if err = f.external(r); err != nil {
			r.Outcome = source.Failed
		}
		return err
	}
	if _, repository := r.Object.(*source.PkgRepository); f.Locked && repository {
		r.Outcome, r.Why = source.Unchanged, "the charts of it are locked, not the repository"
		return nil
	}
	from, locked, err := f.locked(r.Object)
	if err != nil {
		r.Outcome = source.Stalled
		return err
	}
	if f.Env.Progress != nil {
		address, _ := source.Address(r.Object)
		f.Env.Progress(source.Progress{Object: address, Phase: "asking", Asked: r.Object})
	}
	r.Result, err = f.reconciler.Reconcile(ctx, r.Object, from)
	switch {
	case err != nil || locked == nil:
	case locked.want != nil && !locked.want.Open():
		r.Entry = *locked.want
	default:
		r.Entry.Content, r.Entry.Digest, r.Entry.Pin = locked.got.Content, locked.got.Digest, locked.got.Pin
	}
	_, generator := r.Object.(*source.ArtifactGenerator)
	if generator && err == nil && f.Ledger != nil && f.stores && !f.Locked && r.Outcome != source.Suspended {
		err = f.collect(ctx, r)
	}
	if err == nil && f.Builder.ID != "" && f.stores && r.Outcome != source.Suspended && r.Object.Artifact() != nil {
		r.Provenance, err = f.provenance(ctx, r)
	}
	return err
}

// collect removes what the object of r, a generator, made and does not list any more.
func (f *fetch) collect(ctx context.Context, r *Result) error {
	made, err := f.Ledger.MadeBy(source.ReferenceTo(r.Object))
	for _, ref := range made {
		if _, missing := f.Env.Sources.Source(ctx, ref); !errors.Is(missing, fs.ErrNotExist) {
			continue
		}
		if left := f.Ledger.Forget(ctx, f.Store, ref); left != nil {
			err = errors.Join(err, left)
			continue
		}
		r.Report.Notes = append(r.Report.Notes, fmt.Sprintf("%s is not listed any more, and was removed from the store", ref))
	}
	return err
}

// provenance returns how the artifact of r was made.
func (f *fetch) provenance(ctx context.Context, r *Result) (*provenance.Statement, error) {
	inputs, err := source.Needed(ctx, r.Object, f.Env.Sources)
	if err != nil {
		return nil, err
	}
	archive, err := f.Store.Open(*r.Object.Artifact())
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	return provenance.New(f.Builder, r.Object, r.Entry, inputs, archive)
}

// external takes the artifact of an ExternalArtifact from its status.
func (f *fetch) external(r *Result) error {
	a := r.Object.Artifact()
	switch {
	case a == nil:
		return errors.New("status.artifact is not set yet")
	case f.Lock != nil && a.Digest == "":
		return errors.New("status.artifact has no digest, which a lock and a provenance need")
	}
	r.Entry.Pin, r.Entry.Digest = source.Pin{Revision: a.Revision, URL: a.URL}, a.Digest
	o := &lockedOrigin{obj: r.Object}
	if entry, known := f.Lock[source.ReferenceTo(r.Object)]; known && !entry.Open() && !entry.Equal(r.Entry) && !r.Object.Plan().Suspend {
		o.want = &entry
		return o.differs(fmt.Errorf("revision %s with digest %s is at %s", a.Revision, a.Digest, a.URL))
	}
	return nil
}
