package wire

import (
	"context"
	"errors"
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
	assumed bool    // the greeting is one of before: the server has not answered yet
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

// Resume begins a conversation with a server whose Capabilities are known. It
// sends nothing: the first request goes without a greeting, and a server that
// refuses it is greeted and asked again. Capabilities that cannot be used are
// those of a server that is not known, which [Open] greets.
func Resume(ctx context.Context, t Transport, capabilities string) (*Remote, error) {
	g := greeting{version: 2, caps: map[string]string{}}
	for line := range strings.Lines(capabilities) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		g.caps[name] = value
	}
	if f := g.format(); g.checkCommands() != nil || f != "sha1" && f != "sha256" {
		return Open(ctx, t)
	}
	c, err := t.dial(ctx)
	if err != nil {
		return nil, wrap(ctx, Dial, t.String(), err)
	}
	return &Remote{t: t, c: c, g: g, assumed: true}, nil
}

// maxCapabilities bounds what [Remote.Capabilities] returns, in bytes.
const maxCapabilities = 1 << 10

// Capabilities returns what [Resume] needs to know of the server: the capabilities
// that requests depend on, one in a line. It is "" for a server that is to be
// greeted: of version 0 or 1, over SSH, and one that redirects.
func (r *Remote) Capabilities() string {
	c, ok := r.c.(*httpConn)
	if !ok || r.g.version != 2 || c.before != nil {
		return ""
	}
	var b strings.Builder
	for _, name := range []string{"agent", "fetch", "ls-refs", "object-format"} {
		if value, ok := r.g.caps[name]; ok {
			if name == "agent" {
				value = "" // its version does not decide what a server can do
			}
			b.WriteString(name + "=" + value + "\n")
		}
	}
	if b.Len() > maxCapabilities {
		return ""
	}
	return b.String()
}

// Prove greets a server that has not answered yet.
func (r *Remote) Prove(ctx context.Context) error {
	if !r.assumed {
		return nil
	}
	return wrap(ctx, Advertisement, r.t.String(), r.greet(ctx))
}

// refusals are the failures of a request that a server may answer with which was
// not greeted and is not what it was before.
var refusals = []error{ErrAuth, ErrNotFound, ErrProtocol, ErrRemote, ErrUnsupported, ErrRedirect}

// again reports whether a request that failed with err is worth sending again,
// after a greeting, which it sends: the server was not greeted before.
func (r *Remote) again(ctx context.Context, err error) (bool, error) {
	assumed := r.assumed
	r.assumed = false
	is := func(kind error) bool { return errors.Is(wrap(ctx, LsRefs, "", err), kind) }
	if err == nil || !assumed || ctx.Err() != nil || is(ErrBusy) || is(ErrUnreachable) || !slices.ContainsFunc(refusals, is) {
		return false, err
	}
	r.assumed = true // for the greeting, which may be of another version
	if err := r.greet(ctx); err != nil {
		return false, inPhase(Advertisement, err)
	}
	return true, nil
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
	again := r.g.caps != nil && !r.assumed
	if r.g, err = readGreeting(a.pktReader); err == nil && again && r.g.version != was {
		err = protocolf("the server changes from version %d to %d", was, r.g.version)
	}
	r.assumed = r.assumed && err != nil
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
