package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
)

// Objects is the union of some layers. It implements [object.Database], and is
// safe for concurrent use but for Measure. Nil is the union of none.
type Objects struct {
	packs []*packfile.Pack
	tree  object.ID     // that was measured
	total object.Totals // and what came of it
}

// Measure is [object.Measure] of a tree, once for the one that was fetched.
func (o *Objects) Measure(ctx context.Context, tree object.ID) (total object.Totals, err error) {
	if tree == o.tree {
		return o.total, nil
	}
	if total, err = object.Measure(ctx, o, tree); err == nil {
		o.tree, o.total = tree, total
	}
	return total, err
}

// with returns the union of o, which it takes over, and pack.
func (o *Objects) with(pack *packfile.Pack) *Objects {
	if o == nil {
		return &Objects{packs: []*packfile.Pack{pack}}
	}
	return &Objects{packs: append(o.packs[:len(o.packs):len(o.packs)], pack)}
}

func (o *Objects) format() object.Format { return o.packs[0].Format() }

// Spooled returns how many bytes the spools of what was fetched just now occupy.
func (o *Objects) Spooled() (total int64) {
	for _, p := range o.packs {
		total += p.Spooled()
	}
	return total
}

// Stat implements [object.Database].
func (o *Objects) Stat(id object.ID) (object.Type, int64, error) {
	for _, p := range o.packs {
		if t, size, err := p.Stat(id); !errors.Is(err, fs.ErrNotExist) {
			return t, size, err
		}
	}
	return 0, 0, absent(id)
}

// Open implements [object.Database].
func (o *Objects) Open(id object.ID) (object.Type, int64, io.ReadCloser, error) {
	for _, p := range o.packs {
		if t, size, content, err := p.Open(id); !errors.Is(err, fs.ErrNotExist) {
			return t, size, content, err
		}
	}
	return 0, 0, nil, absent(id)
}

func absent(id object.ID) error {
	return fmt.Errorf("object %v was not fetched: %w", id, fs.ErrNotExist)
}

// Close closes the layers.
func (o *Objects) Close() error {
	if o == nil {
		return nil
	}
	var errs []error
	for _, p := range o.packs {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}
