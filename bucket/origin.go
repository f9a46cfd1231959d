package bucket

import (
	"context"
	"errors"
	"fmt"
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
	bucket    *source.Bucket
	env       source.Env
	providers map[string]Provider
	vault     transport.Vault

	mu      sync.Mutex
	looked  bool              // it was listed before
	kept    *kept             // what the last Resolve listed, until it is opened
	spoiled map[string]string // digests of artifacts that nothing is to be copied from, and why
}

// New returns the origin of b. providers are what buckets can be read with, by
// spec.provider. It does no I/O; what is wrong with b surfaces from [Origin.Resolve].
func New(b *source.Bucket, env source.Env, providers map[string]Provider) *Origin {
	return &Origin{bucket: b, env: env, providers: providers, spoiled: map[string]string{},
		vault: transport.Vault{Namespace: b.Metadata.Namespace, From: env.Secrets}}
}

// Resolve implements [source.Origin]: it lists the bucket. The object
// .sourceignore is read when it is not what the last run saw.
//
// Errors are *[source.StepError]. They wrap [source.ErrInvalid] when the spec
// cannot work, fs.ErrNotExist when there is no such bucket, and
// [source.ErrMoved] when .sourceignore was replaced while it was read.
func (o *Origin) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	o.keep(nil) // what an earlier Resolve left was listed with the Secrets of then
	rev, state, err := o.resolve(ctx, last)
	if err != nil {
		return source.Revision{}, nil, o.failed(source.StepResolve, err)
	}
	return rev, state, nil
}

func (o *Origin) resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	if dir, ok, err := o.directory(); ok {
		if err != nil {
			return source.Revision{}, nil, err
		}
		return dir.Resolve(ctx, nil)
	}
	before, known := recall(last)
	s, now, err := o.look(ctx, before)
	if err != nil {
		return source.Revision{}, nil, err
	}
	rev := revisionOf(now)
	if known && !now.sameRules(before) {
		rev.Renew = "changed: " + ignoreFile
	}
	if known && now.Place == before.Place && now.Revision == before.Revision && rev.Renew == "" {
		s.access.close() // nobody is going to open it
	} else {
		o.keep(&kept{rev.ID, s})
	}
	state, err := now.state()
	return rev, state, err
}

// revisionOf spells the revision (reference A4).
func revisionOf(m memory) source.Revision {
	return source.Revision{ID: "sha256:" + m.Revision, File: m.Revision + ".tar.gz"}
}

// Open implements [source.Origin]. It lists the bucket again unless the last
// Resolve has. The error wraps [source.ErrMoved] when that finds another revision.
func (o *Origin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	c, err := o.open(ctx, rev)
	if err != nil {
		return nil, o.failed(source.StepFetch, err)
	}
	return c, nil
}

func (o *Origin) open(ctx context.Context, rev source.Revision) (source.Content, error) {
	if dir, ok, err := o.directory(); ok {
		if err != nil {
			return nil, err
		}
		return dir.Open(ctx, rev)
	}
	if s := o.take(rev.ID); s != nil {
		return newContent(o, rev, s), nil
	}
	s, now, err := o.look(ctx, memory{})
	if err != nil {
		return nil, err
	}
	if id := revisionOf(now).ID; id != rev.ID {
		s.access.close()
		return nil, fmt.Errorf("%w: its revision was %s and is %s", source.ErrMoved, rev.ID, id)
	}
	return newContent(o, rev, s), nil
}

// look finds out what the bucket holds now.
func (o *Origin) look(ctx context.Context, before memory) (*snapshot, memory, error) {
	driver, access, err := o.connect(ctx)
	if err != nil {
		return nil, memory{}, err
	}
	s := &snapshot{driver: driver, access: access}
	now := memory{Place: placeOf(&o.bucket.Spec)}
	if err := o.fill(ctx, s, before, &now); err != nil {
		access.close()
		return nil, memory{}, err
	}
	return s, now, nil
}

// connect returns the driver of spec.provider.
func (o *Origin) connect(ctx context.Context) (driver Driver, access *Access, err error) {
	connect, err := o.provider()
	if err != nil {
		return nil, nil, err
	}
	err = o.within(ctx, "log in", func(ctx context.Context) (err error) {
		if access, err = newAccess(ctx, &o.bucket.Spec, o.env, &o.vault); err != nil {
			return err
		}
		if driver, err = connect(ctx, access); err != nil {
			access.close()
		}
		return err
	})
	if errors.Is(err, context.DeadlineExceeded) && !is[*source.StepError](err) { // of whoever issues credentials: nothing else is asked
		err = &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed", Err: err}
	}
	return driver, access, err
}

// provider returns what the bucket is to be read with.
func (o *Origin) provider() (Provider, error) {
	provider := o.bucket.Spec.Provider
	if provider == "" {
		provider = "generic"
	}
	if connect := o.providers[provider]; connect != nil {
		return connect, o.admit()
	}
	known := strings.Join(slices.Sorted(maps.Keys(o.providers)), " or ")
	return nil, invalid(fmt.Errorf("spec.provider %q: this program reads buckets with %s only", provider, known))
}

// admit checks the spec, which may have been made in Go and never decoded. The
// error is about the first defect.
func (o *Origin) admit() error {
	err := source.Validate(o.bucket)
	defect, ok := errors.AsType[*source.DocumentError](err)
	if !ok {
		return err
	}
	err = invalid(fmt.Errorf("%s: %w", defect.Field, defect.Err))
	switch field := defect.Field; {
	case strings.HasSuffix(field, ".endpoint"):
		return urlInvalid(err)
	case strings.HasPrefix(field, "spec.sts"):
		return &source.StepError{Step: source.StepResolve, Reason: "InvalidSTSConfiguration", Err: err}
	}
	return err
}

// within does one step of fetching within spec.timeout.
func (o *Origin) within(ctx context.Context, step string, do func(context.Context) error) error {
	return source.Within(ctx, time.Duration(o.bucket.Spec.Timeout), step, do)
}

// Secrets returns the credentials that were given to the origin so far, which
// the [source.Reconciler] keeps out of conditions, events and errors.
func (o *Origin) Secrets() []string { return o.vault.Values() }

// kept is what Resolve leaves to Open: a revision that is new is opened next.
type kept struct {
	id       string
	snapshot *snapshot
}

// keep replaces what is kept; nil is nothing.
func (o *Origin) keep(k *kept) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kept != nil {
		o.kept.snapshot.access.close()
	}
	o.kept = k
}

// take returns what is kept of the revision id, nil if it is not.
func (o *Origin) take(id string) *snapshot {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kept == nil || o.kept.id != id {
		return nil
	}
	s := o.kept.snapshot
	o.kept = nil
	return s
}
