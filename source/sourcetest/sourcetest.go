// Package sourcetest is the conformance suite for every kind of source.
//
// A kind provides an [Upstream]: a server that speaks the kind's real protocol on a loopback
// address (or, for a kind without a protocol, another place for its content). The suite publishes
// trees in it and introduces named defects. [Run] drives the kind's origin through a
// [source.Reconciler] with a real store and a real ledger, and checks the guarantees of every kind:
//
//   - Resolve is stable and transfers no content; new content is a new revision;
//   - one tree makes the same bytes, whichever upstream it comes from;
//   - the artifact reads back as published, without ignored files;
//   - nothing is fetched if nothing changed, and content is fetched after the spec drifts;
//   - a failure has the condition, reason and outcome that the kind declares, stores
//     nothing, and leaves the published artifact unchanged and served;
//   - content whose signature is refused is never stored;
//   - a stalled upstream does not block cancellation or spec.timeout, and leaks no goroutine;
//   - hostile names never reach an artifact;
//   - a status survives JSON, a lost artifact is made again, suspended objects
//     are not changed, requests to reconcile are acknowledged;
//   - no secret appears in a status, an event or an error;
//   - concurrent runs of one object leave one valid artifact (under -race).
//
// # Adding a kind
//
// A kind needs a type that implements [source.Object], a type that implements [source.Origin] and,
// for this suite, an upstream. The smallest one is that of [source.Dir], in the tests of package
// source. A kind declares missing features in the fields of [Kind]; it never skips a check.
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

	// Open starts an empty upstream: no tree is published. It is released with t.Cleanup. Each call
	// returns a new upstream.
	Open func(t TB) Upstream

	// Drift changes the spec of obj so that its artifact must be made again from the same revision,
	// for example with another spec.ignore; nil if no field of the spec affects the artifact.
	Drift func(obj source.Object)

	// Suspend suspends obj, for a kind without spec.suspend; nil for others.
	Suspend func(obj source.Object)

	// Read returns the files of an artifact that is not an archive; nil if it is an archive.
	Read func(r io.Reader) (fs.FS, error)

	// Failures lists the defects that end a run, with the expected results.
	Failures []Failure

	// Stalls lists the defects with which the upstream accepts a request and never answers it.
	Stalls []Defect

	// Verifies reports whether the kind verifies signatures. The upstream must then support the
	// defects Signed and Forged.
	Verifies bool

	// Hostile lists names of files that the upstream can publish and no artifact may contain.
	Hostile []string

	// Dir is the directory of published trees in the upstream and in artifacts; "" is the root.
	Dir string

	// EventReason is the reason of the events about a new artifact and about a recovered one, "" for the
	// usual ones: NewArtifact and Succeeded.
	EventReason string

	// ShortenTimeout sets a timeout of 250ms for the objects of the upstream, for a kind whose own spec has
	// no timeout.
	ShortenTimeout func(up Upstream)

	// Variant reports whether this is another way to reach the upstreams of a kind that passes the
	// whole suite. Checks that do not depend on the way are skipped.
	Variant bool

	IgnoreFile   string // name of the ignore file, "" for none
	IgnoreNested bool   // it applies in every directory, not only at the root
	LosesModes   bool   // the upstream does not store executable bits
	ReadsContent bool   // Resolve cannot determine the revision without reading the content
}

// A Defect is one way in which an upstream can be broken. "" is a working upstream.
type Defect string

// Defects that most kinds support. A kind may add its own.
const (
	Gone         Defect = "gone"          // the upstream, or what the object selects in it, does not exist
	Denied       Defect = "denied"        // the credentials are refused
	NoSecret     Defect = "no secret"     // the Secret that the spec names does not exist
	Invalid      Defect = "invalid"       // the spec of objects is invalid
	Waits        Defect = "waits"         // another object, which this one needs, has no artifact yet
	Truncated    Defect = "truncated"     // content ends early
	Leaking      Defect = "leaking"       // the upstream answers with an error that contains the credentials of the request
	StallResolve Defect = "stall resolve" // the first request is never answered
	StallFetch   Defect = "stall fetch"   // the request for content is never answered, or not completely
	Signed       Defect = "signed"        // no defect: objects require verification, and content is signed
	Forged       Defect = "forged"        // objects require verification, and the signature is invalid
)

// A Failure describes how a run ends with a defect.
type Failure struct {
	Defect    Defect
	Outcome   source.Outcome // Failed, Stalled or Waiting
	Condition string         // the type of the condition that reports the failure
	Reason    string         // its reason
	Message   string         // a part of its message
}

// NewFailure returns a failure that is retried: the run fails before or while it fetches.
func NewFailure(d Defect, reason, message string) Failure {
	return Failure{Defect: d, Outcome: source.Failed, Condition: "FetchFailed", Reason: reason, Message: message}
}

// KeepFailures keeps the failures with these defects, for a variant in which others might end differently.
func (k *Kind) KeepFailures(defects ...Defect) {
	k.Failures = slices.DeleteFunc(k.Failures, func(f Failure) bool { return !slices.Contains(defects, f.Defect) })
}

// An Upstream has the content that one object follows.
type Upstream interface {
	// Publish makes tree the content: a new commit on the branch, the objects of the bucket. The
	// error says why this upstream cannot store tree.
	Publish(tree fstest.MapFS) error

	// Break introduces the defect, instead of the previous one; "" repairs the upstream. The
	// channel is closed when a request has met the defect; it may be nil unless the defect is one
	// of Kind.Stalls.
	Break(defect Defect) (met <-chan struct{})

	// Object returns an object without a status that follows the upstream. All
	// objects of one upstream have the same name. Its spec has a long interval
	// and a timeout of at least 30 seconds.
	Object() source.Object

	// Origin returns the origin of obj with the required secrets.
	Origin(obj source.Object) source.Origin

	// Traffic returns what the upstream has served so far.
	Traffic() Traffic

	// Secrets returns the secrets in the object's URL, in its Secrets and in the answers of the
	// upstream. None may appear in any output.
	Secrets() []string
}

// Traffic counts what an upstream served.
type Traffic struct {
	Requests int   // requests of any sort
	Content  int64 // bytes, objects or requests of content, which an unchanged origin need not serve
}

// TB is the part of a [testing.TB] that the suite needs.
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

// A check tests one guarantee of every kind.
type check struct {
	name    string
	applies func(Kind) bool // nil: to every kind
	run     func(TB, Kind)
}

// notVariant reports whether a kind is not a variant of another.
func notVariant(k Kind) bool { return !k.Variant }

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
	{"status survives JSON", notVariant, statusSurvivesJSON},
	{"lost artifact is made again", notVariant, lostArtifactIsRestored},
	{"suspended is left alone", notVariant, suspendedIsLeftAlone},
	{"request to reconcile", notVariant, requestIsAcknowledged},
	{"runs at once", notVariant, runsAtOnce},
}
