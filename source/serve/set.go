package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// Reasons of events about saved files.
const (
	readFailed         = "ReadOperationFailed"
	removalFailed      = "GarbageCollectionFailed"
	verificationFailed = "ArtifactVerificationFailed"
)

// set makes d what there is to be. The error, at the first d, is that of the statuses.
func (s *Server) set(d Desired) error {
	if d.Secrets == nil {
		d.Secrets = source.Chain()
	}
	s.setting.Lock()
	fresh, err := s.restore(d)
	if err != nil {
		s.setting.Unlock()
		return fmt.Errorf("read what was saved: %w", err)
	}
	s.listed = s.listed || len(d.Defects) == 0
	s.desire(d, fresh)
	s.mark()
	s.setting.Unlock()
	s.mu.Lock()
	all := s.sorted
	s.mu.Unlock()
	s.review(d.Secrets, all)
	return nil
}

// restore returns entries of the objects of d that are new, and, until a Desired had no defects, of those
// that are saved and in no document. What cannot be read counts as not saved. The error is
// that of statuses which cannot be listed at the start: suspensions would be unknown.
func (s *Server) restore(d Desired) (map[source.Reference]*entry, error) {
	fresh := make(map[source.Reference]*entry)
	s.mu.Lock()
	for _, doc := range d.Objects {
		if ref := source.ReferenceTo(doc); s.entries[ref] == nil && fresh[ref] == nil {
			fresh[ref] = &entry{ref: ref, at: -1, doc: doc, obj: adopt(doc, nil)}
		}
	}
	s.mu.Unlock()
	if !s.listed {
		refs, err := s.config.Statuses.References()
		if err != nil && !s.Ready() {
			return nil, err
		}
		since, err := s.config.Statuses.Removed()
		s.tell(source.Reference{}, readFailed, err)
		for _, ref := range refs {
			if s.entry(ref) != nil {
				continue
			}
			if fresh[ref] == nil {
				fresh[ref] = &entry{ref: ref, at: -1}
			}
			fresh[ref].marked = since[ref]
		}
	}
	all := slices.Collect(maps.Values(fresh))
	s.each(len(all), func(i int) { s.restoreOne(all[i]) })
	if len(d.Defects) > 0 {
		maps.DeleteFunc(fresh, func(_ source.Reference, e *entry) bool { return e.unread })
	}
	return fresh, nil
}

// restoreOne reads what is saved of one object. The first run of one that has a document tells of
// a status that cannot be read.
func (s *Server) restoreOne(e *entry) {
	var err error
	e.hold, err = s.config.Statuses.Suspension(e.ref)
	s.tell(e.ref, readFailed, err)
	if e.doc == nil {
		if e.doc, err = s.config.Statuses.Object(e.ref); err != nil {
			s.tell(e.ref, readFailed, err)
			e.doc, e.unread = source.New(e.ref), true
		}
		e.obj = adopt(e.doc, e.doc)
	} else if obj := clone(e.doc); !external(obj) {
		if _, err := s.config.Statuses.Load(s.ctx, obj); err == nil {
			a := obj.Artifact()
			e.obj, e.lost = adopt(e.doc, obj), a != nil && damaged(s.config.Store.Check(*a))
		}
	}
	e.suspend = e.doc.Plan().Suspend
}

// each calls do with the numbers below n, several at a time, until the server ends.
func (s *Server) each(n int, do func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(n, 2*runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			for i := int(next.Add(1)); i <= n && s.ctx.Err() == nil; i = int(next.Add(1)) {
				do(i - 1)
			}
		})
	}
	all.Wait()
}

// desire makes d what there is to be; the server is ready after the first.
func (s *Server) desire(d Desired, fresh map[source.Reference]*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	s.secrets, s.defects = d.Secrets, d.Defects
	for ref, e := range fresh {
		s.entries[ref] = e
		s.changed(e)
	}
	for _, doc := range d.Objects {
		if e := s.entries[source.ReferenceTo(doc)]; e.serial != s.serial { // of several documents the first counts
			s.update(e, doc)
			e.serial = s.serial
		}
	}
	for _, e := range s.entries {
		switch {
		case e.serial == s.serial || e.removed != nil:
		case len(d.Defects) == 0:
			s.remove(e)
		case !e.missing:
			e.missing = true
			s.changed(e)
		}
	}
	s.settle()
	if s.serial == 1 {
		close(s.ready)
		s.work.Go(s.scrub)
	}
	s.dispatch()
}

// settle brings up to date what depends on which objects there are, and plans the
// first runs of new ones.
func (s *Server) settle() {
	s.sorted = make([]*entry, 0, len(s.entries))
	for _, e := range s.entries {
		s.sorted = append(s.sorted, e)
	}
	slices.SortFunc(s.sorted, func(a, b *entry) int { return compare(a.ref, b.ref) })
	s.link()
	hosts := make(map[string]bool)
	ticks := make(map[tickKey]time.Duration)
	for _, e := range s.sorted {
		if e.removed == nil && !external(e.obj) {
			e.upstream, e.host = upstreamOf(e.obj, s.object)
			if e.state == queued {
				s.lineUp(e)
			}
		}
		hosts[e.host] = true
		if first, known := s.ticks[s.tickKey(e)]; known {
			ticks[s.tickKey(e)] = first
		}
	}
	s.ticks = ticks
	s.runs.keep(hosts)
	s.fetches.keep(hosts)
	for _, e := range s.sorted {
		switch {
		case e.removed != nil:
			continue
		case !e.planned:
			e.planned = true
			s.planFirst(e)
		case s.sumInputs(e) != e.inputs:
			s.kick(e, Input, 0)
		}
		if e.state == blocked {
			s.enter(e)
		}
	}
}

// planFirst decides when an object that was added runs for the first time: at
// once, or at its next tick if its saved status is up to date.
func (s *Server) planFirst(e *entry) {
	now, a := s.clock(), e.obj.Artifact()
	switch {
	case external(e.obj) || e.suspended():
	case !settled(e.obj) || a != nil && a.URL != s.config.Store.URL(a.Path): // the store was served elsewhere
		s.kick(e, Start, now)
	case e.lost:
		s.kick(e, Repair, now)
	case len(e.before) > 0: // another artifact of these may have been stored before the end
		s.kick(e, Input, now)
	case e.obj.Interval() > 0:
		s.plan(e, Tick, s.tick(e, now))
	}
}

// update gives an entry the document that the feed has now.
func (s *Server) update(e *entry, doc source.Object) {
	if e.doc == doc && e.removed == nil && !e.missing {
		return
	}
	before, back := e.obj, e.removed != nil
	e.doc, e.obj = doc, adopt(doc, before)
	e.missing, e.removed = false, nil
	e.suspend = doc.Plan().Suspend
	s.changed(e)
	now := s.clock()
	switch {
	case e.suspended():
		s.rest(e)
	case back:
		s.unplan(e)
		s.kick(e, Start, now)
	case string(source.CanonicalSpec(doc)) != string(source.CanonicalSpec(before)):
		s.kick(e, Spec, now)
	case requestedAt(doc) != "" && requestedAt(doc) != requestedAt(before):
		s.kick(e, Request, now)
	}
}

// remove ends the work on an object that is not in the feed any more. Its
// artifacts go after their retention, which counts on over restarts.
func (s *Server) remove(e *entry) {
	since, now := e.marked, s.config.Now()
	if since.IsZero() {
		since = now
	}
	left := min(max(s.config.Retention-now.Sub(since), 0), s.config.Retention)
	e.removed = &removal{at: since, due: later(s.clock(), left)}
	e.missing, e.planned, e.lookups = false, true, nil
	s.rest(e)
	if e.state != running {
		s.plan(e, "", e.removed.due)
	}
	s.changed(e)
}

// mark makes durable since when objects are not in the feed, and that others are
// there again. What fails is tried again with the next Desired. The lock setting is held.
func (s *Server) mark() {
	var changes []*entry
	var since []time.Time
	s.mu.Lock()
	for _, e := range s.sorted {
		var at time.Time
		if e.removed != nil {
			at = e.removed.at
		}
		if !at.Equal(e.marked) {
			changes, since = append(changes, e), append(since, at)
		}
	}
	s.mu.Unlock()
	s.each(len(changes), func(i int) {
		if err := s.config.Statuses.SetRemoved(changes[i].ref, since[i]); err != nil {
			s.tell(changes[i].ref, removalFailed, err)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		changes[i].marked = since[i]
	})
}

// retire removes what is left of an object whose retention is over. What fails is
// tried again in a minute.
func (s *Server) retire(e *entry, removed *removal) {
	err := s.erase(e, removed)
	if err == nil {
		err = s.config.Store.Tidy(directory(e.ref))
	} else {
		s.mu.Lock()
		if e.removed == removed {
			s.plan(e, "", s.clock()+time.Minute)
			s.dispatch()
		}
		s.mu.Unlock()
	}
	if s.ctx.Err() == nil {
		s.tell(e.ref, removalFailed, err)
	}
}

// erase removes artifacts, status, state and suspension of a removed object, and
// then the object itself, unless it has come back. No Desired and no suspension
// comes in between: an object comes back with all that it had or with nothing. The
// status goes first: it never names an artifact that is not there.
func (s *Server) erase(e *entry, removed *removal) (err error) {
	dir := directory(e.ref)
	unlock, err := s.config.Store.Lock(s.ctx, dir)
	if err != nil {
		return err
	}
	defer unlock()
	s.setting.Lock()
	defer s.setting.Unlock()
	s.mu.Lock()
	back := e.removed != removed
	s.mu.Unlock()
	if back {
		return nil
	}
	if err = s.config.Statuses.Remove(e.ref); err == nil {
		err = s.config.Store.Remove(dir)
	}
	var hold *source.Suspension
	if err != nil {
		hold, _ = s.config.Statuses.Suspension(e.ref)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil { // its status, and its suspension as far as that is not saved, may be gone
		e.hold, e.obj = hold, adopt(e.obj, nil)
		s.changed(e)
		return err
	}
	removed.done = true
	delete(s.entries, e.ref)
	s.sorted = slices.DeleteFunc(slices.Clone(s.sorted), func(other *entry) bool { return other == e })
	s.changed(e)
	return nil
}

// directory returns the directory of an object in the store.
func directory(ref source.Reference) string {
	return strings.ToLower(ref.Kind) + "/" + ref.Namespace + "/" + ref.Name
}

// scrubEvery is the time between two rounds of the scrub.
const scrubEvery = 24 * time.Hour

// scrub keeps the store in order until the server ends.
func (s *Server) scrub() {
	for wait := time.Duration(0); s.sleep(wait); wait = scrubEvery {
		if err := s.clean(); s.ctx.Err() == nil {
			s.tell(source.Reference{}, removalFailed, err)
		}
		if s.config.Scrub < 0 {
			continue
		}
		views := s.Views()
		rand.Shuffle(len(views), func(i, j int) { views[i], views[j] = views[j], views[i] }) // else short lives would hash the same artifacts
		for _, v := range views {
			if a := v.Object.Artifact(); a != nil && !external(v.Object) {
				s.verify(source.ReferenceTo(v.Object))
				if !s.sleep(time.Duration(float64(a.Size) / float64(s.config.Scrub) * float64(time.Second))) {
					return
				}
			}
		}
	}
}

// verify hashes the artifact of an object, and has the object run if it is damaged.
func (s *Server) verify(ref source.Reference) {
	v, err := s.View(ref)
	if err != nil || v.Object.Artifact() == nil {
		return
	}
	a := *v.Object.Artifact()
	err = s.config.Store.Verify(s.ctx, a)
	if v, gone := s.View(ref); !damaged(err) || gone != nil || v.Object.Artifact() == nil || v.Object.Artifact().Path != a.Path {
		return // it may have been replaced meanwhile
	}
	s.tell(ref, verificationFailed, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, err := s.live(ref); err == nil {
		s.kick(e, Repair, 0)
		s.dispatch()
	}
}

// damaged reports whether an artifact is not what it was, or not there.
func damaged(err error) bool {
	_, corrupt := errors.AsType[*artifact.DigestError](err)
	return corrupt || errors.Is(err, fs.ErrNotExist)
}

// sleep waits, and returns false when the server ends.
func (s *Server) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return s.ctx.Err() == nil
	case <-s.ctx.Done():
		return false
	}
}

// clean removes what killed processes left in the store, and the artifacts of
// objects that neither the feed nor the statuses know.
func (s *Server) clean() error {
	if _, err := s.config.Store.Sweep(s.ctx); err != nil {
		return err
	}
	refs, err := s.config.Statuses.References()
	if err != nil {
		return nil // what is saved is unknown now
	}
	known := make(map[string]bool)
	for _, ref := range refs {
		known[directory(ref)] = true
	}
	removed, err := s.config.Store.GC(s.ctx, artifact.GCConfig{Keep: func(a artifact.Artifact) bool {
		dir := path.Dir(path.Dir(a.Path))
		s.mu.Lock() // the store holds the lock of the directory: no run is about to save the object
		defer s.mu.Unlock()
		return known[dir] || slices.ContainsFunc(s.sorted, func(e *entry) bool { return directory(e.ref) == dir })
	}})
	if err == nil && len(removed) > 0 {
		_, err = s.config.Store.Sweep(s.ctx)
	}
	return err
}

// latest is the Secrets of the newest Desired.
type latest struct{ *Server }

func (l latest) now() source.Secrets {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.secrets
}

// Secret implements [source.Secrets].
func (l latest) Secret(ctx context.Context, namespace, name string) (source.Secret, error) {
	return l.now().Secret(ctx, namespace, name)
}

// PullSecrets implements [source.Secrets].
func (l latest) PullSecrets(ctx context.Context, namespace, account string) ([]source.Secret, error) {
	return l.now().PullSecrets(ctx, namespace, account)
}
