package chart

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// A Repository is the origin of one PkgRepository. It is safe for concurrent use.
//
// The artifact is the index as the server gives it. An index of other bytes that
// says the same as the published one, stamped anew or in another order, makes no
// new artifact. A repository of type oci has none.
type Repository struct {
	repo  *source.PkgRepository
	env   source.Env
	vault *transport.Vault

	mu     sync.Mutex
	kept   *found // what the last Resolve fetched, until it is opened
	afresh bool   // what the last run left does not lead to an artifact: it is not to be asked
}

// NewRepository returns the origin of p. It does no I/O; what is wrong with p
// surfaces from [Repository.Resolve].
func NewRepository(p *source.PkgRepository, env source.Env) *Repository {
	return &Repository{repo: p, env: env, vault: &transport.Vault{Namespace: p.Metadata.Namespace, From: env.Secrets}}
}

// Resolve implements [source.Origin]: it asks for the index, and reads all of
// it unless the server answers that it is the one of the last run.
//
// Errors are *[source.StepError]. They wrap [source.ErrInvalid] when the spec
// cannot work, and fs.ErrNotExist when the server has no index there. The reason
// is IndexationFailed for what is no index.
func (r *Repository) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	r.keep(nil) // what an earlier Resolve left was fetched with the Secrets of then
	rev, state, err := r.resolve(ctx, last)
	if err != nil {
		return source.Revision{}, nil, r.failed(source.StepResolve, err)
	}
	return rev, state, nil
}

func (r *Repository) resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	if err := r.admit(); err != nil {
		return source.Revision{}, nil, err
	}
	if r.repo.Spec.Type == source.RepositoryOCI {
		return source.Revision{}, nil, nil
	}
	from, err := r.from(ctx)
	if err != nil {
		return source.Revision{}, nil, err
	}
	defer from.close()
	before, since := memory{}, time.Now() // what others were told led nowhere
	if !r.doubts() {
		before, since = recall(last, from), r.env.Since
	}
	f, err := r.ask(ctx, from, before.validators, since)
	if err != nil {
		return source.Revision{}, nil, err
	}
	now := before
	if f != nil {
		now = f.remembered(from, before)
		r.leave(f, now)
	}
	state, err := now.state()
	return now.revision(), state, err
}

// leave keeps f for Open, if somebody is going to open it: its revision is the
// one that Resolve tells, and not yet published.
func (r *Repository) leave(f *found, now memory) {
	published := r.repo.Status.Artifact
	if f.digest == now.Digest && (published == nil || published.Revision != now.revision().ID) {
		r.keep(f)
		return
	}
	f.close()
}

// Open implements [source.Origin]. It fetches the index again unless the last
// Resolve has. The error wraps [source.ErrMoved] when that is another one.
func (r *Repository) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	f, err := r.open(ctx, rev)
	if err != nil {
		return nil, r.failed(source.StepFetch, err)
	}
	return &repositoryContent{found: f, at: r.shown()}, nil
}

func (r *Repository) open(ctx context.Context, rev source.Revision) (*found, error) {
	if f := r.take(rev); f != nil {
		return f, nil
	}
	if err := r.admit(); err != nil {
		return nil, err
	}
	if r.repo.Spec.Type == source.RepositoryOCI {
		return nil, errNoIndex
	}
	from, err := r.from(ctx)
	if err != nil {
		return nil, err
	}
	defer from.close()
	f, err := r.fetch(ctx, from, validators{})
	if err != nil {
		return nil, err
	}
	if id := revisionOf(f.digest).ID; id != rev.ID {
		f.close()
		r.doubt()
		return nil, fmt.Errorf("%w: its revision was %s and is %s", source.ErrMoved, rev.ID, id)
	}
	return f, nil
}

var errNoIndex = errors.New("a repository of type oci has no index")

// from returns where the index comes from.
func (r *Repository) from(ctx context.Context) (place, error) {
	if dir, ok := r.env.Local[r.repo.Spec.URL]; ok {
		return directory(dir), nil
	}
	w, err := dial(ctx, r.repo, r.env, r.vault)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// admit checks the spec, which may have been made in Go and never decoded. The
// error is about the first defect.
func (r *Repository) admit() error {
	spec := &r.repo.Spec
	if defect := specDefect(source.Validate(r.repo)); defect != nil {
		err := fmt.Errorf("%s: %w", defect.Field, defect.Err)
		if defect.Field == "spec.url" {
			return urlInvalid(err)
		}
		return invalid(err)
	}
	if spec.Type == source.RepositoryOCI {
		return nil
	}
	if scheme, _, _ := strings.Cut(spec.URL, "://"); strings.EqualFold(scheme, "oci") {
		return urlInvalid(errors.New("spec.url: a registry has no index: set spec.type: oci"))
	}
	return nil
}

// specDefect returns the first of the joined defects that is about the spec:
// what a dependency names has nothing else.
func specDefect(err error) *source.DocumentError {
	defect, ok := err.(*source.DocumentError)
	if ok && strings.HasPrefix(defect.Field, "spec.") {
		return defect
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range all.Unwrap() {
			if defect := specDefect(err); defect != nil {
				return defect
			}
		}
	}
	return nil
}

// shown returns the URL as messages tell it.
func (r *Repository) shown() string {
	u, err := parseURL(r.repo.Spec.URL)
	if err != nil {
		u = &url.URL{}
	}
	return redact.URL(u)
}

// failed gives err the step and the reason of its condition unless it has them.
func (r *Repository) failed(step source.Step, err error) error {
	if chosen, ok := errors.AsType[*source.StepError](err); ok && error(chosen) != err {
		return &source.StepError{Step: chosen.Step, Reason: chosen.Reason, Err: err}
	}
	return stepError(step, "Failed", err)
}

// Secrets returns the credentials that were given to the origin so far.
func (r *Repository) Secrets() []string { return r.vault.Values() }

// keep replaces what is kept; nil is nothing.
func (r *Repository) keep(f *found) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept != nil {
		r.kept.close()
	}
	r.kept = f
}

// take returns what is kept of rev, nil if it is not.
func (r *Repository) take(rev source.Revision) *found {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.kept
	if f == nil || revisionOf(f.digest).ID != rev.ID {
		return nil
	}
	r.kept = nil
	return f
}

// doubt makes the next Resolve ask for the index as if there had been no run.
func (r *Repository) doubt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.afresh = true
}

func (r *Repository) doubts() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.afresh
	r.afresh = false
	return was
}
