package git

import (
	"context"
	"crypto/sha256"
	"strconv"

	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/transport"
)

// A refList is an answer to ls-refs, which nobody changes.
type refList []ref

// Weight tells the bytes of the list.
func (l refList) Weight() int64 {
	var total int64
	for _, r := range l {
		total += 128 + int64(len(r.Name)+len(r.Symref))
	}
	return total
}

// sharedRefs is refs with one answer for all who ask for the same with the same
// credentials. It has a conversation of its own: who began it may leave early.
func (n *network) sharedRefs(ctx context.Context, exact bool, names []string) ([]ref, error) {
	list, err := n.env.Share.Do(ctx, n.question(exact, names), n.env.Since, func(ctx context.Context) (any, error) {
		defer n.end() // nobody else may use the connection after this
		r, err := wire.Open(ctx, n.transport)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		list, err := listed(ctx, r, exact, names)
		return refList(list), err
	})
	if err != nil {
		return nil, err
	}
	return list.(refList), nil
}

// question names what is asked, of whom, and with which credentials.
func (n *network) question(exact bool, names []string) string {
	h := sha256.New()
	transport.Note(h, n.scope, n.web.Auth.Header(), strconv.FormatBool(exact))
	transport.Note(h, names...)
	return "git refs " + string(h.Sum(nil))
}

// listed returns the refs called names, or those whose names begin so.
func listed(ctx context.Context, r *wire.Remote, exact bool, names []string) ([]ref, error) {
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
