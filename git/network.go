package git

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/git/internal/lfs"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// A remoteUpstream is an upstream behind a URL.
type remoteUpstream struct {
	url               *url.URL
	transport         wire.Transport
	httpConfig        transport.Config // settings for HTTP servers; Origin is the repository's, if that is reached over HTTP
	closeTransport    func()           // closes what transport holds
	remote            *wire.Remote
	server            server // capabilities, as far as they are known
	env               source.Env
	objectName        string // KIND/NAMESPACE/NAME, for progress
	scope             string // the scope of cached data, see cacheScope
	secretWithoutAuth string // the Secret of the repository, when it holds no credentials for HTTP
	shareRefs         bool   // refs may return an answer that another caller received
	providerIssued    bool   // a provider issued the credentials; scope does not identify them
}

// greet requests the greeting of the server. It does nothing if the capabilities are
// known, unless proof is wanted that the server answers.
func (n *remoteUpstream) greet(ctx context.Context, proof bool) error {
	if err := n.remote.Greet(ctx, proof); err != nil {
		return n.withAuthHint(err)
	}
	return nil
}

// withAuthHint adds to an authentication error that no credentials were sent, if that is so.
func (n *remoteUpstream) withAuthHint(err error) error {
	if errors.Is(err, wire.ErrAuth) && n.secretWithoutAuth != "" {
		return fmt.Errorf("%w; none were sent: secret %s has neither username and password nor bearerToken", err, n.secretWithoutAuth)
	}
	return err
}

func (n *remoteUpstream) Close() error {
	n.remote.Close()
	n.closeTransport()
	return nil
}

// A refList is an answer to ls-refs and the capabilities of the server. Callers share
// it and must not change it.
type refList struct {
	refs         []object.Ref
	capabilities string
}

// Weight returns the approximate size of the list in bytes.
func (l refList) Weight() int64 {
	total := int64(len(l.capabilities))
	for _, r := range l.refs {
		total += 128 + int64(len(r.Name)+len(r.Symref))
	}
	return total
}

// refs shares one answer among all callers that request the same refs with the same
// credentials. A shared request uses a [wire.Remote] of its own, because the caller
// that started it may return early.
func (n *remoteUpstream) refs(ctx context.Context, exact bool, names ...string) ([]object.Ref, error) {
	var list refList
	var err error
	if n.shareRefs {
		h := sha256.New()
		transport.HashInto(h, n.scope, n.httpConfig.Auth.Header(), strconv.FormatBool(exact))
		transport.HashInto(h, names...)
		remote := wire.New(n.transport, n.server.Capabilities)
		var answer any
		answer, err = n.env.Share.Do(ctx, "git refs "+string(h.Sum(nil)), n.env.Since, func(ctx context.Context) (any, error) {
			defer remote.Close()
			refs, err := remote.Refs(ctx, exact, names...)
			return refList{refs, remote.Capabilities()}, err
		})
		list, _ = answer.(refList)
		n.remote = wire.New(n.transport, list.capabilities)
	} else {
		list.refs, err = n.remote.Refs(ctx, exact, names...)
		list.capabilities = n.remote.Capabilities()
	}
	n.server = server{}
	if err != nil {
		return nil, n.withAuthHint(err)
	}
	if list.capabilities != "" {
		n.server = server{redact.URL(n.url), list.capabilities}
	}
	return list.refs, nil
}

func (n *remoteUpstream) history(ctx context.Context, tips []object.ID, depth int) (database, error) {
	if err := n.greet(ctx, false); err != nil {
		return nil, err
	}
	q := wire.FetchRequest{Wants: tips, Depth: depth}
	if !n.remote.Supports("shallow") {
		q.Depth = 0
	}
	if n.remote.Supports("filter") {
		q.Filter = "tree:0"
	}
	db, _, err := n.receive(ctx, q, packLimits(n.env.Limits, false), new(cachedBase))
	if err != nil {
		return nil, err
	}
	return db, nil
}

// fetchCommit returns a commit with all that it leads to. If a fetch fails and the base
// may be the cause, it fetches everything; if the cache may be the cause, it fetches
// without the cache.
func (n *remoteUpstream) fetchCommit(ctx context.Context, commit object.ID, via string, lean bool) (database, []string, error) {
	held := new(cachedBase)
	if n.env.Cache != nil {
		var err error
		if held, err = n.lock(ctx); err != nil {
			return nil, nil, err
		}
		defer held.close()
	}
	if pack := held.objects; pack != nil && (commit == held.commit || commit == held.wanted) {
		held.objects = nil
		return pack, nil, nil
	}
	var reasons []string
	if lean && held.objects == nil { // with a base, the difference is smaller than all trees
		p, err := n.fetchPartial(ctx, commit, via)
		if err == nil {
			return p, nil, nil
		}
		if !isPartialUnsupported(err) {
			return nil, nil, err
		}
		reasons = []string{wholeTreeNote("the server cannot leave files out")}
	}
	pack, notes, err := n.download(ctx, commit, via, held)
	if err != nil && held.mayHaveCaused(ctx, err) {
		held.dropObjects()
		pack, notes, err = n.download(ctx, commit, via, held)
	}
	if err != nil && held.isCacheWriteError(ctx, err) {
		pack, notes, err = n.download(ctx, commit, via, new(cachedBase))
	}
	if err != nil {
		return nil, nil, err
	}
	return pack, append(reasons, notes...), nil
}

// download fetches a commit with all that it leads to. The server does not send what
// is held: that is copied into the pack.
func (n *remoteUpstream) download(ctx context.Context, commit object.ID, via string, held *cachedBase) (pack *packfile.Pack, notes []string, err error) {
	if err := n.greet(ctx, false); err != nil {
		return nil, nil, err
	}
	direct := n.remote.WantsAny()
	if direct {
		pack, notes, err = n.fetchShallow(ctx, commit, held)
	}
	if !direct || via != "" && errors.Is(err, wire.ErrUnreachable) { // the server sends only what refs point to, and via leads to the commit
		pack, notes, err = n.fetchByRef(ctx, commit, via, held)
	}
	if err == nil && held.cache != nil {
		if err = held.complete(ctx, pack, commit); err != nil {
			pack.Close()
		}
	}
	return pack, notes, err
}

// fetchByRef fetches a commit by a ref that leads to it: via, or else any branch or tag.
func (n *remoteUpstream) fetchByRef(ctx context.Context, commit object.ID, via string, held *cachedBase) (*packfile.Pack, []string, error) {
	exact, names := true, []string{via}
	if via == "" {
		exact, names = false, []string{"refs/heads/", "refs/tags/"}
	}
	tips, err := n.refs(ctx, exact, names...)
	if err != nil {
		return nil, nil, err
	}
	if tip := slices.IndexFunc(tips, func(t object.Ref) bool { return t.ID == commit || t.Commit() == commit }); tip >= 0 {
		return n.fetchShallow(ctx, tips[tip].ID, held) // a tag is requested by its own id
	}
	return n.deepen(ctx, tips, commit, held)
}

// fetchShallow fetches a commit, or a tag and its commit, without the history before it.
func (n *remoteUpstream) fetchShallow(ctx context.Context, id object.ID, held *cachedBase) (*packfile.Pack, []string, error) {
	q := wire.FetchRequest{Wants: []object.ID{id}, Depth: 1}
	var notes []string
	if held.objects != nil && held.commit.Format() == n.remote.Format() {
		q.Haves = []object.ID{held.commit}
		q.Shallow = q.Haves
	}
	if !n.remote.Supports("shallow") { // content tries again if the server leaves out old objects that we lack
		q.Depth, q.Shallow = 0, nil
		notes = []string{"the server has no shallow fetches: the whole history was transferred"}
	}
	pack, _, err := n.receive(ctx, q, packLimits(n.env.Limits, q.Depth == 1), held)
	return pack, notes, err
}

// deepen fetches the tips with more and more history until that holds commit or ends.
func (n *remoteUpstream) deepen(ctx context.Context, tips []object.Ref, commit object.ID, held *cachedBase) (*packfile.Pack, []string, error) {
	wants := make([]object.ID, len(tips))
	for i, t := range tips {
		wants[i] = t.ID
	}
	depth := 8
	if !n.remote.Supports("shallow") {
		depth = 0
	}
	for more := len(tips) > 0; more; depth = nextDepth(depth) {
		pack, shallow, err := n.receive(ctx, wire.FetchRequest{Wants: wants, Depth: depth}, packLimits(n.env.Limits, false), held)
		if err != nil {
			return nil, nil, err
		}
		if _, err := object.ReadCommit(pack, commit); err == nil {
			amount := "the whole history was"
			if depth > 0 {
				amount = fmt.Sprintf("%d commits of history were", depth)
			}
			return pack, []string{fmt.Sprintf("the server sends only what refs point to: %s transferred to reach %s", amount, commit)}, nil
		}
		pack.Close()
		more = shallow && depth > 0
	}
	return nil, nil, notFound(fmt.Sprintf("commit %s is in the history of no branch or tag that the server offers", commit))
}

// receive reads one pack into a spool. shallow reports whether the history continues
// behind it.
func (n *remoteUpstream) receive(ctx context.Context, q wire.FetchRequest, limits packfile.Limits, held *cachedBase) (_ *packfile.Pack, shallow bool, err error) {
	if q.MaxBytes = limits.PackBytes; q.MaxBytes < 0 {
		q.MaxBytes = math.MaxInt64
	}
	answer, err := n.remote.Fetch(ctx, q)
	if err != nil {
		n.remote.Close()
		return nil, false, n.withAuthHint(err)
	}
	defer answer.Close()
	o := packfile.Options{Temp: n.env.Limits.Temp, Format: answer.Format, Limits: limits}
	if held.cache != nil {
		o.Temp = held.temp
	}
	if held.objects != nil {
		o.External = held.objects
	}
	if n.env.Progress != nil {
		o.Progress = func(done, total int) {
			n.env.Progress(source.Progress{Object: n.objectName, Phase: "receiving objects", Done: int64(done), Total: int64(total), Unit: "objects"})
		}
	}
	pack, err := packfile.Read(ctx, answer, o)
	return pack, len(answer.Shallow) > 0, err
}

// fetchLFS implements upstream. A server without git-lfs-authenticate may still serve
// objects without credentials.
func (n *remoteUpstream) fetchLFS(ctx context.Context, configured string, objects []lfs.Object, spool *lfs.Spool) error {
	bare := n.httpConfig
	bare.Auth = transport.Auth{}
	var ungranted error
	c := &lfs.Client{HTTP: transport.Client(n.httpConfig), Bare: transport.Client(bare), Cache: n.env.Cache, Scope: n.scope}
	c.Endpoint = func(ctx context.Context) (lfs.Endpoint, error) {
		if n.url.Scheme != "ssh" || configured != "" {
			return lfs.Discover(n.url, configured)
		}
		answer, err := wire.LFSGrant(ctx, n.transport)
		if errors.Is(err, wire.ErrUnsupported) {
			ungranted = err
			return lfs.Discover(n.url, "")
		}
		if err != nil {
			return lfs.Endpoint{}, err
		}
		return lfs.Granted(n.url, answer, time.Now())
	}
	err := c.Fetch(ctx, objects, spool)
	if err != nil && ungranted != nil {
		err = fmt.Errorf("%w (no credentials were sent there, because the server has none for it: %w)", err, ungranted)
	}
	return err
}
