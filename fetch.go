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

// Options configure [Fetch].
type Options struct {
	// Objects are the objects of the set to fetch; the objects that they need are brought up to
	// date as well. Default: all objects of the set.
	Objects []source.Object
	// Until is the last step: [source.StepResolve] resolves the revision, [source.StepVerify]
	// fetches and verifies the content. Neither stores anything. Default: [source.StepStore].
	Until source.Step

	// Lock pins objects: Fetch fetches the locked revision and content of an object instead of what
	// its origin has now. An entry without a content digest pins only the revision. Results have
	// the current lock entries of the objects. If Lock is nil, nothing is locked and results have
	// no entries.
	Lock lock.Entries
	// Locked requires an entry in Lock for each object that is worked on. Either all objects match
	// the lock, or nothing is stored: an object that cannot be fetched as locked fails with a
	// [source.PinError]. Chart repositories are not contacted. Results come when all objects have
	// ended.
	Locked bool
	// Offline, with Locked, contacts no origin: locked content comes from the store, the cache or
	// the Bundle. If none of them has it, the PinError has the Problem [Absent].
	Offline bool
	// Bundle, with Locked, is a further source of locked content beside the store and the cache.
	// What is read from it is checked against the lock.
	Bundle *oci.Bundle

	// If Builder has an ID, Results have the provenance of artifacts in its name. Unless Locked is
	// set, each artifact is built anew, so that the provenance describes what this call fetched.
	Builder provenance.Builder

	Origins Origins
	// Env is the environment of the origins. Fetch sets Sources and Archives and, if they are not
	// set, Secrets (to those of the set), Cache and Limits.Temp (to those of Store).
	Env source.Env

	Store    *artifact.Store    // of artifacts; required if Until is StepStore
	Ledger   *source.Ledger     // of statuses; default: they are kept only in the objects
	Emit     func(source.Event) // default: events are dropped; it may be called concurrently
	Parallel int                // objects worked on at once; default, and if below 1: 4
}

// A Result is the outcome of one object.
type Result struct {
	Object source.Object
	Index  int // the position of the object: requested objects come first, in their order
	source.Result
	Revision source.Revision // found if Until is StepResolve or StepVerify
	Entry    lock.Entry      // the lock entry of the object, if it succeeded and Lock is not nil
	// Provenance of the artifact, if it was asked for and the object succeeded. It is nil for a
	// suspended object and for an object that another program publishes.
	Provenance *provenance.Statement
}

// Fetch brings the objects of a set up to date with their origins once. An object begins when the
// objects that it needs have ended, whether or not they succeeded. Objects that do not need each
// other run concurrently; they begin in the order of the set. A suspended object is left unchanged,
// and so are objects that only it needs. Artifacts that a generator made earlier and does not list
// any more are removed, if Ledger knows them.
//
// Fetch fills in the defaults of all objects of the set (see [source.Default]) and writes the
// status of the objects that it brings up to date. The caller must not change the set meanwhile.
//
// The sequence yields a result for each object when the object ends. The error is that of
// [source.Reconciler.Reconcile]; it wraps [source.ErrInvalid] for an object that cannot work until
// it is changed. If Fetch cannot begin, the sequence yields one error with a nil Object. Objects
// begin when the loop requests the next result; leaving the loop cancels running objects.
//
// With Until StepResolve or StepVerify, the inputs of charts and of generated artifacts are fetched
// into a temporary directory. They have a result only if they failed or were requested themselves.
// Includes only have to exist. The spec.timeout of an object bounds all of its steps. Verifying an
// object whose spec requires no verification fails with [source.ErrVerification].
func Fetch(ctx context.Context, set *source.Set, o Options) iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		f := &fetch{Options: o, set: set, requested: map[source.Object]bool{}, inputs: map[source.Object]bool{}}
		err := f.begin(ctx)
		if f.tempDir != "" {
			defer f.removeTempStore()
		}
		defer f.archives.Close()
		if err != nil {
			yield(Result{}, err)
			return
		}
		if f.Locked && f.stores {
			f.runAllOrNothing(ctx, yield)
		} else {
			f.run(ctx, yield)
		}
	}
}

// A fetch is one call of Fetch.
type fetch struct {
	Options
	set        *source.Set
	stores     bool                   // whether artifacts are stored, not only looked up
	objects    []source.Object        // the requested objects, followed by the objects that they need
	requested  map[source.Object]bool // Options.Objects
	inputs     map[source.Object]bool // inputs of charts and of generated artifacts, if nothing is to be stored
	reconciler source.Reconciler
	tempDir    string // directory of the temporary store, "" if there is none
	archives   source.Archives

	mu           sync.Mutex
	pendingSaves map[source.Object]*pendingSave // set if Locked; saved only if all objects succeed
}

// begin finds the objects and prepares the environment of their origins.
func (f *fetch) begin(ctx context.Context) error {
	f.Until = cmp.Or(f.Until, source.StepStore)
	f.stores = f.Until == source.StepStore
	if f.Parallel < 1 {
		f.Parallel = 4
	}
	if f.Builder.ID != "" && f.Lock == nil {
		f.Lock = lock.Entries{} // so that Results have the entries that a provenance is made from
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
		f.requested[obj] = true
	}
	needing := f.Objects
	if !f.stores {
		if needing = derivedObjects(f.Objects); len(needing) > 0 {
			if err := f.makeTempStore(); err != nil {
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
		if !f.requested[obj] {
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
	f.reconciler.Save, f.pendingSaves = f.deferSave, map[source.Object]*pendingSave{}
	return f.checkLock()
}

// derivedObjects returns copies of the charts and of the generated artifacts among objects, because their
// revisions depend on their inputs. The copies are not suspended, so that the inputs of suspended
// objects are fetched as well.
func derivedObjects(objects []source.Object) (derived []source.Object) {
	for _, obj := range objects {
		switch o := obj.(type) {
		case *source.PkgChart:
			running := *o
			source.Unsuspend(&running)
			derived = append(derived, &running)
		case *source.ExternalArtifact:
			if running := *o; o.Composed != nil {
				source.Unsuspend(&running)
				derived = append(derived, &running)
			}
		}
	}
	return derived
}

// makeTempStore makes a store in a temporary directory.
func (f *fetch) makeTempStore() (err error) {
	if f.tempDir, err = os.MkdirTemp("", "headgate-*"); err != nil {
		return err
	}
	f.Store, err = artifact.OpenStore(artifact.StoreConfig{Dir: f.tempDir})
	return err
}

// removeTempStore closes and removes the store of makeTempStore (second name in the line).
func (f *fetch) removeTempStore() {
	if f.Store != nil {
		f.Store.Close()
	}
	os.RemoveAll(f.tempDir)
}

// objectResult is the result of an object and its error.
type objectResult struct {
	Result
	err error
}

// run works on the objects in the order of their needs, at most Parallel at once.
func (f *fetch) run(ctx context.Context, yield func(Result, error) bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	waiting := make([]int, len(f.objects)) // how many objects each object still waits for
	after := make([][]int, len(f.objects)) // the objects that wait for each object
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
	ended := make(chan objectResult, len(f.objects)) // buffered: if the loop panics, no goroutine is left blocked
	listens := true
	for running := 0; running > 0 || len(ready) > 0; {
		if len(ready) > 0 && running < f.Parallel {
			i := ready[0]
			ready = ready[1:]
			running++
			go func() { ended <- f.fetchObject(ctx, i) }()
			continue
		}
		e := <-ended
		running--
		reported := f.stores || f.requested[e.Object] || e.err != nil
		if listens && reported && !yield(e.Result, e.err) {
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

// fetchObject works on one object.
func (f *fetch) fetchObject(ctx context.Context, i int) objectResult {
	r := Result{Object: f.objects[i], Index: i}
	if f.stores || f.inputs[r.Object] {
		if err := f.reconcile(ctx, &r); err != nil || f.stores || !f.requested[r.Object] {
			return objectResult{r, err}
		}
		if a := r.Object.Artifact(); a != nil {
			r.Revision.ID = a.Revision
		}
	}
	err := f.inspect(ctx, &r)
	return objectResult{r, err}
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
		if err = f.takeExternal(r); err != nil {
			r.Outcome = source.Failed
		}
		return err
	}
	if _, repository := r.Object.(*source.PkgRepository); f.Locked && repository {
		r.Outcome, r.Why = source.Unchanged, "the charts of it are locked, not the repository"
		return nil
	}
	from, locked, err := f.originOf(r.Object)
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
	case locked.want != nil && !locked.want.OriginOnly():
		r.Entry = *locked.want
	default:
		r.Entry.Content, r.Entry.Digest, r.Entry.Pin = locked.got.Content, locked.got.Digest, locked.got.Pin
	}
	_, generator := r.Object.(*source.ArtifactGenerator)
	if generator && err == nil && f.Ledger != nil && f.stores && !f.Locked && r.Outcome != source.Suspended {
		err = f.removeUnlisted(ctx, r)
	}
	if err == nil && f.Builder.ID != "" && f.stores && r.Outcome != source.Suspended && r.Object.Artifact() != nil {
		r.Provenance, err = f.provenance(ctx, r)
	}
	return err
}

// removeUnlisted removes the artifacts that the generator of r made earlier and does not list any more.
func (f *fetch) removeUnlisted(ctx context.Context, r *Result) error {
	outputs, err := f.Ledger.MadeBy(source.ReferenceTo(r.Object))
	for _, ref := range outputs {
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

// provenance returns the provenance of the artifact of r.
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

// takeExternal takes the artifact of an ExternalArtifact from its status.
func (f *fetch) takeExternal(r *Result) error {
	a := r.Object.Artifact()
	switch {
	case a == nil:
		return errors.New("status.artifact is not set yet")
	case f.Lock != nil && a.Digest == "":
		return errors.New("status.artifact has no digest, which a lock and a provenance need")
	}
	r.Entry.Pin, r.Entry.Digest = source.Pin{Revision: a.Revision, URL: a.URL}, a.Digest
	o := &lockedOrigin{obj: r.Object}
	if entry, known := f.Lock[source.ReferenceTo(r.Object)]; known && !entry.OriginOnly() && !entry.Equal(r.Entry) && !r.Object.Plan().Suspend {
		o.want = &entry
		return o.differentError(fmt.Errorf("revision %s with digest %s is at %s", a.Revision, a.Digest, a.URL))
	}
	return nil
}
