package source

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

// Source is the specification's common interface of all kinds.
type Source interface {
	// Artifact returns the last published artifact, or nil if there is none.
	Artifact() *artifact.Artifact
	// Interval returns how often to check the origin.
	Interval() time.Duration
}

// An Object is a [Source] that the [Reconciler] can drive.
type Object interface {
	Source
	Head() *Header   // apiVersion, kind and metadata
	Common() *Status // the part of the status that every kind has
	Plan() Plan      // what the reconciler needs to know about the spec
	// Drift names the fields of the spec that affect the artifact, and the inputs in rev, that
	// differ from those of the published artifact; "" if there is no difference.
	Drift(rev Revision) string
	// Observe records in the status what the artifact of rev was made from.
	Observe(rev Revision)
}

// A Plan is what the [Reconciler] needs to know about an object's spec.
type Plan struct {
	Timeout time.Duration // limit of each phase: resolve, fetch, pack; 0 if the origin limits its own steps (see [Within])
	Suspend bool
	Verify  string      // the verification that the spec requires, "" if none
	Needs   []Reference // objects whose artifacts this one is made from
	Words   Words
}

// A Reference names an object.
type Reference struct{ Kind, Namespace, Name string }

func (r Reference) String() string { return r.Kind + "/" + r.Namespace + "/" + r.Name }

// Words are the constants that differ between kinds (reference A2, A3, A4).
type Words struct {
	Latest string // file name of the pointer for status.url, "" for none
	Stored string // message of Ready and ArtifactInStorage, %s stands for the revision
	Failed string // default reason of a fetch failure
	Newer  string // reason of ArtifactOutdated; "": NewRevision, IncludeChange or NewConfiguration, as for most kinds
}

// A Revision is one immutable state of an origin.
type Revision struct {
	ID       string              // as in artifact.revision (reference A4)
	File     string              // file name of its artifact
	Metadata map[string]string   // as in artifact.metadata
	Inputs   []artifact.Artifact // artifacts of other sources that it is made from
	Found    []string            // the files listed in the spec that are known to exist before opening; nil: all
	Renew    string              // why a published artifact with this ID must be made again, "" if it need not
	Reverify bool                // the trusted keys or identities have changed since the last run
	Verify   string              // the verification that one of its sources requires, if the object's own spec requires none
	Note     string              // why the published artifact, if it is kept, may differ from what users expect
	Tag      string              // of a Git repository: id of the tag object that refers to the commit, if it was looked up
	Ready    string              // message of Ready for an object without ID; "" if such an object has no conditions
}

// State is data that the origin of a kind keeps between runs. Its format is private to the kind. It
// is a cache and never needed for correctness.
type State []byte

// An Origin is where content comes from.
//
// Constructors of origins do no I/O and cannot fail: Resolve returns an error that wraps
// [ErrInvalid] for an invalid spec. The context of a call ends with the call, so anything that
// Resolve and Open leave open must not depend on it. The same applies to [Content].
type Origin interface {
	// Resolve returns the current revision of the origin. It transfers no content that it can
	// avoid. A revision without ID means that objects of this sort have no artifact. last is the
	// state of the last successful run. With an error, the Inputs of the revision are those that
	// were found.
	Resolve(ctx context.Context, last State) (Revision, State, error)
	// Open fetches, once, the content that Verify and WriteTo use. The caller must close it.
	Open(ctx context.Context, rev Revision) (Content, error)
}

// Content is the content of one revision. Verify and WriteTo use the same bytes.
type Content interface {
	// Verify verifies the signature that the spec requires.
	Verify(ctx context.Context) (Verification, error)
	// WriteTo writes the artifact. Its errors count as errors of the store, unless a [StepError]
	// names another step.
	WriteTo(ctx context.Context, w io.Writer) (Report, error)
	// Close closes temporary files and connections, also after errors.
	Close() error
}

// An Explainer is a [Content] that can explain the content of its artifact.
type Explainer interface {
	Content
	// Explain returns the complete tree, and the ignore rules that exclude a part of it from the
	// artifact. It fails if WriteTo would fail, if the signature was refused, and if no ignore
	// rules apply. Both results are valid until Close.
	Explain(ctx context.Context) (tree fs.FS, rules *artifact.Rules, err error)
}

// A Verification describes how a revision was verified. The zero value means that the spec requires
// no verification.
type Verification struct {
	Mode    string // for example HEAD
	Signer  string // key id, fingerprint or identity
	Level   string // policy level, if the technology has one
	Message string // message of the SourceVerified condition
	Ignored bool   // the policy accepts anything: SourceVerified is not True, whatever was found
}

// A Report describes what was written into an artifact.
type Report struct {
	artifact.Report
	Message string   // of the event about the new artifact, for example "stored artifact for commit 'fix typo'"
	Reason  string   // reason of Ready and of the event, "" for the default (Succeeded, NewArtifact)
	Ready   string   // message of Ready, "" for Words.Stored
	Notes   []string // remarks for the user, for example about a fallback
	Emptied bool     // the ignore rules removed every file: a warning event and a note say so
	Found   []string // the files listed in the spec that were used; nil: those of [Revision]
	Copied  bool     // it is a byte-for-byte copy from the origin, not packed here

	Chart        *ChartPin  // the version of a chart in a repository that it is or was made from
	Dependencies []ChartPin // charts from repositories that were added to it
}

// Errors that an [Origin] wraps to select the treatment of a failure.
var (
	// ErrInvalid marks a spec that cannot work until it is changed: the object is stalled.
	ErrInvalid = errors.New("invalid spec")
	// ErrWaiting marks a dependency that is not available yet: the run is retried soon and does not
	// count as a failure.
	ErrWaiting = errors.New("waiting for a dependency")
	// ErrMoved marks an origin that changed during the fetch: it is resolved again immediately, a
	// few times.
	ErrMoved = errors.New("the origin changed while it was fetched")
	// ErrVerification marks a signature that was refused.
	ErrVerification = errors.New("verification failed")
)

// A Step is one part of a reconciliation. It determines the condition that a failure sets.
type Step string

// The steps, in the order in which they run.
const (
	StepResolve Step = "resolve" // FetchFailed
	StepFetch   Step = "fetch"   // FetchFailed
	StepInclude Step = "include" // IncludeUnavailable
	StepVerify  Step = "verify"  // SourceVerified=False
	StepBuild   Step = "build"   // BuildFailed
	StepStore   Step = "store"   // StorageOperationFailed
)

// A StepError is a failure with the reason for its condition (reference A2). Origins return it to
// choose step and reason; other errors get those of the phase in which they occur.
type StepError struct {
	Step   Step
	Reason string
	Err    error
}

func (e *StepError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.Err }

// Env is the environment that a program passes to origins. Nil fields mean the documented default.
type Env struct {
	Secrets  Secrets           // default: no secret exists
	Sources  Sources           // default: no other source exists
	Cache    *artifact.Cache   // content for later fetches; default: none is kept
	Login    LoginFunc         // credentials of spec.provider; default: no provider is known
	Accounts AccountFunc       // service accounts as identities for a provider; default: there are none
	Local    map[string]string // local paths that replace origins, by URL
	Limits   artifact.Limits   // limits of the content of one fetch, and its temporary files
	Keychain KeychainFunc      // credentials for registries if the spec has none; default: anonymous
	Progress func(Progress)    // default: not reported
	Pin      *Pin              // the state to resolve to, for the single object of the origin; default: the current one
	Share    *Share            // answers of upstreams shared by objects; default: each sends its own requests
	Since    time.Time         // earlier answers of Share are not used
	Reuse    *Connections      // connections to upstreams shared by objects; default: each opens its own
	Archives *Archives         // artifacts read by several objects; default: each reads its own

	// Proxy returns the proxy for HTTP requests, as in [http.Transport], if a spec has none; it is
	// not used for ssh. Default: none.
	Proxy func(*http.Request) (*url.URL, error)
	// Networks are the hosts that servers may refer to even if they are in a narrower network than
	// the server. Default: none.
	Networks *Networks
}

// In returns e for origins whose artifacts are stored in store: it sets Cache and Limits.Temp to
// those of the store if they are not set.
func (e Env) In(store *artifact.Store) Env {
	if e.Cache == nil {
		e.Cache = store.Cache()
	}
	if e.Limits.Temp == nil {
		e.Limits.Temp = store.Temp
	}
	return e
}

// Sources provides origins with the artifacts of other sources.
type Sources interface {
	// Source returns the object with the name ref. The error wraps fs.ErrNotExist if there is none.
	// The spec of the object may be read at any time, but the status only by callers that the
	// object does not need itself (see [Order]).
	Source(ctx context.Context, ref Reference) (Object, error)
	// List returns the objects of a kind in a namespace, ordered by name. The rules for the result
	// of Source apply to each of them.
	List(ctx context.Context, kind, namespace string) ([]Object, error)
	// Open opens an artifact of an object returned by Source. Reading fails at the end if the
	// content does not have the digest of a. The caller must close the reader.
	Open(ctx context.Context, a artifact.Artifact) (io.ReadCloser, error)
}

// Progress reports the progress of a transfer.
type Progress struct {
	Object string // KIND/NAMESPACE/NAME
	Phase  string // for example "receiving objects"
	Asked  Object // in the phase "asking": the object whose origin is contacted, see [OriginOf]; else nil
	Done   int64
	Total  int64  // 0 if unknown
	Unit   string // "bytes" or "objects"
}

// Secrets looks up credentials by name (specification, "Authentication").
type Secrets interface {
	// Secret returns a secret. The error wraps fs.ErrNotExist if there is none.
	Secret(ctx context.Context, namespace, name string) (Secret, error)
	// PullSecrets returns the registry credentials attached to a service account.
	PullSecrets(ctx context.Context, namespace, serviceAccount string) ([]Secret, error)
}

// A Secret has credentials by key.
type Secret struct {
	Type string
	Data map[string][]byte
}
