package git

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/lfs"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// An Origin is the upstream of one GitRepository. After Resolve has found a new
// revision, Open reuses its connection; no other connection is kept between calls. An
// Origin is safe for concurrent use.
type Origin struct {
	repo *source.GitRepository
	env  source.Env

	secretReader transport.SecretReader
	trusted      transport.TrustFingerprint // set by the last Resolve

	mu         sync.Mutex
	server     server          // capabilities of the server of spec.url
	connection *remoteUpstream // left by Resolve, nil if there is none
	rev        string          // the revision that Resolve found over connection
}

// New returns the origin of g. It does no I/O: [Origin.Resolve] reports what is wrong
// with g.
func New(g *source.GitRepository, env source.Env) *Origin {
	return &Origin{repo: g, env: env, secretReader: transport.SecretReader{Namespace: g.Metadata.Namespace, From: env.Secrets, Accounts: env.Accounts}}
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
		return source.Revision{}, nil, specError(err)
	}
	var inputs []artifact.Artifact
	if len(o.repo.Spec.Include) > 0 {
		var err error
		if inputs, err = o.inputs(ctx); err != nil {
			return source.Revision{}, nil, err
		}
	}
	if dir, ok, err := o.directoryOrigin(); err != nil {
		return source.Revision{}, nil, err
	} else if ok {
		rev, state, err := dir.Resolve(ctx, nil)
		rev.Inputs = inputs
		return rev, state, err
	}
	sel, err := o.selection()
	if err != nil {
		return source.Revision{}, nil, err
	}
	before := decodeState(last)
	now := state{Server: before.Server}
	if o.repo.Spec.Verify != nil {
		if now.Trust, err = o.trustFingerprint(ctx, sel); err != nil {
			return source.Revision{}, nil, err
		}
	}
	o.keepConnection(nil, "", before.Server)
	rev := revision(sel.label, sel.commit)
	switch {
	case sel.commit.IsZero():
		rev, err = o.resolveRef(ctx, sel, before, &now)
	case sel.locked && o.env.Pin.Prove:
		err = o.proveSelected(ctx, sel)
	}
	if err != nil {
		return source.Revision{}, nil, err
	}
	rev.Inputs, rev.Reverify = inputs, now.Trust != before.Trust
	now.Revision = rev.ID
	encoded, err := now.encode()
	return rev, encoded, err
}

// resolveRef finds the commit that sel selects now.
func (o *Origin) resolveRef(ctx context.Context, sel selection, before state, now *state) (source.Revision, error) {
	up, err := o.openUpstream(ctx)
	if err != nil {
		return source.Revision{}, err
	}
	n, remote := up.(*remoteUpstream)
	if remote {
		n.shareRefs = o.env.Share != nil
	}
	ref, label := object.Ref{}, sel.label
	if sel.semver == nil {
		ref, err = lookUp(ctx, up, sel)
	} else if ref, now.Tie, err = highestTag(ctx, up, sel, before.Tie); err == nil {
		label = ref.Tag()
	}
	rev := revision(label, ref.Commit())
	if ref.ID != ref.Commit() {
		rev.Tag = ref.ID.String()
	}
	if remote {
		now.Server = n.server
	}
	if err != nil || !remote || rev.ID == before.Revision {
		err = errors.Join(err, up.Close())
		n = nil
	}
	o.keepConnection(n, rev.ID, now.Server)
	return rev, err
}

// keepConnection stores for Open what is known of the server, and the connection n with the
// revision rev that was found over it. It closes the connection stored before; a nil
// n stores none.
func (o *Origin) keepConnection(n *remoteUpstream, rev string, known server) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.connection != nil {
		o.connection.Close()
	}
	o.connection, o.rev, o.server = n, rev, known
}

// Open implements [source.Origin]: it fetches the commit of rev without its history.
// A commit that is pinned together with a branch is first proved to be on that
// branch.
func (o *Origin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	c, err := o.open(ctx, rev)
	if err != nil {
		return nil, stepError(source.StepFetch, err)
	}
	return c, nil
}

func (o *Origin) open(ctx context.Context, rev source.Revision) (source.Content, error) {
	if dir, ok, err := o.directoryOrigin(); err != nil {
		return nil, err
	} else if ok {
		return dir.Open(ctx, rev)
	}
	sel, err := o.selection()
	if err != nil {
		return nil, err
	}
	id, err := commitOf(rev)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	connection := o.connection
	if o.rev != rev.ID {
		connection = nil
	} else {
		o.connection = nil
	}
	o.mu.Unlock()
	var up upstream
	if connection != nil {
		connection.shareRefs = false
		up = connection
	} else if up, err = o.openUpstream(ctx); err != nil {
		return nil, err
	}
	c, err := o.fetchSelected(ctx, up, sel, rev, id)
	if sel.locked && errors.Is(err, wire.ErrUnreachable) {
		err = notFound(fmt.Sprintf("the server has no commit %s, or does not send it: %v", id, err))
	}
	if err != nil {
		return nil, errors.Join(err, up.Close())
	}
	if _, partial := c.db.(*partialDatabase); partial { // c sends more requests over up
		c.closers = append(c.closers, up)
	} else if err := up.Close(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// fetchSelected fetches the commit id of rev, which sel selects. Before that it proves
// that a pinned commit is on its branch, and looks up the tag whose signature must be
// verified.
func (o *Origin) fetchSelected(ctx context.Context, up upstream, sel selection, rev source.Revision, id object.ID) (*content, error) {
	if !sel.commit.IsZero() && sel.ref != "" && !sel.locked {
		if err := prove(ctx, up, sel); err != nil {
			return nil, err
		}
	}
	var tag object.Ref
	if o.repo.Spec.Verify != nil {
		var err error
		if tag, err = o.signedTag(ctx, up, sel, rev); err != nil {
			return nil, err
		}
	}
	want := id
	if tag.Commit() == id {
		want = tag.ID // one fetch brings both
	}
	via := sel.ref
	if sel.locked {
		via = "" // the refs may have moved since the lock was written
	}
	c, err := o.fetch(ctx, up, want, id, via, o.prefersPartialFetch())
	if err != nil {
		return nil, err
	}
	c.rev, c.sel, c.tag = rev, sel, tag
	return c, nil
}

// fetch fetches the commit id. The wanted object is id itself or a tag that leads to
// it; via is a ref that leads to id, "" if none is known. With lean the blobs are
// left out, as far as up supports that.
func (o *Origin) fetch(ctx context.Context, up upstream, want, id object.ID, via string, lean bool) (*content, error) {
	db, notes, err := up.fetchCommit(ctx, want, via, lean)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", want, err)
	}
	return newContent(ctx, o, db, id, notes)
}

// A state is what a GitRepository remembers between runs.
type state struct {
	Tie      *tie   `json:"tie,omitempty"`
	Trust    string `json:"trust,omitempty"`    // fingerprint of the keys that the last run trusted
	Revision string `json:"revision,omitempty"` // found by the last run
	Server   server `json:"server,omitzero"`
}

// A server holds the capabilities of a server that speaks protocol 2, so that the
// next request to it needs no greeting.
type server struct {
	URL          string `json:"url,omitempty"`          // of the repository, without credentials
	Capabilities string `json:"capabilities,omitempty"` // see [wire.New]
}

// decodeState decodes a state. A state that is not valid counts as empty.
func decodeState(s source.State) state {
	var m state
	if json.Unmarshal(s, &m) != nil {
		return state{}
	}
	return m
}

// encode is the inverse of decodeState. It returns nil for an empty state.
func (m state) encode() (source.State, error) {
	if m == (state{}) {
		return nil, nil
	}
	return json.Marshal(m)
}

func wraps[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// stepError wraps err in a [source.StepError] with the reason of its condition
// (reference A2), unless err already is one.
func stepError(step source.Step, err error) error {
	reason := "GitOperationFailed"
	switch {
	case wraps[*source.StepError](err):
		return err
	case wraps[*transport.SecretError](err), wraps[*wire.HostKeyError](err), errors.Is(err, wire.ErrAuth), errors.Is(err, lfs.ErrAuth):
		reason = "AuthenticationFailed"
	case errors.Is(err, artifact.ErrIgnore):
		reason = "SourceIgnoreError"
	case errors.Is(err, wire.ErrEmpty):
		reason = "EmptyGitRepository"
	}
	return &source.StepError{Step: step, Reason: reason, Err: err}
}

// specError marks err as a defect of the spec: the object stalls until it changes.
func specError(err error) error { return fmt.Errorf("%w: %w", source.ErrInvalid, err) }

func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// A notFound matches fs.ErrNotExist and has a message of its own: what the spec
// selects does not exist.
type notFound string

func (e notFound) Error() string        { return string(e) }
func (e notFound) Is(target error) bool { return target == fs.ErrNotExist }
