package git

import (
	"context"
	"crypto/sha256"
	"strconv"

	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/transport"
)

// A refList is an answer to ls-refs, which no caller changes, and the capabilities
// of the server that gave it.
type refList struct {
	refs         []ref
	capabilities string
}

// Weight tells the bytes of the list.
func (l refList) Weight() int64 {
	total := int64(len(l.capabilities))
	for _, r := range l.refs {
		total += 128 + int64(len(r.Name)+len(r.Symref))
	}
	return total
}

// sharedRefs is refs with one answer for all callers that ask for the same with the
// same credentials. It has a conversation of its own: the caller that began it may leave early.
func (n *network) sharedRefs(ctx context.Context, exact bool, names []string) ([]ref, error) {
	known := *n
	answer, err := n.env.Share.Do(ctx, n.question(exact, names), n.env.Since, func(ctx context.Context) (any, error) {
		r, err := known.converse(ctx)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		refs, capabilities, err := listed(ctx, r, exact, names)
		return refList{refs, capabilities}, known.hint(err)
	})
	list, _ := answer.(refList)
	n.learn(list.capabilities, err)
	return list.refs, err
}

// question names what is asked, of which server, and with which credentials.
func (n *network) question(exact bool, names []string) string {
	h := sha256.New()
	transport.Note(h, n.scope, n.web.Auth.Header(), strconv.FormatBool(exact))
	transport.Note(h, names...)
	return "git refs " + string(h.Sum(nil))
}

// listed returns the refs called names, or those whose names begin so, and the
// capabilities of the server.
func listed(ctx context.Context, r *wire.Remote, exact bool, names []string) ([]ref, string, error) {
	q := wire.RefQuery{Peel: true, Symrefs: true}
	if exact {
		q.Exact = names
	} else {
		q.Prefixes = names
	}
	list, err := r.Refs(ctx, q)
	if err != nil {
		return nil, "", err
	}
	refs := make([]ref, len(list))
	for i, l := range list {
		refs[i] = ref(l)
	}
	return refs, r.Capabilities(), nil
}
