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
	var pins []pin
	at := map[pin][]*module{}
	for _, m := range modules {
		p := pin{m.url.String(), m.commit}
		if at[p] == nil {
			pins = append(pins, p)
		}
		at[p] = append(at[p], m)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(moduleFetches)
	for _, p := range pins {
		group.Go(func() error {
			c, err := r.content(ctx, p, at[p][0])
			if err == nil {
				err = r.place(c, at[p])
			}
			if err != nil {
				err = r.top.origin.blame(at[p][0].path, at[p][0].url, err)
			}
			return err
		})
	}
	return group.Wait()
}

// content returns what is at p, from its upstream unless it is there already.
func (r *recursion) content(ctx context.Context, p pin, m *module) (*content, error) {
	r.mu.Lock()
	c := r.fetched[p]
	r.mu.Unlock()
	if c != nil {
		return c, nil
	}
	up, err := r.top.origin.reachModule(ctx, m.url)
	if err != nil {
		return nil, err
	}
	defer up.Close()
	if n, ok := up.(*network); ok {
		n.env = r.env()
	}
	if c, err = r.top.origin.fetchPinned(ctx, up, m.commit); err != nil {
		return nil, err
	}
	whole := object.TreeFS(c.db, c.commit.Tree)
	c.own, err = r.top.origin.withObjects(whole, whole, func(ctx context.Context) (upstream, error) {
		return r.top.origin.reachModule(ctx, m.url)
	})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fetched[p] = c
	r.top.holding = append(r.top.holding, c)
	for _, note := range c.notes {
		r.top.notes = append(r.top.notes, fmt.Sprintf("submodule %q: %s", m.path, note))
	}
	if s, ok := c.db.(interface{ Spooled() int64 }); ok {
		r.spooled += s.Spooled()
	}
	return c, nil
}

// place gives modules their content, as far as the limits of all trees together allow.
func (r *recursion) place(c *content, modules []*module) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range modules {
		m.content, m.tree = c, c.own
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
