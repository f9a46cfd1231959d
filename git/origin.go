package git

import (
	"context"
	"fmt"
	"sync"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/source"
)

// An Origin is the upstream of one GitRepository. It keeps no connection
// between calls and is safe for concurrent use.
type Origin struct {
	repo *source.GitRepository
	env  source.Env

	mu      sync.Mutex
	secrets []string // given to this origin so far
}

// New returns the origin of g. It does no I/O; what is wrong with g surfaces
// from [Origin.Resolve].
func New(g *source.GitRepository, env source.Env) *Origin { return &Origin{repo: g, env: env} }

// Resolve implements [source.Origin]: it returns the commit that spec.ref
// selects now. A pinned commit costs no request.
//
// Errors are *[source.StepError]. They wrap [source.ErrInvalid] when the spec
// cannot work, and fs.ErrNotExist when the reference or repository is absent.
func (o *Origin) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	rev, state, err := o.resolve(ctx, last)
	if err != nil {
		return source.Revision{}, nil, stepError(source.StepResolve, err)
	}
	return rev, state, nil
}

func (o *Origin) resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	if err := supported(&o.repo.Spec); err != nil {
		return source.Revision{}, nil, err
	}
	if dir, ok, err := o.directory(); ok || err != nil {
		if err != nil {
			return source.Revision{}, nil, err
		}
		return dir.Resolve(ctx, last)
	}
	sel, err := selectRef(o.repo.Spec.Ref)
	if err != nil {
		return source.Revision{}, nil, invalid(err)
	}
	if sel.pinned() {
		return revision(sel.label, sel.commit), nil, nil
	}
	up, err := o.connect(ctx)
	if err != nil {
		return source.Revision{}, nil, err
	}
	defer up.Close()
	if sel.semver != nil {
		return resolveRange(ctx, up, sel, last)
	}
	ref, err := lookUp(ctx, up, sel)
	if err != nil {
		return source.Revision{}, nil, err
	}
	return revision(sel.label, ref.commit()), nil, nil
}

// Open implements [source.Origin]: one shallow fetch of the commit of rev. A
// commit that is pinned together with a branch is first proved to be on it.
func (o *Origin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	c, err := o.open(ctx, rev)
	if err != nil {
		return nil, stepError(source.StepFetch, err)
	}
	return c, nil
}

func (o *Origin) open(ctx context.Context, rev source.Revision) (source.Content, error) {
	if dir, ok, err := o.directory(); ok || err != nil {
		if err != nil {
			return nil, err
		}
		return dir.Open(ctx, rev)
	}
	sel, err := selectRef(o.repo.Spec.Ref)
	if err != nil {
		return nil, invalid(err)
	}
	id, err := commitOf(rev)
	if err != nil {
		return nil, err
	}
	up, err := o.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer up.Close()
	if sel.pinned() && sel.ref != "" {
		if err := prove(ctx, up, sel); err != nil {
			return nil, err
		}
	}
	db, notes, err := up.content(ctx, id, sel.ref)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", id, err)
	}
	c, err := newContent(ctx, o.repo, db, id, o.env.Limits)
	if err != nil {
		return nil, err
	}
	c.notes = notes
	return c, nil
}

// lookUp finds the one ref that sel names.
func lookUp(ctx context.Context, up upstream, sel selection) (ref, error) {
	refs, err := up.refs(ctx, true, sel.ref)
	if err != nil {
		return ref{}, err
	}
	for _, r := range refs {
		if r.Name == sel.ref {
			return r, nil
		}
	}
	return ref{}, absent(ctx, up, sel)
}

// absent explains that the ref of sel does not exist: it tells an empty
// repository from a wrong name, and names the branch that would exist.
func absent(ctx context.Context, up upstream, sel selection) error {
	head, err := up.refs(ctx, true, "HEAD")
	if err != nil {
		return err
	}
	hint := "check spec.ref." + sel.field
	for _, r := range head {
		if r.Symref != "" && sel.field == "branch" {
			hint = fmt.Sprintf("the repository's own default is %s: set spec.ref.branch", r.Symref)
		}
	}
	return notFound(fmt.Sprintf("%s %q does not exist in the repository; %s", sel.field, sel.label, hint))
}

// prove checks that the pinned commit of sel is on its branch: the tip of the
// branch or an ancestor of it. Only commits are transferred where the server
// can leave out the rest, and no more of the history than needed.
func prove(ctx context.Context, up upstream, sel selection) error {
	tip, err := lookUp(ctx, up, sel)
	if err != nil {
		return err
	}
	for depth := 64; ; depth *= 8 {
		if depth > 1<<20 {
			depth = 0 // everything
		}
		found, complete, err := ancestor(ctx, up, tip.commit(), sel.commit, depth)
		if err != nil {
			return fmt.Errorf("prove that commit %s is on branch %q: %w", sel.commit, sel.label, err)
		}
		if found {
			return nil
		}
		if complete || depth == 0 {
			return fmt.Errorf("commit %s is not on branch %q (its tip is %s): correct spec.ref.commit or spec.ref.branch",
				sel.commit, sel.label, tip.commit())
		}
	}
}

// ancestor looks for commit in the history of tip down to depth. The history
// is complete when it ends before depth does.
func ancestor(ctx context.Context, up upstream, tip, commit object.ID, depth int) (found, complete bool, err error) {
	if tip == commit {
		return true, true, nil
	}
	db, err := up.history(ctx, []object.ID{tip}, depth)
	if err != nil {
		return false, false, err
	}
	defer db.Close()
	seen := map[object.ID]bool{tip: true}
	complete = true
	for queue := []object.ID{tip}; len(queue) > 0; {
		if err := ctx.Err(); err != nil {
			return false, false, context.Cause(ctx)
		}
		c, err := readCommit(db, queue[0])
		queue = queue[1:]
		switch {
		case isAbsent(err):
			complete = false
			continue
		case err != nil:
			return false, false, err
		}
		for _, p := range c.Parents {
			if p == commit {
				return true, true, nil
			}
			if !seen[p] {
				seen[p] = true
				queue = append(queue, p)
			}
		}
	}
	return false, complete, nil
}
