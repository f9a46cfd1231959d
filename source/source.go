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
	// Artifact returns the last published artifact, nil when there is none.
	Artifact() *artifact.Artifact
	// Interval returns how often the origin is to be checked.
	Interval() time.Duration
}

// An Object is a [Source] that the [Reconciler] can drive.
type Object interface {
	Source
	Head() *Header   // apiVersion, kind and metadata
	Common() *Status // the part of the status that every kind has
	Plan() Plan      // what the reconciler must know of the spec
	// Drift names what differs between what the spec, as far as it shapes the
	// artifact, and the inputs in rev ask for now and what the published artifact
	// was made of; "" when nothing does.
	Drift(rev Revision) string
	// Observe records in the status what the artifact of rev was made of.
	Observe(rev Revision)
}

// A Plan is what the [Reconciler] needs to know of an object's spec.
type Plan struct {
	Timeout time.Duration // bound of each phase: resolve, fetch, pack; 0 when the origin bounds its own steps (see [Within])
	Suspend bool
	Verify  string      // the verification the spec asks for, "" when none
	Needs   []Reference // objects whose artifacts this one is made of
	Words   Words
}

// A Reference names an object.
type Reference struct{ Kind, Namespace, Name string }

func (r Reference) String() string { return r.Kind + "/" + r.Namespace + "/" + r.Name }

// Words are the constants in which kinds differ (reference A2, A3, A4).
type Words struct {
	Latest string // file name of the pointer behind status.url, "" for none
	Stored string // message of Ready and ArtifactInStorage, %s stands for the revision
	Failed string // reason of a fetch failure that names none itself
	Newer  string // reason of ArtifactOutdated, "" for that of all kinds: NewRevision, IncludeChange or NewConfiguration
}

// A Revision is one immutable state of an origin.
type Revision struct {
	ID       string              // as in artifact.revision (reference A4)
	File     string              // file name of its artifact
	Metadata map[string]string   // as in artifact.metadata
	Inputs   []artifact.Artifact // artifacts of other sources that it is made of
	Found    []string            // of the files the spec lists, those that exist as far as is known before it is opened; nil: all
	Renew    string              // why a published artifact of this ID has to be made again, "" when it has not
	Reverify bool                // the keys or identities that are trusted are not those that the last run trusted
	Verify   string              // the verification that a source it comes from asks for, where the spec of the object asks for none itself
	Note     string              // why the published artifact may not be what one expects, where it stays
	Tag      string              // of a Git repository: id of the tag object that led to the commit, where it was looked up
	Ready    string              // message of Ready of an object without ID; "" if such an object has no conditions
}

// State is what a kind remembers between runs, private to the kind: a cache,
// never needed for correctness.
type State []byte

// An Origin is where content comes from.
//
// Constructors of origins do no I/O and cannot fail: a bad spec surfaces from
// Resolve as an error that wraps [ErrInvalid]. The context of a call ends with
// the call: what Resolve and Open leave open must not depend on it. The same
// holds for [Content].
type Origin interface {
	// Resolve returns the revision the origin is at now. It transfers no
	// content it can avoid. A revision without ID says that objects of this
	// sort have no artifact. last is the state of the last run that succeeded.
	// The Inputs of a revision that it returns beside an error are those it saw.
	Resolve(ctx context.Context, last State) (Revision, State, error)
	// Open fetches what verification and packing share, once.
	Open(ctx context.Context, rev Revision) (Content, error)
}

// Content is the content of one revision. Verify and WriteTo speak of the same bytes.
type Content interface {
	// Verify checks the signature that the spec asks for.
	Verify(ctx context.Context) (Verification, error)
	// WriteTo writes the artifact. Its failures count as those of the store,
	// unless a [StepError] says that the origin is to blame.
	WriteTo(ctx context.Context, w io.Writer) (Report, error)
	// Close ends spools and connections, whatever happened before.
	Close() error
}

// An Explainer is a [Content] that can tell why its artifact holds what it holds.
type Explainer interface {
	Content
	// Explain returns all there is, and the ignore rules that leave a part of it
	// out of the artifact. It fails as WriteTo does, for content whose signature
	// was refused too, and where no ignore rules apply. Both are good until Close.
	Explain(ctx context.Context) (tree fs.FS, rules *artifact.Rules, err error)
}

// A Verification says how a revision was verified. The zero value means that
// the spec asks for no verification.
type Verification struct {
	Mode    string // for example HEAD
	Signer  string // key id, fingerprint or identity
	Level   string // policy level where the technology has one
	Message string // message of the SourceVerified condition
	Ignored bool   // the policy would have let anything pass: SourceVerified is not True, whatever was found
}

// A Report says what was written into an artifact.
type Report struct {
	artifact.Report
	Message string   // what the event about the new artifact says, for example "stored artifact for commit 'fix typo'"
	Reason  string   // reason of Ready and of the event, "" for the default (Succeeded, NewArtifact)
	Ready   string   // message of Ready, "" for Words.Stored
	Notes   []string // what a user should know about how it went, for example a fall-back
	Emptied bool     // the ignore rules removed every file: a warning event and a note say so
	Found   []string // of the files the spec lists, those it was made of; nil: those of [Revision]
	Copied  bool     // it is what the origin has, byte for byte, and was not packed here

	Chart        *ChartPin  // which version of a chart in a repository it is or was made of
	Dependencies []ChartPin // charts of repositories that were added to it
}

// Errors that an [Origin] wraps to say how a failure is to be treated.
var (
	// ErrInvalid marks a spec that cannot work until it is changed: the object is stalled.
	ErrInvalid = errors.New("invalid spec")
	// ErrWaiting marks a dependency that is not there yet: tried again soon, not counted as a failure.
	ErrWaiting = errors.New("waiting for a dependency")
	// ErrMoved marks an origin that moved on while it was fetched: it is resolved again at once, a few times.
	ErrMoved = errors.New("the origin changed while it was fetched")
	// ErrVerification marks a signature that was refused.
	ErrVerification = errors.New("verification failed")
)

// A Step is one part of a reconciliation. It decides which condition a failure sets.
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

// A StepError is a failure with the reason that its condition carries (reference A2).
// Origins return it to choose step and reason themselves; other errors get
// those of the phase they occur in.
type StepError struct {
	Step   Step
	Reason string
	Err    error
}

func (e *StepError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.Err }

// Env is what origins get from the program they run in. Nil fields mean the documented default.
type Env struct {
	Secrets  Secrets           // default: no secret exists
	Sources  Sources           // default: no other source exists
	Cache    *artifact.Cache   // content that later fetches can use; default: none is kept
	Login    LoginFunc         // credentials of spec.provider; default: no provider is known
	Accounts AccountFunc       // service accounts as identities with a provider; default: there are none
	Local    map[string]string // origins by URL that a local path stands in for
	Limits   artifact.Limits   // bounds of the content of one fetch, and where it is spooled
	Keychain KeychainFunc      // credentials for registries when the spec names none; default: anonymous
	Progress func(Progress)    // default: not reported
	Pin      *Pin              // the state to go to, of the one object that the origin is made for; default: the current one
	Share    *Share            // answers of upstreams that several objects use; default: each asks for itself
	Since    time.Time         // answers of Share that were asked for before do not count
	Reuse    *Connections      // connections to upstreams that several objects use; default: each opens its own
	Archives *Archives         // artifacts that several objects are made of; default: each reads for itself

	// Proxy is the proxy for what goes over HTTP, as in [http.Transport], where a
	// spec names none; it is not asked about ssh. Default: none.
	Proxy func(*http.Request) (*url.URL, error)
	// Networks are what servers may lead to though it is in a narrower network than
	// theirs. Default: nothing.
	Networks *Networks
}

// In returns e for origins whose artifacts are stored in store: if Cache and
// Limits.Temp are not set, they are those of the store.
func (e Env) In(store *artifact.Store) Env {
	if e.Cache == nil {
		e.Cache = store.Cache()
	}
	if e.Limits.Temp == nil {
		e.Limits.Temp = store.Temp
	}
	return e
}

// Sources gives origins the artifacts of other sources.
type Sources interface {
	// Source returns the object that ref names, an error that wraps fs.ErrNotExist when there is none.
	// Its spec may be read at any time, its status only by callers that are not needed
	// for it themselves (see [Order]).
	Source(ctx context.Context, ref Reference) (Object, error)
	// List returns the objects of a kind in a namespace, in the order of their
	// names. What holds of Source's result holds of each of them.
	List(ctx context.Context, kind, namespace string) ([]Object, error)
	// Open opens an artifact that Source told of. Reading it fails at its end
	// when the content has not the digest of a.
	Open(ctx context.Context, a artifact.Artifact) (io.ReadCloser, error)
}

// Progress says how far a transfer is.
type Progress struct {
	Object string // KIND/NAMESPACE/NAME
	Phase  string // for example "receiving objects"
	Asked  Object // in the phase "asking": the object whose origin is asked, see [OriginOf]; else nil
	Done   int64
	Total  int64  // 0 when unknown
	Unit   string // "bytes" or "objects"
}

// Secrets looks up credentials by name (specification, "Authentication").
type Secrets interface {
	// Secret returns the data of a secret, an error that wraps fs.ErrNotExist when there is none.
	Secret(ctx context.Context, namespace, name string) (Secret, error)
	// PullSecrets returns the registry credentials attached to a service account.
	PullSecrets(ctx context.Context, namespace, serviceAccount string) ([]Secret, error)
}

// A Secret holds credentials by key.
type Secret struct {
	Type string
	Data map[string][]byte
}
