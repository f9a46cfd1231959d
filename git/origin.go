package git

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// An Origin is the upstream of one GitRepository. What Resolve found to be new
// is opened next, with the connection of Resolve; no other is kept between calls.
// An Origin is safe for concurrent use.
type Origin struct {
	repo *source.GitRepository
	env  source.Env

	vault   transport.Vault
	trusted transport.Trusted // by the last Resolve

	mu     sync.Mutex
	server server   // what is known of that of spec.url
	kept   *network // left by Resolve, nil if there is none
	rev    string   // what kept was found to be at
}

// New returns the origin of g. It does no I/O; what is wrong with g surfaces
// from [Origin.Resolve].
func New(g *source.GitRepository, env source.Env) *Origin {
	return &Origin{repo: g, env: env, vault: transport.Vault{Namespace: g.Metadata.Namespace, From: env.Secrets}}
}

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
	if _, err := o.repo.Spec.Directories(); err != nil {
		return source.Revision{}, nil, invalid(err)
	}
	if dir, ok, err := o.directory(); ok || err != nil {
		if err != nil {
			return source.Revision{}, nil, err
		}
		return o.resolveDir(ctx, dir)
	}
	sel, err := selectRef(o.repo.Spec.Ref)
	if err != nil {
		return source.Revision{}, nil, invalid(err)
	}
	before := decodeState(last)
	var now state
	inputs, err := o.inputs(ctx)
	if err != nil {
		return source.Revision{}, nil, err
	}
	if now.Trust, err = o.trust(ctx, sel); err != nil {
		return source.Revision{}, nil, err
	}
	rev, err := o.locate(ctx, sel, before, &now)
	if err != nil {
		return source.Revision{}, nil, err
	}
	rev.Inputs, rev.Reverify = inputs, now.Trust != before.Trust
	now.Revision = rev.ID
	encoded, err := now.encode()
	return rev, encoded, err
}

// locate finds the commit that sel selects now.
func (o *Origin) locate(ctx context.Context, sel selection, before state, now *state) (source.Revision, error) {
	o.keep(nil, "", before.Server)
	if sel.pinned() {
		now.Server = before.Server
		return revision(sel.label, sel.commit), nil
	}
	up, err := o.connect(ctx)
	if err != nil {
		return source.Revision{}, err
	}
	n, remote := up.(*network)
	if remote {
		n.shares = o.env.Share != nil
		n.know(before.Server)
	}
	rev, err := choose(ctx, up, sel, before, now)
	if remote {
		now.Server = n.server
	}
	if err != nil || !remote || rev.ID == before.Revision {
		err = errors.Join(err, up.Close())
		n = nil
	}
	o.keep(n, rev.ID, now.Server)
	return rev, err
}

// choose returns the revision of the ref that sel selects.
func choose(ctx context.Context, up upstream, sel selection, before state, now *state) (source.Revision, error) {
	if sel.semver != nil {
		tag, tie, err := highest(ctx, up, sel, before.Tie)
		now.Tie = tie
		return revision(tag.tag(), tag.commit()), err
	}
	ref, err := lookUp(ctx, up, sel)
	return revision(sel.label, ref.commit()), err
}

// keep leaves for Open what is known of the server and n, which was found to be
// at rev; nil leaves no connection.
func (o *Origin) keep(n *network, rev string, known server) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kept != nil {
		o.kept.Close()
	}
	o.kept, o.rev, o.server = n, rev, known
}

// reconnect returns the upstream with the connection that Resolve left for rev, if there is one.
func (o *Origin) reconnect(ctx context.Context, rev source.Revision) (upstream, error) {
	o.mu.Lock()
	n, known := o.kept, o.server
	if n != nil && o.rev == rev.ID {
		o.kept = nil
		o.mu.Unlock()
		n.shares = false
		return n, nil
	}
	o.mu.Unlock()
	up, err := o.connect(ctx)
	if n, remote := up.(*network); remote && err == nil {
		n.know(known)
	}
	return up, err
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
	up, err := o.reconnect(ctx, rev)
	if err != nil {
		return nil, err
	}
	defer up.Close()
	c, err := o.selected(ctx, up, sel, rev)
	if err != nil {
		return nil, err
	}
	if err := c.compose(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// selected fetches the commit of rev, which sel selects, and what proves that it may.
func (o *Origin) selected(ctx context.Context, up upstream, sel selection, rev source.Revision) (*content, error) {
	id, err := commitOf(rev)
	if err != nil {
		return nil, err
	}
	if sel.pinned() && sel.ref != "" {
		if err := prove(ctx, up, sel); err != nil {
			return nil, err
		}
	}
	tag, err := o.signedTag(ctx, up, sel, rev)
	if err != nil {
		return nil, err
	}
	want := id
	if tag.commit() == id {
		want = tag.ID // both come at once
	}
	c, err := o.fetchBy(ctx, up, want, id, sel.ref, o.lean())
	if err != nil {
		return nil, err
	}
	c.rev, c.sel, c.tag = rev, sel, tag
	return c, nil
}

// fetch fetches a commit; lean asks for its blobs to be left out, as far as up can do that.
func (o *Origin) fetch(ctx context.Context, up upstream, id object.ID, via string, lean bool) (*content, error) {
	return o.fetchBy(ctx, up, id, id, via, lean)
}

// fetchBy is fetch of a commit by the object that is wanted: itself, or a tag that leads to it.
func (o *Origin) fetchBy(ctx context.Context, up upstream, want, id object.ID, via string, lean bool) (*content, error) {
	db, notes, err := up.content(ctx, want, via, lean)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", want, err)
	}
	return newContent(ctx, o, db, id, notes)
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
	for depth := 64; ; depth = deeper(depth) {
		found, missing, err := ancestor(ctx, up, tip.commit(), sel.commit, depth)
		switch {
		case err != nil:
			return fmt.Errorf("prove that commit %s is on branch %q: %w", sel.commit, sel.label, err)
		case found:
			return nil
		case missing == nil:
			return fmt.Errorf("commit %s is not on branch %q (its tip is %s): correct spec.ref.commit or spec.ref.branch",
				sel.commit, sel.label, tip.commit())
		case depth == 0:
			return fmt.Errorf("commit %s cannot be proved to be on branch %q, whose history is incomplete (its tip is %s): %w",
				sel.commit, sel.label, tip.commit(), missing)
		}
	}
}

// deeper returns the depth to try after depth: enough more that all tries
// together cost little more than the last; 0, everything, comes in the end.
func deeper(depth int) int {
	if depth *= 8; depth <= 1<<20 {
		return depth
	}
	return 0
}

// ancestor looks for commit in the history of tip down to depth. Where it is
// not found, missing tells of a commit that the history goes on with and that
// was not looked at; nil means that there is none.
func ancestor(ctx context.Context, up upstream, tip, commit object.ID, depth int) (found bool, missing, err error) {
	if tip == commit {
		return true, nil, nil
	}
	db, err := up.history(ctx, []object.ID{tip}, depth)
	if err != nil {
		return false, nil, err
	}
	defer db.Close()
	seen := map[object.ID]bool{tip: true}
	for queue := []object.ID{tip}; len(queue) > 0; {
		if ctx.Err() != nil {
			return false, nil, context.Cause(ctx)
		}
		c, err := object.ReadCommit(db, queue[0])
		queue = queue[1:]
		switch {
		case isAbsent(err):
			missing = err
			continue
		case err != nil:
			return false, nil, err
		}
		for _, p := range c.Parents {
			if p == commit {
				return true, nil, nil
			}
			if !seen[p] {
				seen[p] = true
				queue = append(queue, p)
			}
		}
	}
	return false, missing, nil
}
