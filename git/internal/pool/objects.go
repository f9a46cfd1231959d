package pool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
)

// Objects is the union of some layers. It implements [object.Database]. Nil is
// the union of none.
type Objects struct{ packs []*packfile.Pack }

// with returns the union of o, which it takes over, and pack.
func (o *Objects) with(pack *packfile.Pack) *Objects {
	if o == nil {
		return &Objects{[]*packfile.Pack{pack}}
	}
	return &Objects{append(o.packs[:len(o.packs):len(o.packs)], pack)}
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
