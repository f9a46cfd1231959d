// Package sourcetest is the conformance suite that every kind of source passes.
//
// A kind brings an [Upstream]: a server that speaks the kind's real protocol on
// a loopback address (or, for a kind without one, whatever holds its content),
// which the suite fills with trees and breaks in named ways. [Run] drives the
// kind's origin through a [source.Reconciler] with a real store and a real
// ledger, and checks what every kind promises:
//
//   - Resolve is stable and transfers no content; new content is a new revision;
//   - one tree makes the same bytes, whichever upstream it comes from;
//   - the artifact reads back to what was published, less what is ignored;
//   - nothing is fetched while nothing changed, and something is once the spec drifts;
//   - a failure has the condition, reason and outcome the kind declares, stores
//     nothing, and leaves the published artifact alone and served;
//   - content whose signature is refused is never stored;
//   - an upstream that stalls obeys cancellation and spec.timeout and leaks no goroutine;
//   - hostile names never reach an artifact;
//   - a status survives JSON, a lost artifact is made again, suspended objects
//     are left alone, requests to reconcile are acknowledged;
//   - no secret shows in a status, an event or an error;
//   - runs of one object at once leave one good artifact (under -race).
//
// # Adding a kind
//
// A kind needs a type that implements [source.Object], a type that implements
// [source.Origin] and, for this suite, an upstream. The smallest one is that of
// [source.Dir], in the tests of package source. What a kind cannot do it says in
// the fields of [Kind], never by skipping a check.
package sourcetest

import (
	"context"
	"io"
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/source"
)

// A Kind describes a kind of source to the suite.
type Kind struct {
	Name string

	// Open starts an upstream that is empty: no tree is published. It is
	// released with t.Cleanup. Each call returns another upstream.
	Open func(t TB) Upstream

	// Drift changes the spec of obj so that its artifact is to be made again
	// from the same revision, for example by another spec.ignore; nil when
	// nothing in the spec shapes the artifact.
	Drift func(obj source.Object)

	// Suspend suspends obj, for a kind without spec.suspend; nil for others.
	Suspend func(obj source.Object)

	// Read returns the files of an artifact that is no archive; nil when it is one.
	Read func(r io.Reader) (fs.FS, error)

	// Failures lists the defects that end a run, and how it ends.
	Failures []Failure

	// Stalls lists the defects that make the upstream accept a request and
	// never answer it.
	Stalls []Defect

	// Verifies says that the kind verifies signatures, so that the upstream
	// knows the defects Signed and Forged.
	Verifies bool

	// Hostile lists names of files that the upstream is able to publish and
	// no artifact may hold.
	Hostile []string

	// Under is the directory that the upstream publishes trees in, and artifacts
	// hold them in; "" is the root.
	Under string

	// Said is the reason of the events about a new artifact and about one that is
	// good again, "" for those of most kinds: NewArtifact and Succeeded.
	Said string

	// Hurry makes the timeout of objects that follow up 250ms, for a kind whose
	// own spec has none.
	Hurry func(up Upstream)

	// Variant says that this is another way to reach the upstreams of a kind that
	// passes the whole suite. What does not depend on the way is not checked again.
	Variant bool

	IgnoreFile   string // name of the file that excludes patterns, "" for none
	IgnoreNested bool   // it counts in every directory, not only at the root
	LosesModes   bool   // the upstream keeps no executable bit
	ReadsContent bool   // Resolve has no way to tell the revision without reading the content
}

// A Defect is one way in which an upstream is broken. "" is an upstream that works.
type Defect string

// Defects that most kinds know. A kind may add its own.
const (
	Gone         Defect = "gone"          // the upstream, or what the object selects in it, does not exist
	Denied       Defect = "denied"        // the credentials are refused
	NoSecret     Defect = "no secret"     // the Secret that the spec names does not exist
	Invalid      Defect = "invalid"       // the spec of objects cannot work
	Waits        Defect = "waits"         // another object, which this one is made of, has no artifact yet
	Truncated    Defect = "truncated"     // content ends early
	Leaking      Defect = "leaking"       // the upstream answers with an error that repeats the credentials it was given
	StallResolve Defect = "stall resolve" // the first request is never answered
	StallFetch   Defect = "stall fetch"   // the request for content is never answered, or not to its end
	Signed       Defect = "signed"        // no defect: objects ask for verification, and content is signed
	Forged       Defect = "forged"        // objects ask for verification, and the signature is bad
)

// A Failure says how a run ends under a defect.
type Failure struct {
	Defect    Defect
	Outcome   source.Outcome // Failed, Stalled or Waiting
	Condition string         // the type of the condition that names the failure
	Reason    string         // its reason
	Message   string         // a part of its message
}

// Fails is a run that ends so that it is tried again, before anything was fetched or in the midst of it.
func Fails(d Defect, reason, message string) Failure {
	return Failure{Defect: d, Outcome: source.Failed, Condition: "FetchFailed", Reason: reason, Message: message}
}

// Only leaves the failures under these defects, for a variant in which others
// might end in another way.
func (k *Kind) Only(defects ...Defect) {
	k.Failures = slices.DeleteFunc(k.Failures, func(f Failure) bool { return !slices.Contains(defects, f.Defect) })
}

// An Upstream holds the content that one object follows.
type Upstream interface {
	// Publish makes tree the content: a new commit on the branch, the objects
	// of the bucket. The error says why this upstream cannot hold tree.
	Publish(tree fstest.MapFS) error

	// Break brings in the defect, in place of the one before; "" mends the
	// upstream. The channel is closed once a request has met the defect; it
	// may be nil unless the defect is one of Kind.Stalls.
	Break(defect Defect) (met <-chan struct{})

	// Object returns an object without a status that follows the upstream. All
	// objects of one upstream have the same name. Its spec has a long interval
	// and a timeout of at least 30 seconds.
	Object() source.Object

	// Origin returns the origin of obj, with the secrets it needs.
	Origin(obj source.Object) source.Origin

	// Traffic says what the upstream served so far.
	Traffic() Traffic

	// Secrets returns the secrets that were planted in the object's URL, in
	// its Secrets and in the answers of the upstream. None may show anywhere.
	Secrets() []string
}

// Traffic is what an upstream served.
type Traffic struct {
	Requests int   // requests of any sort
	Content  int64 // bytes, objects or requests of content: what an unchanged origin need not serve
}

// TB is what the suite needs of a [testing.TB].
type TB interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
	TempDir() string
	Context() context.Context
}

// Run runs the suite for one kind.
func Run(t *testing.T, k Kind) {
	for _, c := range checks {
		if c.applies == nil || c.applies(k) {
			t.Run(c.name, func(t *testing.T) { c.run(t, k) })
		}
	}
}

// A check is one promise of every kind.
type check struct {
	name    string
	applies func(Kind) bool // nil: to every kind
	run     func(TB, Kind)
}

// whole holds for a kind that is no variant of another.
func whole(k Kind) bool { return !k.Variant }

// checks is the suite.
var checks = []check{
	{"resolve is stable", nil, resolveIsStable},
	{"new content is a new revision", nil, newContentIsNewRevision},
	{"same tree, same bytes", nil, sameTreeSameBytes},
	{"artifact reads back", nil, readsBack},
	{"unchanged does not fetch", nil, unchangedDoesNotFetch},
	{"drift fetches", func(k Kind) bool { return k.Drift != nil && !k.Variant }, driftFetches},
	{"ignore files", func(k Kind) bool { return k.IgnoreFile != "" }, ignoreFiles},
	{"failures", nil, failures},
	{"forged content is not stored", func(k Kind) bool { return k.Verifies }, forgedIsNotStored},
	{"stalled upstream obeys cancellation", nil, stallObeysCancellation},
	{"stalled upstream obeys the timeout", nil, stallObeysTimeout},
	{"hostile names", nil, hostileNames},
	{"status survives JSON", whole, statusSurvivesJSON},
	{"lost artifact is made again", whole, lostIsMadeAgain},
	{"suspended is left alone", whole, suspendedIsLeftAlone},
	{"request to reconcile", whole, requestIsAcknowledged},
	{"runs at once", whole, runsAtOnce},
}
