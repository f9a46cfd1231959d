package git

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
	"github.com/headgate-io/headgate/git/internal/pool"
	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
)

// A network is an upstream behind a URL.
type network struct {
	route
	url       *url.URL
	remote    *wire.Remote // nil until it is needed
	server    server       // what is known of it
	env       source.Env
	object    string     // KIND/NAMESPACE/NAME, for progress
	scope     string     // of what is cached: names the repository and the credentials
	keyless   string     // the Secret of the repository, when it holds no credentials for HTTP
	ungranted error      // why the server gave no credentials for LFS
	shares    bool       // refs may be what others were told
	pool      *pool.Pool // what earlier fetches brought; nil when nothing is kept
	lent      bool       // the credentials are a provider's: scope does not tell whose they are
}

// know says what is known of the server, if it is that of n.
func (n *network) know(s server) {
	if s.URL == redact.URL(n.url) {
		n.server = s
	}
}

// open returns the conversation, which it begins when there is none.
func (n *network) open(ctx context.Context) (*wire.Remote, error) {
	if n.remote != nil {
		return n.remote, nil
	}
	r, err := n.converse(ctx)
	n.remote = r
	return r, err
}

// converse begins a conversation, without a greeting where the server is known.
func (n *network) converse(ctx context.Context) (*wire.Remote, error) {
	if n.server.Capabilities != "" {
		return wire.Resume(ctx, n.transport, n.server.Capabilities)
	}
	r, err := wire.Open(ctx, n.transport)
	return r, n.hint(err)
}

// hint tells that no credentials were sent to a server that wants some.
func (n *network) hint(err error) error {
	if errors.Is(err, wire.ErrAuth) && n.keyless != "" {
		return fmt.Errorf("%w; none were sent: secret %s has neither username and password nor bearerToken", err, n.keyless)
	}
	return err
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
	if n.shares {
		return n.sharedRefs(ctx, exact, names)
	}
	r, err := n.open(ctx)
	if err != nil {
		return nil, err
	}
	refs, capabilities, err := listed(ctx, r, exact, names)
	n.learn(capabilities, err)
	return refs, n.hint(err)
}

// learn takes note of what an answer showed of the server.
func (n *network) learn(capabilities string, err error) {
	if n.server = (server{}); err == nil && capabilities != "" {
		n.server = server{redact.URL(n.url), capabilities}
	}
}

func (n *network) history(ctx context.Context, tips []object.ID, depth int) (database, error) {
	r, err := n.open(ctx)
	if err != nil {
		return nil, err
	}
	q := wire.FetchRequest{Wants: tips, Depth: depth}
	if !r.Supports("shallow") {
		q.Depth = 0
	}
	if r.Supports("filter") {
		q.Filter = "tree:0"
	}
	db, _, err := n.fetch(ctx, q, new(pool.Base))
	return db, err
}

func (n *network) content(ctx context.Context, commit object.ID, via string, lean bool) (database, []string, error) {
	base, err := n.base(ctx)
	if err != nil {
		return nil, nil, err
	}
	if !lean || base.Objects != nil { // then a difference is less than all trees
		defer base.Close()
		return n.wholeOn(ctx, base, commit, via)
	}
	base.Close()
	db, err := n.partial(ctx, commit, via)
	if !declined(err) {
		return db, nil, err
	}
	whole, notes, err := n.whole(ctx, commit, via)
	return whole, append([]string{wholeTree("the server cannot leave files out")}, notes...), err
}

// download fetches a commit with all that it leads to, less what base has.
func (n *network) download(ctx context.Context, commit object.ID, via string, base *pool.Base) (fetchResult, error) {
	r, err := n.open(ctx)
	if err != nil {
		return fetchResult{}, err
	}
	if r.WantsAny() {
		h, err := n.one(ctx, commit, base)
		if via == "" || !errors.Is(err, wire.ErrUnreachable) {
			return h, err
		} // else the server sends only what refs point to, and via leads to the commit
	}
	tips, err := n.tips(ctx, via)
	if err != nil {
		return fetchResult{}, err
	}
	if tip := slices.IndexFunc(tips, func(t ref) bool { return t.ID == commit || t.commit() == commit }); tip >= 0 {
		return n.one(ctx, tips[tip].ID, base) // a tag is wanted by its own id
	}
	return n.deepen(ctx, tips, commit, base)
}

// one fetches a commit, or a tag and its commit, without the history before it.
func (n *network) one(ctx context.Context, id object.ID, base *pool.Base) (fetchResult, error) {
	r, err := n.open(ctx)
	if err != nil {
		return fetchResult{}, err
	}
	q := wire.FetchRequest{Wants: []object.ID{id}, Depth: 1}
	var notes []string
	if !r.Supports("shallow") {
		q.Depth = 0
		notes = []string{"the server has no shallow fetches: the whole history was transferred"}
	}
	negotiate(&q, r, base)
	pack, _, err := n.fetch(ctx, q, base)
	return fetchResult{pack, q.Depth == 0, notes}, err
}

// tips returns what may be wanted from a server that sends only what refs
// point to: the ref called via, or all branches and tags.
func (n *network) tips(ctx context.Context, via string) ([]ref, error) {
	if via != "" {
		return n.refs(ctx, true, via)
	}
	return n.refs(ctx, false, "refs/heads/", "refs/tags/")
}

// deepen fetches the tips with more and more of their history until it holds
// commit or there is no more.
func (n *network) deepen(ctx context.Context, tips []ref, commit object.ID, base *pool.Base) (fetchResult, error) {
	r, err := n.open(ctx)
	if err != nil {
		return fetchResult{}, err
	}
	wants := make([]object.ID, len(tips))
	for i, t := range tips {
		wants[i] = t.ID
	}
	depth := 8
	if !r.Supports("shallow") {
		depth = 0
	}
	for more := len(tips) > 0; more; depth = deeper(depth) {
		pack, cut, err := n.fetch(ctx, wire.FetchRequest{Wants: wants, Depth: depth}, base)
		if err != nil {
			return fetchResult{}, err
		}
		if _, err := object.ReadCommit(pack, commit); err == nil {
			return fetchResult{pack, depth == 0, []string{deepened(depth, commit)}}, nil
		}
		pack.Close()
		more = cut && depth > 0
	}
	return fetchResult{}, fmt.Errorf("commit %s is in the history of no branch or tag that the server offers", commit)
}

// deepened tells what it cost to reach commit.
func deepened(depth int, commit object.ID) string {
	amount := "the whole history was"
	if depth > 0 {
		amount = fmt.Sprintf("%d commits of history were", depth)
	}
	return fmt.Sprintf("the server sends only what refs point to: %s transferred to reach %s", amount, commit)
}

// fetch spools one pack. cut tells that history goes on behind it.
func (n *network) fetch(ctx context.Context, q wire.FetchRequest, base *pool.Base) (pack *packfile.Pack, cut bool, err error) {
	return n.receive(ctx, q, packLimits(n.env.Limits, q.Depth == 1 && q.Filter == ""), base)
}

// receive is fetch with limits of its own.
func (n *network) receive(ctx context.Context, q wire.FetchRequest, limits packfile.Limits, base *pool.Base) (pack *packfile.Pack, cut bool, err error) {
	r, err := n.open(ctx)
	if err != nil {
		return nil, false, err
	}
	if q.MaxBytes = limits.PackBytes; q.MaxBytes < 0 {
		q.MaxBytes = math.MaxInt64
	}
	answer, err := r.Fetch(ctx, q)
	if err != nil {
		n.hangUp()
		return nil, false, n.hint(err)
	}
	defer func() {
		answer.Close()
		if err != nil || r.Version() < 2 { // which send one pack a conversation
			n.hangUp()
		}
	}()
	o := packfile.Options{Temp: base.Temp(), Format: formatOf(r), Limits: limits, Progress: n.progress()}
	if o.Temp == nil {
		o.Temp = n.env.Limits.Temp
	}
	if base.Objects != nil {
		o.External = base.Objects
	}
	pack, err = packfile.Read(ctx, answer.Pack, o)
	if err != nil {
		return nil, false, err
	}
	return pack, len(answer.Shallow) > 0, nil
}

func (n *network) progress() func(done, total int, bytes int64) {
	if n.env.Progress == nil {
		return nil
	}
	return func(done, total int, _ int64) {
		n.env.Progress(source.Progress{Object: n.object, Phase: "receiving objects", Done: int64(done), Total: int64(total), Unit: "objects"})
	}
}
