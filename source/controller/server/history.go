package server

import (
	"container/list"
	"slices"
	"sync"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller"
	"github.com/headgate-io/headgate/source/controller/api"
)

// Bounds of the runs that are remembered.
const (
	maxRuns  = 20       // of one object
	maxBytes = 10 << 20 // of all; the oldest go first
	runBytes = 320      // of a run without its texts
)

// A history remembers the last notable runs of objects: those that stored,
// failed, stalled or waited, and of those in a row that found nothing new the
// first. Its zero value is ready.
type history struct {
	mu    sync.Mutex
	byRef map[source.Reference][]*list.Element
	all   list.List // of past, the oldest first
	bytes int
}

// A past run is one of an object.
type past struct {
	object source.Reference
	run    api.Run
}

func (p past) weight() int { return runBytes + len(p.run.Why) + len(p.run.Error) + len(p.run.Revision) }

// notable reports whether a run is to be remembered.
func (h *history) notable(ref source.Reference, outcome source.Outcome) bool {
	if outcome != source.Unchanged && outcome != source.Suspended {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	runs := h.byRef[ref]
	return len(runs) == 0 || runs[len(runs)-1].Value.(past).run.Outcome != string(outcome)
}

// add remembers a run of an object, which is the newest. It reports whether the
// object has recovered: the run before went wrong, and this one did not.
func (h *history) add(r controller.Run, revision string) (recovered bool) {
	p := past{r.Object, runOf(r, revision)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byRef == nil {
		h.byRef = map[source.Reference][]*list.Element{}
	}
	runs := h.byRef[p.object]
	if n := len(runs); n > 0 {
		last := runs[n-1].Value.(past)
		p.share(last)
		recovered = good(r.Result.Outcome) && !good(source.Outcome(last.run.Outcome))
	}
	h.byRef[p.object] = append(runs, h.all.PushBack(p))
	h.bytes += p.weight()
	if len(runs) == maxRuns {
		h.drop(runs[0])
	}
	for h.bytes > maxBytes {
		h.drop(h.all.Front())
	}
	return recovered
}

func good(outcome source.Outcome) bool {
	return outcome == source.Stored || outcome == source.Unchanged
}

// share has equal texts of two runs be kept once.
func (p *past) share(last past) {
	p.object = last.object
	if p.run.Error == last.run.Error {
		p.run.Error = last.run.Error
	}
	if p.run.Revision == last.run.Revision {
		p.run.Revision = last.run.Revision
	}
}

// drop forgets a run, which is the oldest of its object.
func (h *history) drop(e *list.Element) {
	p := h.all.Remove(e).(past)
	h.bytes -= p.weight()
	if runs := slices.Delete(h.byRef[p.object], 0, 1); len(runs) > 0 {
		h.byRef[p.object] = runs
	} else {
		delete(h.byRef, p.object)
	}
}

// of returns the runs of an object, the newest first.
func (h *history) of(ref source.Reference) []api.Run {
	h.mu.Lock()
	defer h.mu.Unlock()
	runs := []api.Run{} // [] and not null
	for _, e := range slices.Backward(h.byRef[ref]) {
		runs = append(runs, e.Value.(past).run)
	}
	return runs
}
