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

// maxHaves bounds the commits that a server is told of: all go in one request.
const maxHaves = 8

// A haul is what the fetch of a commit brought.
type haul struct {
	pack  *packfile.Pack
	whole bool // with all its history
	notes []string
}

// whole returns a commit with all that it leads to. Of what the pool has,
// nothing is fetched; whom a provider vouches for is to show that the upstream
// still answers them, who may not be those that fetched it.
func (n *network) whole(ctx context.Context, commit object.ID, via string) (database, []string, error) {
	if n.pool == nil {
		h, err := n.download(ctx, commit, via, pool.Base{})
		return h.pack, h.notes, err
	}
	if n.lent {
		if _, err := n.open(ctx); err != nil {
			return nil, nil, err
		}
	}
	var notes []string
	db, err := n.pool.Obtain(ctx, commit, func(ctx context.Context, base pool.Base) (*packfile.Pack, bool, error) {
		h, err := n.download(ctx, commit, via, base)
		notes = h.notes
		return h.pack, h.whole, err
	})
	return db, notes, err
}

// negotiate tells the server what base has, as far as it can make use of that,
// and allows it to refer to the objects.
func negotiate(q *wire.FetchRequest, r *wire.Remote, base pool.Base) {
	for _, c := range base.Commits {
		if len(q.Haves) == maxHaves || c.ID.Format() != formatOf(r) || q.Depth == 0 && !c.Whole {
			continue
		}
		q.Haves = append(q.Haves, c.ID)
		if !c.Whole {
			q.Shallow = append(q.Shallow, c.ID)
		}
	}
	q.ThinPack = len(q.Haves) > 0
}

func formatOf(r *wire.Remote) object.Format {
	if r.ObjectFormat() == object.SHA256.String() {
		return object.SHA256
	}
	return object.SHA1
}

// scope returns a digest of all that decides what a fetch may see: where it
// goes and as whom, which is whom the provider of the spec vouches for if it is
// asked. Objects share what is cached only if all of it agrees.
func scope(u *url.URL, spec *source.GitRepositorySpec, namespace string, asked bool, secrets ...transport.Secret) string {
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
