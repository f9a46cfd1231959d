package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math/rand/v2"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/source"
)

// Reasons of events about saved files.
const (
	readFailed         = "ReadOperationFailed"
	removalFailed      = "GarbageCollectionFailed"
	verificationFailed = "ArtifactVerificationFailed"
)

// apply applies d: it restores the saved state of new objects, and removes missing objects. It fails only for the first
// d, if the statuses cannot be listed.
func (s *Server) apply(d Desired) error {
	if d.Secrets == nil {
		d.Secrets = source.Chain()
	}
	s.applyMu.Lock()
	added, err := s.restore(d)
	if err != nil {
		s.applyMu.Unlock()
		return fmt.Errorf("read what was saved: %w", err)
	}
	s.listed = s.listed || len(d.Defects) == 0
	all, since := s.updateEntries(d, added)
	s.each(maps.Keys(since), func(e *entry) { // failures are retried with the next Desired
		err := s.config.Statuses.SetRemoved(e.ref, since[e])
		if s.emitError(e.ref, removalFailed, err); err == nil {
			e.savedRemoval = since[e]
		}
	})
	s.applyMu.Unlock()
	if !d.Watched {
		s.recheckSecrets(d.Secrets, all, nil)
	}
	return nil
}

// restore returns entries for the new objects of d. Until a Desired had no defects, it also returns entries for saved
// objects without a document. Those whose saved document cannot be read are left out while there are defects, so that
// they are not removed. restore fails if the statuses cannot be listed at the start, because suspensions would be unknown.
func (s *Server) restore(d Desired) (map[source.Reference]*entry, error) {
	added := make(map[source.Reference]*entry)
	s.mu.Lock()
	known := maps.Clone(s.entries)
	s.mu.Unlock()
	for doc, invalid := range d.all() {
		ref := source.ReferenceTo(doc)
		if e := known[ref]; (e == nil || e.foreign && !d.foreign(ref)) && added[ref] == nil {
			added[ref] = &entry{ref: ref, foreign: d.foreign(ref), invalid: invalid}
			added[ref].setDocument(doc, nil)
		}
	}
	if !s.listed {
		refs, err := s.config.Statuses.References()
		if err != nil && !s.Ready() {
			return nil, err
		}
		since, err := s.config.Statuses.Removed()
		s.emitError(source.Reference{}, readFailed, err)
		for _, ref := range refs {
			if known[ref] == nil && added[ref] == nil {
				added[ref] = &entry{ref: ref}
			}
			if e := added[ref]; e != nil {
				e.savedRemoval = since[ref]
			}
		}
	}
	s.each(maps.Values(added), s.restoreOne)
	maps.DeleteFunc(added, func(ref source.Reference, e *entry) bool {
		unread := e.doc == nil
		if unread {
			e.doc = source.New(ref)
			e.obj = e.doc
		}
		return unread && len(d.Defects) > 0
	})
	return added, nil
}

// restoreOne reads the saved state of one object. If the entry has no document and the saved one cannot be read, its
// document stays nil. A status that cannot be read is not reported here: the first run of the object reports it.
func (s *Server) restoreOne(e *entry) {
	var err error
	e.suspension, err = s.config.Statuses.Suspension(e.ref)
	s.emitError(e.ref, readFailed, err)
	if out, ok := e.doc.(*source.ExternalArtifact); ok && out.Composed != nil && e.suspension == nil {
		e.suspension, err = s.inheritSuspension(e.ref, out.Spec.SourceRef)
		s.emitError(e.ref, readFailed, err)
	}
	if e.doc == nil {
		obj, err := s.config.Statuses.Object(e.ref)
		if s.emitError(e.ref, readFailed, err); err != nil {
			return
		}
		e.doc, e.obj = obj, obj
	} else if obj := source.Clone(e.doc); !e.external() {
		if _, err := s.config.Statuses.Load(s.ctx, obj); err == nil {
			e.setDocument(e.doc, obj)
		}
	}
	switch a := e.obj.Artifact(); {
	case e.external():
	case !isUpToDate(e.obj) || e.invalid != nil || a != nil && a.URL != s.config.Store.URL(a.Path): // the store was served elsewhere
		e.trigger = Start
	case a != nil && damaged(s.config.Store.Check(*a)):
		e.trigger = Repair
	}
}

// inheritSuspension returns the suspension of a generator for an object ref that it makes, and saves it for ref, if ref has
// never run.
func (s *Server) inheritSuspension(ref source.Reference, generator *source.ExternalSourceReference) (*source.Suspension, error) {
	if _, err := s.config.Statuses.Object(ref); !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	hold, err := s.config.Statuses.Suspension(source.Reference{Kind: generator.Kind, Namespace: generator.Namespace, Name: generator.Name})
	if hold != nil && err == nil {
		err = s.config.Statuses.Suspend(ref, *hold)
	}
	return hold, err
}

// isUpToDate reports whether obj is ready, and its status matches its generation and request, so that it need
// not run before its next tick.
func isUpToDate(obj source.Object) bool {
	status, head := obj.Common(), obj.Head()
	return status.Condition(source.ReadyCondition).Status == "True" &&
		status.ObservedGeneration != 0 && status.ObservedGeneration == head.Metadata.Generation &&
		(source.RequestedAt(obj) == "" || source.RequestedAt(obj) == status.LastHandledReconcileAt)
}

// each calls do with each entry, several at a time, and waits for the calls. It stops early when the server ends.
func (s *Server) each(entries iter.Seq[*entry], do func(*entry)) {
	var group errgroup.Group
	group.SetLimit(2 * runtime.GOMAXPROCS(0))
	for e := range entries {
		if s.ctx.Err() != nil {
			break
		}
		group.Go(func() error { do(e); return nil })
	}
	group.Wait()
}

// updateEntries updates the entries to d; the server is ready after the first call. It returns all entries, and the removal
// times that differ from the saved ones: the zero time for an entry that came back.
func (s *Server) updateEntries(d Desired, added map[source.Reference]*entry) (all []*entry, since map[*entry]time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	if !d.Watched {
		s.secretsVersion++
	}
	if s.serial == 1 || len(d.Objects) != s.objectCount || len(d.Defects) != len(s.defects) {
		s.log.Info("documents", "objects", len(d.Objects), "defects", len(d.Defects))
	}
	s.secrets, s.objectCount, s.defects, s.foreign = d.Secrets, len(d.Objects), d.Defects, d.foreign
	for ref, e := range added {
		s.entries[ref], e.serial = e, s.serial-1
		s.markChanged(e)
	}
	for doc, invalid := range d.all() {
		if e := s.entries[source.ReferenceTo(doc)]; e.serial != s.serial { // the first document of an object takes precedence
			s.updateEntry(e, doc, invalid, d.foreign(e.ref))
		}
	}
	for _, e := range s.entries {
		switch {
		case e.serial == s.serial || e.removed != nil:
		case len(d.Defects) == 0 && e.foreign:
			delete(s.entries, e.ref)
		case len(d.Defects) == 0:
			s.remove(e)
		case e.serial == s.serial-1:
			s.markChanged(e) // it is missing
		}
	}
	s.linkAndPlan(added)
	if s.serial == 1 {
		close(s.ready)
		s.work.Go(s.scrub)
	}
	s.dispatch()
	since = make(map[*entry]time.Time)
	for _, e := range s.sorted {
		var at time.Time
		if e.removed != nil {
			at = e.removed.at
		}
		if !at.Equal(e.savedRemoval) {
			since[e] = at
		}
	}
	return s.sorted, since
}

// linkAndPlan updates order, inputs and upstreams of all entries, and plans the first runs of new entries: at once, or at the
// next tick if the saved status is good.
func (s *Server) linkAndPlan(added map[source.Reference]*entry) {
	s.sorted = slices.SortedFunc(maps.Values(s.entries), compareEntries)
	s.link()
	for _, e := range s.sorted {
		if e.removed != nil {
			continue
		}
		s.setUpstream(e)
		switch {
		case added[e.ref] != e:
			if inputVersions(e) != e.inputVersions {
				s.enqueue(e, Input, 0)
			}
		case e.external() || e.suspended():
		case e.trigger != "":
			s.enqueue(e, e.trigger, s.clock())
		case len(e.inputs) > 0: // an input may have stored an artifact just before the previous process ended
			s.enqueue(e, Input, s.clock())
		case e.obj.Interval() > 0:
			s.plan(e, Tick, s.nextTick(e, s.clock()))
		}
		if e.state == queued || e.state == blocked {
			s.queueOrBlock(e)
		}
	}
}

// updateEntry gives an entry the current document of the feed, and enqueues it if that requires a run.
func (s *Server) updateEntry(e *entry, doc source.Object, invalid error, foreign bool) {
	missing, removed := e.serial != s.serial-1, e.removed != nil
	e.serial = s.serial
	if e.doc == doc && !removed && !missing && e.foreign == foreign {
		return
	}
	before, mended := e.obj, fmt.Sprint(invalid) != fmt.Sprint(e.invalid)
	e.foreign, e.invalid, e.removed = foreign, invalid, nil
	e.setDocument(doc, before)
	s.markChanged(e)
	switch now, generation := s.clock(), doc.Head().Metadata.Generation; {
	case e.external():
		s.cancelPlan(e)
		s.interrupt(e, "another program keeps the object up to date now")
	case e.suspended():
		s.cancelPlan(e)
	case removed:
		s.enqueue(e, Start, now)
	case mended || doc.Plan().Suspend != before.Plan().Suspend || generation != 0 && generation != before.Head().Metadata.Generation || string(source.CanonicalSpec(doc)) != string(source.CanonicalSpec(before)):
		s.enqueue(e, Spec, now)
	case source.RequestedAt(doc) != "" && source.RequestedAt(doc) != source.RequestedAt(before):
		s.enqueue(e, Request, now)
	}
}

// interrupt ends the run of e that is under way, if there is one.
func (s *Server) interrupt(e *entry, reason string) {
	if e.state == running {
		e.cancel(errors.New(reason))
	}
}

// remove marks an object that is no longer in the feed as removed and interrupts its run. Its artifacts are deleted
// after the retention, which continues over restarts.
func (s *Server) remove(e *entry) {
	since, now := e.savedRemoval, s.config.Now()
	if since.IsZero() {
		since = now
	}
	left := min(max(s.config.Retention-now.Sub(since), 0), s.config.Retention)
	e.removed, e.lookups = &removal{at: since, due: dueAfter(s.clock(), left)}, nil
	if s.cancelPlan(e); e.state != running {
		s.plan(e, "", e.removed.due)
	}
	s.interrupt(e, "the object was removed")
	s.markChanged(e)
}

// deleteRemoved deletes a removed object whose retention is over. After an error it retries in a minute.
func (s *Server) deleteRemoved(e *entry, removed *removal) {
	err := s.deleteObject(e, removed)
	s.mu.Lock()
	if err != nil && e.removed == removed {
		s.plan(e, "", s.clock()+time.Minute)
	}
	s.mu.Unlock()
	if err == nil {
		err = s.config.Store.Tidy(storeDir(e.ref))
	}
	if s.ctx.Err() == nil {
		s.emitError(e.ref, removalFailed, err)
	}
}

// deleteObject deletes artifacts, status, state and suspension of a removed object, and then the object itself,
// unless it has come back. It locks out Desireds and suspensions, so that an object comes back with all its
// state or with none. It deletes the status first, so that no status names an artifact that does not exist.
func (s *Server) deleteObject(e *entry, removed *removal) (err error) {
	dir := storeDir(e.ref)
	unlock, err := s.config.Store.Lock(s.ctx, dir)
	if err != nil {
		return err
	}
	defer unlock()
	s.applyMu.Lock() // so that no other goroutine writes e.removed, e.hold and e.obj
	defer s.applyMu.Unlock()
	if e.removed != removed {
		return nil
	}
	hold := e.suspension
	if err = s.config.Statuses.Remove(e.ref); err == nil {
		err = s.config.Store.Remove(dir)
	}
	if err != nil { // the status may be deleted, and the suspension too
		hold, _ = s.config.Statuses.Suspension(e.ref)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if removed.done = err == nil; removed.done {
		delete(s.entries, e.ref)
		delete(s.ticks, e.tickKey()) // other objects with this key start new ticks
		s.sorted = slices.DeleteFunc(slices.Clone(s.sorted), func(other *entry) bool { return other == e })
	} else {
		e.suspension = hold
		e.setDocument(e.doc, nil)
	}
	s.markChanged(e)
	return err
}

// storeDir returns the directory of an object in the store.
func storeDir(ref source.Reference) string {
	return strings.ToLower(ref.Kind) + "/" + ref.Namespace + "/" + ref.Name
}

// scrubInterval is the time between two rounds of the scrub.
const scrubInterval = 24 * time.Hour

// scrub tidies the store and verifies its artifacts, at once and then every day, until the server ends.
func (s *Server) scrub() {
	for wait := time.Duration(0); retry.Sleep(s.ctx, wait) == nil; wait = scrubInterval {
		if err := s.tidy(); s.ctx.Err() == nil {
			s.emitError(source.Reference{}, removalFailed, err)
		}
		if s.config.Scrub < 0 {
			continue
		}
		views := s.Views()
		rand.Shuffle(len(views), func(i, j int) { views[i], views[j] = views[j], views[i] }) // so that a server that is restarted often does not verify the same artifacts each time
		for _, v := range views {
			if a := v.Object.Artifact(); a != nil && !source.External(v.Object) {
				s.verify(source.ReferenceTo(v.Object), *a)
				pause := float64(a.Size) / float64(s.config.Scrub) * float64(time.Second)
				if retry.Sleep(s.ctx, time.Duration(pause)) != nil {
					return
				}
			}
		}
	}
}

// verify checks the digest of the artifact of an object, and enqueues the object if the artifact is damaged.
func (s *Server) verify(ref source.Reference, a artifact.Artifact) {
	err := s.config.Store.Verify(s.ctx, a)
	if !damaged(err) {
		return
	}
	missing := errors.Is(err, fs.ErrNotExist) // not reported: no client got wrong content
	s.mu.Lock()
	e := s.entries[ref]
	if e == nil || e.obj.Artifact() == nil || e.obj.Artifact().Path != a.Path || missing && e.state == running { // it was, or is being, replaced
		s.mu.Unlock()
		return
	}
	s.enqueue(e, Repair, 0)
	s.dispatch()
	s.mu.Unlock()
	if !missing {
		s.emitError(ref, verificationFailed, err)
	}
}

// damaged reports whether err says that an artifact is corrupt or missing.
func damaged(err error) bool {
	_, corrupt := errors.AsType[*artifact.DigestError](err)
	return corrupt || errors.Is(err, fs.ErrNotExist)
}

// tidy deletes files that killed processes left in the store, and the artifacts of objects that neither the feed nor
// the statuses contain.
func (s *Server) tidy() error {
	if _, err := s.config.Store.Sweep(s.ctx); err != nil {
		return err
	}
	refs, err := s.config.Statuses.References()
	if err != nil {
		return nil // without the saved objects nothing can be deleted
	}
	saved := make(map[source.Reference]bool)
	for _, ref := range refs {
		saved[ref] = true
	}
	_, err = s.config.Store.GC(s.ctx, artifact.GCConfig{Keep: func(a artifact.Artifact) bool {
		ref, err := source.ParseReference(path.Dir(path.Dir(a.Path)))
		s.mu.Lock() // the store holds the lock of the directory, so no run is about to save the object
		defer s.mu.Unlock()
		return err == nil && (saved[ref] || s.entries[ref] != nil || s.foreign(ref))
	}})
	return err
}

// latestSecrets looks up Secrets in the newest Desired.
type latestSecrets struct{ *Server }

func (l latestSecrets) current() source.Secrets {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.secrets
}

// Secret implements [source.Secrets].
func (l latestSecrets) Secret(ctx context.Context, namespace, name string) (source.Secret, error) {
	return l.current().Secret(ctx, namespace, name)
}

// PullSecrets implements [source.Secrets].
func (l latestSecrets) PullSecrets(ctx context.Context, namespace, account string) ([]source.Secret, error) {
	return l.current().PullSecrets(ctx, namespace, account)
}
