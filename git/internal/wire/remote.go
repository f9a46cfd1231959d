package wire

import (
	"context"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/git/internal/object"
)

// A Remote is a conversation with a repository. It serves one call at a time,
// and none while the response of a Fetch is open.
type Remote struct {
	t       Transport
	c       conn
	g       greeting
	pending *answer // version 0: the greeting, with the refs still to be read
}

// Open greets the repository that t leads to. After an error there is nothing to
// close. The Remote does not depend on ctx.
func Open(ctx context.Context, t Transport) (*Remote, error) {
	if err := ctx.Err(); err != nil {
		return nil, wrap(ctx, Dial, t.String(), err)
	}
	c, err := t.dial(ctx)
	if err != nil {
		return nil, wrap(ctx, Dial, t.String(), err)
	}
	r := &Remote{t: t, c: c}
	if err := r.greet(ctx); err != nil {
		c.close()
		return nil, wrap(ctx, Advertisement, t.String(), err)
	}
	return r, nil
}

// Close ends the conversation.
func (r *Remote) Close() error {
	r.c.close()
	r.drop()
	return nil
}

// Version is the version of the protocol that the server speaks: 0, 1 or 2.
func (r *Remote) Version() int { return r.g.version }

// ObjectFormat is the hash algorithm that names objects: sha1 or sha256.
func (r *Remote) ObjectFormat() string { return r.g.format() }

// Supports reports whether Fetch can make use of a feature of the server:
// "filter" or "shallow".
func (r *Remote) Supports(feature string) bool {
	if r.g.version == 2 {
		return slices.Contains(strings.Fields(r.g.caps["fetch"]), feature)
	}
	_, ok := r.g.caps[feature]
	return ok
}

// WantsAny reports whether the server promises to give a commit that no ref
// points to. Without the promise it may give it all the same, or refuse with
// [ErrUnreachable]: then its branch must be deepened until the commit appears.
func (r *Remote) WantsAny() bool {
	return r.g.version == 2 || r.Supports("allow-any-sha1-in-want") || r.Supports("allow-reachable-sha1-in-want")
}

// greet reads the greeting, of a version 0 server up to its first ref.
func (r *Remote) greet(ctx context.Context) error {
	s, err := r.c.greet(ctx)
	if err != nil {
		return err
	}
	a := newAnswer(s, maxGreeting)
	a.sips = true
	a.attach(ctx)
	was := r.g.version
	again := r.g.caps != nil
	if r.g, err = readGreeting(a.pktReader); err == nil && again && r.g.version != was {
		err = protocolf("the server changes from version %d to %d", was, r.g.version)
	}
	switch {
	case err != nil:
		a.release(false)
	case r.g.version == 2:
		a.release(true)
	default:
		a.stop()
		r.pending = a
	}
	return err
}

// drop gives up the refs of a greeting.
func (r *Remote) drop() {
	if r.pending != nil {
		r.pending.release(false)
		r.pending = nil
	}
}

// refs gives the rest of a version 0 greeting, the first line first.
func (r *Remote) refs(ctx context.Context, limit int64) (*answer, error) {
	if r.pending == nil {
		if err := r.greet(ctx); err != nil {
			return nil, err
		}
	}
	a := r.pending
	r.pending = nil
	a.attach(ctx)
	a.allow(limit)
	return a, nil
}

// ask sends a request when the connection is ready for one.
func (r *Remote) ask(ctx context.Context, req *request) (stream, error) {
	if r.pending != nil && r.c.ready() {
		r.drop()
	}
	if !r.c.ready() {
		if err := r.readyAgain(ctx); err != nil {
			return nil, err
		}
	}
	return r.c.ask(ctx, req.b)
}

// readyAgain reads a greeting to its end, so that a request can follow.
func (r *Remote) readyAgain(ctx context.Context) error {
	if r.g.version == 2 {
		return r.greet(ctx)
	}
	a, err := r.refs(ctx, defaultRefBytes)
	if err != nil {
		return err
	}
	for k := pktData; k == pktData && r.g.first != "" && err == nil; {
		k, _, err = a.line()
	}
	a.release(err == nil)
	return err
}

// parseID parses an object id of the remote's object format.
func (r *Remote) parseID(s string) (object.ID, error) {
	id, err := object.ParseID(s)
	if err != nil || len(s) != r.g.hexLen() {
		return object.ID{}, protocolf("%.80q is no %s object id", s, r.g.format())
	}
	return id, nil
}
