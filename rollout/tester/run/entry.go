package run

import (
	"context"
	"slices"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// An entry is one run. The desk's lock guards it.
type entry struct {
	key         key
	run         api.Run // without output
	failOnError bool
	live        *live // nil when the output is on disk alone, or nowhere
	written     bool  // it is on disk
	saved       bool  // its output is, too
}

// A live is what is in memory of a run for as long as somebody may want it.
type live struct {
	task    Task
	timeout time.Duration
	sink    *sink
	cancel  context.CancelCauseFunc // nil while queued
	done    chan struct{}           // closed when final is set
	final   api.Run                 // with output
}

// final reports whether a run in state s has ended.
func final(s api.RunState) bool { return s != api.Queued && s != api.Running }

// failed reports whether a run that ended in state s says that what it tested is bad.
func failed(s api.RunState) bool { return s == api.Failed || s == api.TimedOut }

func (e *entry) ended() bool { return final(e.run.State) }

// owes reports whether the verdict of e is still to be given: to who waits, or
// to who only starts runs. Without a checksum the next equal request may be about
// another revision, so nothing is owed.
func (e *entry) owes(waits bool) bool {
	switch {
	case e.run.Delivered || e.run.Checksum == "":
		return false
	case failed(e.run.State) && e.failOnError:
		return true
	}
	return waits && e.run.Waits && (e.run.State == api.Succeeded || failed(e.run.State))
}

// add makes e known. IDs ascend.
func (d *Desk) add(e *entry) {
	d.all = append(d.all, e)
	d.byID[e.run.ID] = e
	d.byKey[e.key] = e
}

// forget removes the finished runs that are too many or too old, the oldest
// first, and output that is too much to be kept in memory.
func (d *Desk) forget() {
	now, finished := d.config.Now(), 0
	for _, e := range d.all {
		if e.ended() {
			finished++
		}
	}
	excess := finished - d.config.Keep
	d.all = slices.DeleteFunc(d.all, func(e *entry) bool {
		if !e.ended() || excess <= 0 && now.Sub(e.run.Ended) <= d.config.KeepFor {
			return false
		}
		excess--
		d.release(e)
		if d.byKey[e.key] == e {
			delete(d.byKey, e.key)
		}
		delete(d.byID, e.run.ID)
		d.history.remove(e)
		return true
	})
	for _, e := range d.all {
		if d.held <= heldMax {
			break
		}
		if e.ended() {
			d.release(e)
		}
	}
}

// heldMax is how much output of finished runs is kept in memory, in bytes.
const heldMax = 64 << 20

// release lets go of what is in memory of a finished run.
func (d *Desk) release(e *entry) {
	if e.live != nil {
		d.held -= int64(len(e.live.final.Output))
		e.live = nil
	}
}

// relax lets go of what is on disk as well, unless it is likely to be asked for:
// the verdict that is to be given to the next equal request.
func (d *Desk) relax(e *entry) {
	if d.byKey[e.key] != e || !e.owes(true) || d.held > cacheMax {
		d.release(e)
	}
}

// cacheMax is how much of output that is on disk is in memory as well, in bytes.
const cacheMax = 8 << 20
