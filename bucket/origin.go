package bucket

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// An Origin is the upstream of one Bucket. It is safe for concurrent use.
type Origin struct {
	bucket       *source.Bucket
	env          source.Env
	providers    map[string]Provider
	secretReader transport.SecretReader

	mu      sync.Mutex
	listed  bool      // the bucket was listed before, so the next listing must be a new one
	pending *snapshot // listed by the last Resolve and not yet opened; may be nil
}

// New returns the origin of b. providers are the supported providers, by
// spec.provider. New does no I/O; [Origin.Resolve] reports defects of b.
func New(b *source.Bucket, env source.Env, providers map[string]Provider) *Origin {
	return &Origin{bucket: b, env: env, providers: providers, secretReader: transport.SecretReader{Namespace: b.Metadata.Namespace, From: env.Secrets, Accounts: env.Accounts}}
}

// Secrets returns the secret values that the origin has seen so far. The
// [source.Reconciler] redacts them in conditions, events and errors.
func (o *Origin) Secrets() []string { return o.secretReader.Values() }

// A state is the [source.State] of a Bucket, kept between runs.
type state struct {
	Bucket   string     `json:"place"`            // provider, server and bucket
	Revision string     `json:"revision"`         // of the last run
	Ignore   *rulesFile `json:"ignore,omitempty"` // nil if there was no object .sourceignore
}

// A rulesFile is the content of an object .sourceignore.
type rulesFile struct {
	ETag string `json:"etag"`
	Text string `json:"text"` // at most 1 MiB
}

// text returns the text of f, or "" if f is nil.
func (f *rulesFile) text() string {
	if f == nil {
		return ""
	}
	return f.Text
}

// bucketName returns provider, endpoint and name of the bucket, without secrets.
func bucketName(spec *source.BucketSpec) string {
	provider := spec.Provider
	if provider == "" {
		provider = "generic"
	}
	return provider + " " + localName(spec)
}

// localName returns the key of the bucket in [source.Env].Local.
func localName(spec *source.BucketSpec) string {
	server, _, _ := strings.Cut(spec.Endpoint, "?")
	return strings.TrimSuffix(server, "/") + "/" + spec.BucketName
}

// Resolve implements [source.Origin]: it lists the bucket. It reads the object
// .sourceignore only if that has changed since the last run.
//
// Errors are *[source.StepError]. They wrap [source.ErrInvalid] when the spec
// cannot work, fs.ErrNotExist when there is no such bucket, and
// [source.ErrMoved] when .sourceignore was replaced while it was read.
func (o *Origin) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	if s := o.swapPending(nil); s != nil { // it was listed with the Secrets of the earlier run
		s.access.close()
	}
	rev, state, err := o.resolve(ctx, last)
	if err != nil {
		return source.Revision{}, nil, o.failed(source.StepResolve, err)
	}
	return rev, state, nil
}

func (o *Origin) resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	if dir, ok, err := o.directory(); err != nil {
		return source.Revision{}, nil, err
	} else if ok {
		return dir.Resolve(ctx, nil)
	}
	before := state{}
	if json.Unmarshal(last, &before) != nil {
		before = state{}
	}
	s, err := o.takeSnapshot(ctx, before)
	if err != nil {
		return source.Revision{}, nil, err
	}
	now, rev := s.state, s.revision()
	if before.Bucket != "" && ((now.Ignore == nil) != (before.Ignore == nil) || now.Ignore.text() != before.Ignore.text()) {
		rev.Renew = "changed: " + ignoreFile
	}
	if now.Bucket == before.Bucket && now.Revision == before.Revision && rev.Renew == "" {
		s.access.close() // Open will not be called for an unchanged revision
	} else {
		o.swapPending(s)
	}
	text, err := json.Marshal(now)
	return rev, text, err
}

// Open implements [source.Origin]. It uses the listing of the last Resolve, or
// lists the bucket again. The error wraps [source.ErrMoved] if the listing has
// another revision than rev.
func (o *Origin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	c, err := o.open(ctx, rev)
	if err != nil {
		return nil, o.failed(source.StepFetch, err)
	}
	return c, nil
}

func (o *Origin) open(ctx context.Context, rev source.Revision) (source.Content, error) {
	if dir, ok, err := o.directory(); err != nil {
		return nil, err
	} else if ok {
		return dir.Open(ctx, rev)
	}
	s := o.swapPending(nil)
	if s == nil || s.revision().ID != rev.ID {
		var err error
		if s, err = o.takeSnapshot(ctx, state{}); err != nil {
			return nil, err
		}
	}
	if id := s.revision().ID; id != rev.ID {
		s.access.close()
		return nil, fmt.Errorf("%w: its revision was %s and is %s", source.ErrMoved, rev.ID, id)
	}
	return &content{s, o}, nil
}

// swapPending stores the snapshot that Resolve leaves to Open, and returns the one
// that was stored before; both may be nil.
func (o *Origin) swapPending(s *snapshot) *snapshot {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.pending
	o.pending = s
	return before
}

// takeSnapshot connects to the bucket and lists it.
func (o *Origin) takeSnapshot(ctx context.Context, before state) (*snapshot, error) {
	s := &snapshot{state: state{Bucket: bucketName(&o.bucket.Spec)}}
	err := o.connect(ctx, s)
	if err == nil {
		err = o.fill(ctx, s, before)
	}
	if err != nil && s.access != nil {
		s.access.close()
	}
	return s, err
}

// connect makes the driver of spec.provider.
func (o *Origin) connect(ctx context.Context, s *snapshot) error {
	provider, _, _ := strings.Cut(s.state.Bucket, " ")
	connect := o.providers[provider]
	if connect == nil {
		known := strings.Join(slices.Sorted(maps.Keys(o.providers)), " or ")
		return fmt.Errorf("%w: spec.provider %q: this program reads buckets with %s only", source.ErrInvalid, provider, known)
	}
	if err := o.validate(); err != nil {
		return err
	}
	err := o.within(ctx, "log in", func(ctx context.Context) (err error) {
		if s.access, err = newAccess(ctx, &o.bucket.Spec, o.env, &o.secretReader); err == nil {
			s.driver, err = connect(ctx, s.access)
		}
		return err
	})
	if errors.Is(err, context.DeadlineExceeded) { // only a token service is called in this step
		err = Failed("AuthenticationFailed", err)
	}
	return err
}

// validate checks the spec, because it may have been constructed in Go instead of
// decoded. The error is about the first defect.
func (o *Origin) validate() error {
	err := source.Validate(o.bucket)
	defect, ok := errors.AsType[*source.DocumentError](err)
	if !ok {
		return err
	}
	err = fmt.Errorf("%w: %s: %w", source.ErrInvalid, defect.Field, defect.Err)
	switch {
	case strings.HasSuffix(defect.Field, ".endpoint"):
		return Failed("URLInvalid", err)
	case strings.HasPrefix(defect.Field, "spec.sts"):
		return Failed("InvalidSTSConfiguration", err)
	}
	return err
}

// within runs do, one step of a fetch, with the timeout spec.timeout.
func (o *Origin) within(ctx context.Context, step string, do func(context.Context) error) error {
	return source.Within(ctx, time.Duration(o.bucket.Spec.Timeout), step, do)
}

// progress returns a function that reports how many objects a phase has processed.
// total is 0 if unknown.
func (o *Origin) progress(phase string, total int) (func(done int), error) {
	if o.env.Progress == nil {
		return func(int) {}, nil
	}
	name, err := source.Address(o.bucket)
	return func(done int) {
		o.env.Progress(source.Progress{Object: name, Phase: phase, Done: int64(done), Total: int64(total), Unit: "objects"})
	}, err
}

// operationFailed is the reason of failures without a more specific one (reference A2).
const operationFailed = "BucketOperationFailed"

// failed wraps err with the name of the bucket, with a hint for the user if there is
// one, and with the step and the reason of the condition unless err has them.
func (o *Origin) failed(step source.Step, err error) error {
	out := &source.StepError{Step: step, Reason: operationFailed}
	if errors.Is(err, fs.ErrPermission) && is[*StatusError](err) || transport.IsAuthFailure(err) {
		out.Reason = "AuthenticationFailed"
	}
	if chosen, ok := errors.AsType[*source.StepError](err); ok {
		out.Step, out.Reason = chosen.Step, chosen.Reason
	}
	if is[x509.UnknownAuthorityError](err) {
		err = fmt.Errorf("%w: ca.crt of a server that the system does not know belongs into the Secret of certSecretRef", err)
	}
	out.Err = fmt.Errorf("bucket '%s': %w", o.bucket.Spec.BucketName, err)
	return out
}

// Failed wraps the error of a [Provider] in a [*source.StepError] with the reason of the
// condition. It returns err unchanged if that already is one.
func Failed(reason string, err error) error {
	if is[*source.StepError](err) {
		return err
	}
	return &source.StepError{Step: source.StepResolve, Reason: reason, Err: err}
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
