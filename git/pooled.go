package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/url"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
	"github.com/headgate-io/headgate/git/internal/pool"
	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// A fetchResult is a pack that holds a commit.
type fetchResult struct {
	pack  *packfile.Pack
	whole bool // with all its history
	notes []string
}

// base returns what is held of the upstream, to fetch on: nothing without a
// pool. A cached commit is not fetched again; with credentials of a provider the
// server is still contacted, to prove that they are valid.
func (n *network) base(ctx context.Context) (*pool.Base, error) {
	if n.pool == nil {
		return new(pool.Base), nil
	}
	if n.lent {
		r, err := n.open(ctx)
		if err == nil {
			err = r.Prove(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	return n.pool.Lock(ctx)
}

// whole returns a commit with all that it leads to.
func (n *network) whole(ctx context.Context, commit object.ID, via string) (database, []string, error) {
	base, err := n.base(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer base.Close()
	return n.wholeOn(ctx, base, commit, via)
}

// wholeOn is whole with what is held. Where that may be what makes the fetch
// fail, a fetch of everything is tried; where the cache is, one without it.
func (n *network) wholeOn(ctx context.Context, base *pool.Base, commit object.ID, via string) (database, []string, error) {
	if pack := base.Take(commit); pack != nil {
		return pack, nil, nil
	}
	got, err := n.completed(ctx, base, commit, via)
	if err != nil && base.Doubtful(ctx, err) {
		base.Forget()
		got, err = n.completed(ctx, base, commit, via)
	}
	if err != nil && base.Unwritable(ctx, err) {
		got, err = n.download(ctx, commit, via, new(pool.Base))
	}
	if err != nil {
		return nil, nil, err
	}
	return got.pack, got.notes, nil
}

// completed downloads what base lacks of a commit and adds what it has.
func (n *network) completed(ctx context.Context, base *pool.Base, commit object.ID, via string) (fetchResult, error) {
	got, err := n.download(ctx, commit, via, base)
	if err != nil || n.pool == nil {
		return got, err
	}
	if err := base.Complete(ctx, got.pack, commit, got.whole); err != nil {
		got.pack.Close()
		return fetchResult{}, err
	}
	return got, nil
}

// negotiate tells the server what base has, as far as it can make use of that,
// and allows it to refer to the objects.
func negotiate(q *wire.FetchRequest, r *wire.Remote, base *pool.Base) {
	if base.Objects == nil || base.Commit.Format() != formatOf(r) || q.Depth == 0 && !base.Whole {
		return
	}
	q.Haves, q.ThinPack = []object.ID{base.Commit}, true
	if !base.Whole {
		q.Shallow = q.Haves
	}
}

func formatOf(r *wire.Remote) object.Format {
	if r.ObjectFormat() == object.SHA256.String() {
		return object.SHA256
	}
	return object.SHA1
}

// cacheScope hashes the URL and the credentials, those of the Secrets and those that
// a provider is asked for, so that objects share cached data only if all are equal.
func cacheScope(u *url.URL, spec *source.GitRepositorySpec, namespace string, asked bool, secrets ...transport.Secret) string {
	h := sha256.New()
	transport.Note(h, u.String())
	switch {
	case !asked:
		transport.Note(h, "")
	case spec.ServiceAccountName == "":
		transport.Note(h, spec.Provider, "")
	default:
		transport.Note(h, spec.Provider, spec.ServiceAccountName, namespace)
	}
	for _, s := range secrets {
		s.Note(h)
	}
	return hex.EncodeToString(h.Sum(nil))
}
