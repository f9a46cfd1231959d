package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/source"
)

// A network is an upstream behind a URL.
type network struct {
	transport wire.Transport
	remote    *wire.Remote // nil until it is needed
	env       source.Env
	object    string // KIND/NAMESPACE/NAME, for progress
	end       func() // closes what the transport holds
}

// open returns the conversation, which it begins when there is none.
func (n *network) open(ctx context.Context) (*wire.Remote, error) {
	if n.remote != nil {
		return n.remote, nil
	}
	r, err := wire.Open(ctx, n.transport)
	if err != nil {
		return nil, err
	}
	n.remote = r
	return r, nil
}

// hangUp ends the conversation; the next request begins another.
func (n *network) hangUp() {
	if n.remote != nil {
		n.remote.Close()
		n.remote = nil
	}
}

func (n *network) Close() error {
	n.hangUp()
	n.end()
	return nil
}

func (n *network) refs(ctx context.Context, exact bool, names ...string) ([]ref, error) {
	r, err := n.open(ctx)
	if err != nil {
		return nil, err
	}
	q := wire.RefQuery{Peel: true, Symrefs: true}
	if exact {
		q.Exact = names
	} else {
		q.Prefixes = names
	}
	list, err := r.Refs(ctx, q)
	if err != nil {
		return nil, err
	}
	refs := make([]ref, len(list))
	for i, l := range list {
		refs[i] = ref(l)
	}
	return refs, nil
}

func (n *network) history(ctx context.Context, tips []object.ID, depth int) (database, error) {
	r, err := n.open(ctx)
	if err != nil {
		return nil, err
	}
	q := wire.FetchRequest{Wants: tips, Depth: depth}
	if r.Supports("filter") {
		q.Filter = "tree:0"
	}
	return n.fetch(ctx, q)
}

func (n *network) content(ctx context.Context, commit object.ID, via string) (database, []string, error) {
	r, err := n.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	q := wire.FetchRequest{Wants: []object.ID{commit}, Depth: 1}
	if !r.Supports("shallow") {
		q.Depth = 0
		db, err := n.fetch(ctx, q)
		return db, []string{"the server has no shallow fetches: the whole history was transferred"}, err
	}
	tips, err := n.tips(ctx, via)
	if err != nil {
		return nil, nil, err
	}
	tip := slices.IndexFunc(tips, func(t ref) bool { return t.commit() == commit })
	if tip >= 0 {
		q.Wants[0] = tips[tip].ID // a tag is wanted by its own id
	}
	if tip >= 0 || r.WantsAny() {
		db, err := n.fetch(ctx, q)
		if err == nil || !errors.Is(err, wire.ErrUnreachable) {
			return db, nil, err
		}
	}
	return n.deepen(ctx, tips, commit)
}

// tips returns what may be wanted from a server that sends only what refs
// point to: the ref called via, or all branches and tags. It is empty when the
// server sends any commit.
func (n *network) tips(ctx context.Context, via string) ([]ref, error) {
	switch {
	case n.remote.WantsAny():
		return nil, nil
	case via != "":
		return n.refs(ctx, true, via)
	}
	return n.refs(ctx, false, "refs/heads/", "refs/tags/")
}

// deepen fetches the tips with more and more of their history until it holds
// commit.
func (n *network) deepen(ctx context.Context, tips []ref, commit object.ID) (database, []string, error) {
	wants := make([]object.ID, len(tips))
	for i, t := range tips {
		wants[i] = t.ID
	}
	for depth := 8; len(tips) > 0; depth *= 8 {
		if depth > 1<<20 {
			depth = 0
		}
		db, err := n.fetch(ctx, wire.FetchRequest{Wants: wants, Depth: depth})
		if err != nil {
			return nil, nil, err
		}
		if _, err := readCommit(db, commit); err == nil {
			note := fmt.Sprintf("the server sends only what refs point to: %d commits of history were transferred to reach %s", depth, commit)
			if depth == 0 {
				note = "the server sends only what refs point to: the whole history was transferred to reach " + commit.String()
			}
			return db, []string{note}, nil
		}
		db.Close()
		if depth == 0 {
			break
		}
	}
	return nil, nil, fmt.Errorf("commit %s is in the history of no branch or tag that the server offers", commit)
}

// fetch spools one pack.
func (n *network) fetch(ctx context.Context, q wire.FetchRequest) (database, error) {
	r, err := n.open(ctx)
	if err != nil {
		return nil, err
	}
	limits := packLimits(n.env.Limits)
	q.MaxBytes = limits.PackBytes
	answer, err := r.Fetch(ctx, q)
	if err != nil {
		n.hangUp()
		return nil, err
	}
	format := object.SHA1
	if r.ObjectFormat() == object.SHA256.String() {
		format = object.SHA256
	}
	pack, err := packfile.Read(ctx, answer.Pack, packfile.Options{
		Temp: n.env.Limits.Temp, Format: format, Limits: limits, Progress: n.progress(),
	})
	if closing := answer.Close(); err == nil && closing != nil && closing != io.EOF {
		pack.Close()
		err = closing
	}
	if r.Version() < 2 {
		n.hangUp() // one pack a conversation
	}
	if err != nil {
		return nil, err
	}
	return pack, nil
}

func (n *network) progress() func(done, total int, bytes int64) {
	if n.env.Progress == nil {
		return nil
	}
	return func(done, total int, _ int64) {
		n.env.Progress(source.Progress{Object: n.object, Phase: "receiving objects", Done: int64(done), Total: int64(total), Unit: "objects"})
	}
}
