package git

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/git/internal/lfs"
	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/transport"
)

// objects implements upstream.
func (s *standin) objects(string) lfs.Source {
	return localObjects{lfs.Folder{Repository: s.path, Dir: s.repo.LFS()}, s}
}

type localObjects struct {
	lfs.Folder
	of *standin
}

func (l localObjects) Close() error { return l.of.Close() }

// objects implements upstream.
func (n *network) objects(configured string) lfs.Source {
	web := n.web
	bare := web
	bare.Auth = transport.Auth{}
	c := &lfs.Client{HTTP: transport.Client(web), Bare: transport.Client(bare), Cache: n.env.Cache, Scope: n.scope}
	c.Endpoint = func(ctx context.Context) (lfs.Endpoint, error) { return n.endpoint(ctx, configured) }
	return remoteObjects{c, n}
}

type remoteObjects struct {
	*lfs.Client
	of *network
}

func (r remoteObjects) Fetch(ctx context.Context, objects []lfs.Object, spool *lfs.Spool) error {
	err := r.Client.Fetch(ctx, objects, spool)
	if err != nil && r.of.ungranted != nil {
		err = fmt.Errorf("%w (no credentials were sent there, because the server has none for it: %w)", err, r.of.ungranted)
	}
	return err
}

func (r remoteObjects) Close() error { return errors.Join(r.Client.Close(), r.of.Close()) }

// endpoint finds where LFS objects are asked for. A server that has no
// git-lfs-authenticate may still have objects for everybody.
func (n *network) endpoint(ctx context.Context, configured string) (lfs.Endpoint, error) {
	if n.url.Scheme != "ssh" || configured != "" {
		return lfs.Discover(n.url, configured)
	}
	answer, err := wire.LFSGrant(ctx, n.transport)
	if errors.Is(err, wire.ErrUnsupported) {
		n.ungranted = err
		return lfs.Discover(n.url, "")
	}
	if err != nil {
		return lfs.Endpoint{}, err
	}
	return lfs.Granted(n.url, answer, time.Now())
}
