package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/source"
)

// moduleFetches is how many submodules are fetched at once.
const moduleFetches = 8

// fetch fetches modules, each pin once.
func (r *recursion) fetch(ctx context.Context, modules []*module) error {
	var firsts []*module // of each pin
	at := map[pin][]*module{}
	for _, m := range modules {
		if at[m.pin()] == nil {
			firsts = append(firsts, m)
		}
		at[m.pin()] = append(at[m.pin()], m)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(moduleFetches)
	for _, m := range firsts {
		known := r.fetched[m.pin()]
		group.Go(func() (err error) {
			if m.content = known; known == nil {
				m.content, err = r.content(ctx, m)
			}
			if err == nil {
				err = r.place(m.content, at[m.pin()])
			}
			if err != nil {
				err = r.top.origin.blame(m, err)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, m := range firsts {
		if r.fetched[m.pin()] == nil {
			r.fetched[m.pin()] = m.content
			for _, note := range m.content.notes {
				r.top.notes = append(r.top.notes, fmt.Sprintf("submodule %q: %s", m.path, note))
			}
		}
	}
	return nil
}

// content fetches what m pins. Its LFS pointers are those of its own upstream.
func (r *recursion) content(ctx context.Context, m *module) (*content, error) {
	o := r.top.origin
	up, err := o.reachModule(ctx, m)
	if err != nil {
		return nil, err
	}
	defer up.Close()
	if n, ok := up.(*network); ok {
		n.env = r.env()
	}
	c, err := o.fetchPinned(ctx, up, m.commit)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.top.holding = append(r.top.holding, c)
	if s, ok := c.db.(interface{ Spooled() int64 }); ok {
		r.spooled += s.Spooled()
	}
	r.mu.Unlock()
	c.own = object.TreeFS(c.db, c.commit.Tree)
	c.tree, err = o.withObjects(c.own, c.own, func(ctx context.Context) (upstream, error) {
		up, err := o.reachModule(ctx, m)
		if err != nil {
			err = o.blame(m, err)
		}
		return up, err
	})
	return c, err
}

// place gives modules their content, as far as the limits of all trees together allow.
func (r *recursion) place(c *content, modules []*module) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range modules {
		m.content, m.tree = c, c.tree
		r.top.total = r.top.total.Plus(c.total)
	}
	if err := checkTotals(r.top.total, r.top.origin.env.Limits); err != nil {
		return fmt.Errorf("with it, %w", err)
	}
	return nil
}

// env is the environment of one fetch, which may use up what is left of the limits.
func (r *recursion) env() source.Env {
	env := r.top.origin.env
	if limit := cmp.Or(env.Limits.Bytes, maxBytes); limit > 0 {
		r.mu.Lock()
		env.Limits.Bytes = max(1, limit-max(r.spooled, r.top.total.Bytes))
		r.mu.Unlock()
	}
	if env.Progress != nil {
		env.Progress = r.progress()
	}
	return env
}

// progress returns what reports one of several fetches: the sum of all.
func (r *recursion) progress() func(source.Progress) {
	var last source.Progress
	return func(p source.Progress) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.done.Done += p.Done - last.Done
		r.done.Total += p.Total - last.Total
		last = p
		p.Phase, p.Done, p.Total = p.Phase+" of submodules", r.done.Done, r.done.Total
		r.top.origin.env.Progress(p)
	}
}

// fetchPinned fetches a commit that no ref need lead to. Where a server refuses
// to send that by its id, it is looked for as git does: among the tips, then
// in the history of the default branch.
func (o *Origin) fetchPinned(ctx context.Context, up upstream, commit object.ID) (*content, error) {
	c, err := o.fetch(ctx, up, commit, "", false)
	if !errors.Is(err, wire.ErrUnreachable) {
		return c, err
	}
	refs, err := up.refs(ctx, false, "refs/heads/", "refs/tags/")
	if err != nil {
		return nil, err
	}
	via := "HEAD"
	if i := slices.IndexFunc(refs, func(r ref) bool { return r.commit() == commit }); i >= 0 {
		via = refs[i].Name
	}
	return o.fetch(ctx, up, commit, via, false)
}
