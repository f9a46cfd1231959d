package git

import (
	"context"
	"io"
	"strings"

	"github.com/headgate-io/headgate/git/internal/lfs"
	"github.com/headgate-io/headgate/git/internal/object"
)

// An upstream is a repository, wherever it lives.
type upstream interface {
	// refs returns the refs called names, or when exact is false those whose
	// names begin so.
	refs(ctx context.Context, exact bool, names ...string) ([]ref, error)
	// history returns the commits of tips down to depth (1 is the tips alone,
	// 0 everything), and as little else as the repository can manage.
	history(ctx context.Context, tips []object.ID, depth int) (database, error)
	// content returns commit, or a tag with the commit it leads to, and its
	// whole tree, or when lean without the blobs, as far as that saves anything:
	// then the database is a partialDatabase. The branch or tag it was found by, if any,
	// helps with servers that send only what a ref leads to.
	content(ctx context.Context, commit object.ID, via string, lean bool) (database, []string, error)
	// objects returns the LFS objects of the repository, and takes over the
	// upstream. configured is lfs.url in its .lfsconfig, or "".
	objects(configured string) lfs.Source
	Close() error
}

// A database is closed when its objects are no longer needed.
type database interface {
	object.Database
	io.Closer
}

// A partialDatabase lacks blobs, which it can fetch while its upstream is open.
type partialDatabase interface {
	database
	// obtain fetches those of the blobs that are not there yet, all at once, or
	// in their place everything: where they are most of the tree's files, whose
	// number is of (0: not known), and where the upstream does not send single
	// blobs. The note tells of that.
	obtain(ctx context.Context, blobs []object.ID, of int64) (note string, err error)
}

// A ref is a name in a repository and what it leads to.
type ref struct {
	Name   string
	ID     object.ID
	Peeled object.ID // what an annotated tag leads to
	Symref string
}

// commit returns what the ref leads to once an annotated tag is peeled.
func (r ref) commit() object.ID {
	if r.Peeled.IsZero() {
		return r.ID
	}
	return r.Peeled
}

func (r ref) tag() string { return strings.TrimPrefix(r.Name, "refs/tags/") }
