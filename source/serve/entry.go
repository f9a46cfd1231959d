package serve

import (
	"reflect"
	"time"

	"github.com/headgate-io/headgate/source"
)

// An entry is one object and what is known of it. The lock of the controller
// guards its fields; the objects are replaced and never changed.
type entry struct {
	ref source.Reference
	doc source.Object // as the feed has it
	obj source.Object // the spec of doc with the status of the last run

	state   state
	stalled bool // until something changes
	missing bool // from the feed, which has defects
	suspend bool // by its spec
	planned bool // its first run was
	lost    bool // when the controller began, its artifact was not in the store
	inLine  bool // among those that wait for a slot
	line    string

	trigger  Trigger // of the run that is due
	again    Trigger // of a run after the one under way, "" for none
	failures int
	begun    int64 // number of the run that began last
	ended    int64 // number of the run that ended last

	at    int           // in the agenda, -1 when it is not there
	due   time.Duration // since the controller began
	asked time.Duration // when the run that is due was asked for, 0 when it was not
	began time.Duration // when the last run that ended began
	since time.Duration // when the last run ended
	look  time.Duration // when the upstream is looked at again after a webhook, 0 for not

	last    *Run               // nil when there was none
	checked time.Time          // when the origin was asked last with success
	hold    *source.Suspension // by a command, nil for none
	removed *removal           // nil as long as it is in the feed
	marked  time.Time          // since when it is removed, as the ledger has it

	host     string            // of its upstream
	upstream string            // what it asks which server with which credentials
	before   []*entry          // what it is made of, as far as it is to wait for it
	after    []*entry          // what is made of it
	inputs   uint64            // sum of what before was when its last run began
	lookups  []lookup          // Secrets that its last run asked for
	waits    map[*waiter]int64 // callers that wait for the end of a run
	version  uint64            // of the view
	serial   uint64            // of the Desired that had it last
}

// A removal is the end of an object.
type removal struct {
	at   time.Time     // wall-clock time
	due  time.Duration // when its artifacts, status and state go
	done bool          // they are gone
}

// A state says where an entry is between two runs.
type state uint8

const (
	resting state = iota // on the agenda, if it is due some time
	queued               // waits for a slot
	blocked              // waits for an entry in before
	running
)

// suspended reports whether the object is to be left alone.
func (e *entry) suspended() bool { return e.hold != nil || e.suspend }

// external reports whether the object is published by another program, and never fetched.
func external(obj source.Object) bool {
	_, is := obj.(*source.ExternalArtifact)
	return is
}

// adopt returns doc with the status that the object has, last, which may be nil.
// When the document has no generation, it is that of last, and one more when the spec is another.
func adopt(doc, last source.Object) source.Object {
	if external(doc) {
		return doc
	}
	obj := clone(doc)
	status := statusOf(obj)
	status.SetZero()
	if last == nil || reflect.TypeOf(last) != reflect.TypeOf(doc) {
		return obj
	}
	status.Set(statusOf(last))
	if last.Head().Metadata.Generation != 0 {
		source.AssignGeneration(obj, last)
	}
	return obj
}

// clone returns a copy of obj that shares what its fields refer to.
func clone(obj source.Object) source.Object {
	from := reflect.ValueOf(obj).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	return to.Interface().(source.Object)
}

// statusOf returns the status of obj: the field Status of its struct, or else
// the part that all kinds have.
func statusOf(obj source.Object) reflect.Value {
	if status := reflect.ValueOf(obj).Elem().FieldByName("Status"); status.IsValid() {
		return status
	}
	return reflect.ValueOf(obj.Common()).Elem()
}

// sameSpec reports whether two objects ask for the same.
func sameSpec(a, b source.Object) bool {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	if x.Type() != y.Type() {
		return false
	}
	if s, t := x.FieldByName("Spec"), y.FieldByName("Spec"); s.IsValid() && reflect.DeepEqual(s.Interface(), t.Interface()) {
		return true
	}
	return string(source.CanonicalSpec(a)) == string(source.CanonicalSpec(b))
}

// requestedAt returns the annotation that asks for a run, of headgate's group
// or else of the reference's.
func requestedAt(obj source.Object) string {
	a := obj.Head().Metadata.Annotations
	if at := a["reconcile.headgate.dev/requestedAt"]; at != "" {
		return at
	}
	return a["reconcile.fluxcd.io/requestedAt"]
}

// settled reports whether the status of obj says that nothing is to be done
// before its interval is over.
func settled(obj source.Object) bool {
	status, head := obj.Common(), obj.Head()
	return status.Condition(source.ReadyCondition).Status == "True" &&
		status.ObservedGeneration != 0 && status.ObservedGeneration == head.Metadata.Generation &&
		(requestedAt(obj) == "" || requestedAt(obj) == status.LastHandledReconcileAt)
}
