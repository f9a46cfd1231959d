package serve

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// An entry is one object and what is known of it. The lock of the server
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
	lost    bool // when the server began, its artifact was not in the store
	unread  bool // its saved document cannot be read, and there is no other: only its name is known
	line    string
	inLine  bool // it waits for a slot of the host line

	trigger  Trigger // of the run that is due
	again    Trigger // of a run after the one under way, "" for none
	failures int
	begun    int64 // number of the run that began last
	ended    int64 // number of the run that ended last

	at    int           // in the queue, -1 when it is not there
	due   time.Duration // by the clock of the server
	asked time.Duration // when the run that is due was asked for, 0 when it was not
	began time.Duration // when the last run that ended began
	since time.Duration // when the last run ended
	look  time.Duration // when the upstream is looked at again after a webhook, 0 for not

	last    Run                // its Number is 0 when there was none
	runs    []api.Run          // the last notable ones, the newest at the end
	checked time.Time          // when the origin was asked last with success
	hold    *source.Suspension // by a command, nil for none
	removed *removal           // nil as long as it is in the feed
	marked  time.Time          // since when it is removed, as it is saved
	event   lastEvent

	host     string        // of its upstream
	upstream string        // what it asks which server with which credentials
	before   []*entry      // what it needs, as far as it is to wait for it
	after    []*entry      // what needs it
	inputs   uint64        // sum of what before was when its last run began
	lookups  []lookup      // Secrets that its last run asked for
	news     chan struct{} // closed when the view changes; nil when no caller waits
	version  uint64        // of the view
	serial   uint64        // of the Desired that had it last
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
	resting state = iota // in the queue, if it is due some time
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
// If the document has no generation, it is that of last, and one more if the spec is another.
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
	to := reflect.New(reflect.TypeOf(obj).Elem())
	to.Elem().Set(reflect.ValueOf(obj).Elem())
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

// compare orders references by kind, namespace and name.
func compare(a, b source.Reference) int {
	if a.Kind != b.Kind {
		return strings.Compare(a.Kind, b.Kind)
	}
	if a.Namespace != b.Namespace {
		return strings.Compare(a.Namespace, b.Namespace)
	}
	return strings.Compare(a.Name, b.Name)
}

// sources is the [source.Sources] of a server: objects as they were after their last run.
type sources struct {
	*Server
	*source.Inventory // opens artifacts
}

// Source implements [source.Sources].
func (s *sources) Source(_ context.Context, ref source.Reference) (source.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj := s.object(ref); obj != nil {
		return obj, nil
	}
	return nil, errNoObject
}

// List implements [source.Sources].
func (s *sources) List(_ context.Context, kind, namespace string) ([]source.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := source.Reference{Kind: kind, Namespace: namespace}
	i, _ := slices.BinarySearchFunc(s.sorted, from, func(e *entry, ref source.Reference) int { return compare(e.ref, ref) })
	var found []source.Object
	for ; i < len(s.sorted) && s.sorted[i].ref.Kind == kind && s.sorted[i].ref.Namespace == namespace; i++ {
		if e := s.sorted[i]; e.removed == nil {
			found = append(found, e.obj)
		}
	}
	return found, nil
}

// object returns the object of that name, nil when there is none.
func (s *Server) object(ref source.Reference) source.Object {
	if e := s.entries[ref]; e != nil && e.removed == nil {
		return e.obj
	}
	return nil
}

// errNoObject is fs.ErrNotExist in other words.
var errNoObject = noObject{}

type noObject struct{}

func (noObject) Error() string        { return "no such object" }
func (noObject) Is(target error) bool { return target == fs.ErrNotExist }

// A question names a Secret, or the service account whose Secrets are asked for.
type question struct {
	account         bool
	namespace, name string
}

// A lookup is a question for Secrets and a sum of the answer.
type lookup struct {
	question
	sum [sha256.Size]byte
}

// A recorder is the [source.Secrets] of one run: it records what was asked.
type recorder struct {
	source.Secrets

	mu      sync.Mutex
	lookups []lookup
}

// Secret implements [source.Secrets].
func (r *recorder) Secret(ctx context.Context, namespace, name string) (source.Secret, error) {
	secret, err := r.Secrets.Secret(ctx, namespace, name)
	r.note(question{false, namespace, name}, err, secret)
	return secret, err
}

// PullSecrets implements [source.Secrets].
func (r *recorder) PullSecrets(ctx context.Context, namespace, account string) ([]source.Secret, error) {
	secrets, err := r.Secrets.PullSecrets(ctx, namespace, account)
	r.note(question{true, namespace, account}, err, secrets...)
	return secrets, err
}

// note records the first answer to each question.
func (r *recorder) note(q question, err error, secrets ...source.Secret) {
	var answer any = secrets
	switch {
	case errors.Is(err, fs.ErrNotExist):
		answer = "missing"
	case err != nil:
		answer = "unreadable"
	}
	text, _ := json.Marshal(answer)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.lookups, func(l lookup) bool { return l.question == q }) {
		r.lookups = append(r.lookups, lookup{q, sha256.Sum256(text)})
	}
}

// noted returns what was asked so far.
func (r *recorder) noted() []lookup {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.lookups)
}

// review asks again for the Secrets that the last runs of entries asked for, and has
// the objects run for which an answer is another.
func (s *Server) review(from source.Secrets, entries []*entry) {
	asked := make(map[question][sha256.Size]byte)
	s.mu.Lock()
	for _, e := range entries {
		for _, l := range e.lookups {
			asked[l.question] = l.sum
		}
	}
	s.mu.Unlock()
	for q := range asked {
		r := recorder{Secrets: from}
		if q.account {
			_, _ = r.PullSecrets(s.ctx, q.namespace, q.name)
		} else {
			_, _ = r.Secret(s.ctx, q.namespace, q.name)
		}
		asked[q] = r.lookups[0].sum
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		another := func(l lookup) bool { sum, known := asked[l.question]; return known && sum != l.sum }
		if e.state != running && slices.ContainsFunc(e.lookups, another) { // those of a run are reviewed when it ends
			s.kick(e, Secret, 0)
		}
	}
	s.dispatch()
}
