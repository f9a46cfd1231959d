package serve

import (
	"hash/maphash"
	"strconv"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// link finds out what entries are made of. Where they need each other in a
// circle one demand is left out, so that nobody waits for ever; whose turn it is
// then finds the circle and names it (see [source.Needed]).
func (c *Controller) link() {
	var all []*entry
	member := make(map[*entry]bool)
	add := func(e *entry) {
		if !member[e] {
			member[e] = true
			all = append(all, e)
		}
	}
	for _, e := range c.sorted {
		e.before, e.after = nil, nil
		if e.removed != nil {
			continue
		}
		for _, ref := range e.obj.Plan().Needs {
			add(e)
			if need := c.entries[ref]; need != nil && need.removed == nil {
				add(need)
			}
		}
	}
	objects := make([]source.Object, len(all))
	for i, e := range all {
		objects[i] = e.obj
	}
	for i, before := range source.Order(objects) {
		for _, j := range before {
			all[i].before = append(all[i].before, all[j])
			all[j].after = append(all[j].after, all[i])
		}
	}
}

// blockers returns what e, which is due, is to wait for.
func (c *Controller) blockers(e *entry) []source.Reference {
	var refs []source.Reference
	for _, b := range e.before {
		if c.blocks(b, e) {
			refs = append(refs, b.ref)
		}
	}
	return refs
}

// blocks reports whether e, which is due, is to wait for b. One run of b that
// begins when e is due is enough: else what is asked for without pause would
// keep e back for ever.
func (c *Controller) blocks(b, e *entry) bool {
	return c.pending(b) && (b.ended == 0 || b.began < e.due)
}

// pending reports whether a run of e is due or under way.
func (c *Controller) pending(e *entry) bool {
	return e.state != resting || e.at >= 0 && e.removed == nil && e.due <= c.clock()
}

// sumInputs returns a sum of what e is made of: it changes when an artifact, a
// generation or the readiness of an input does, and when an input comes or goes.
func (c *Controller) sumInputs(e *entry) uint64 {
	if len(e.before) == 0 {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(c.seed)
	for _, b := range e.before {
		h.WriteString(b.ref.String())
		h.WriteByte(0)
		if a := b.obj.Artifact(); a != nil {
			h.WriteString(a.Digest + "\x00" + a.Revision)
		}
		h.WriteByte(0)
		h.WriteString(strconv.FormatInt(b.obj.Head().Metadata.Generation, 10))
		h.WriteString(b.obj.Common().Condition(source.ReadyCondition).Status)
	}
	return h.Sum64()
}

// inform tells those that are made of e that it is what it is now: who saw
// something else runs, and who waited for it goes on.
func (c *Controller) inform(e *entry) {
	for _, a := range e.after {
		if c.sumInputs(a) != a.inputs {
			c.kick(a, Input, 0)
		}
		if a.state == blocked {
			c.enter(a)
		}
	}
}

// sawInputs reports whether the artifact of e, as its status has it, was made of
// what its inputs are now.
func (c *Controller) sawInputs(e *entry) bool {
	now := func(ref source.Reference) (a artifact.Artifact) {
		if obj := c.object(ref); obj != nil && obj.Artifact() != nil {
			a = *obj.Artifact()
		}
		return a
	}
	switch obj := e.obj.(type) {
	case *source.GitRepository:
		needs, seen := obj.Plan().Needs, obj.Status.IncludedArtifacts
		for i, ref := range needs {
			if i >= len(seen) || seen[i].Digest != now(ref).Digest {
				return false
			}
		}
	case *source.PkgChart:
		if ref, ok := obj.Source(); ok {
			return obj.Status.ObservedSourceArtifactRevision == now(ref).Revision
		}
	}
	return true
}
