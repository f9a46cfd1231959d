package serve

import (
	"context"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// stock is the [source.Sources] of a controller: objects as they were after
// their last run.
type stock struct {
	*Controller
	files *source.Inventory // opens artifacts
}

// Source implements [source.Sources].
func (s *stock) Source(_ context.Context, ref source.Reference) (source.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj := s.object(ref); obj != nil {
		return obj, nil
	}
	return nil, errNoObject
}

// List implements [source.Sources].
func (s *stock) List(_ context.Context, kind, namespace string) ([]source.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := source.Reference{Kind: kind, Namespace: namespace}
	i, _ := slices.BinarySearchFunc(s.sorted, from, func(e *entry, ref source.Reference) int { return compare(e.ref, ref) })
	var found []source.Object
	for ; i < len(s.sorted) && s.sorted[i].ref.Kind == kind && s.sorted[i].ref.Namespace == namespace; i++ {
		if e := s.sorted[i]; e.removed == nil {
			found = append(found, e.obj)
		}
	}
	return found, nil
}

// Open implements [source.Sources].
func (s *stock) Open(ctx context.Context, a artifact.Artifact) (io.ReadCloser, error) {
	return s.files.Open(ctx, a)
}

// object returns the object of that name, nil when there is none.
func (c *Controller) object(ref source.Reference) source.Object {
	if e := c.entries[ref]; e != nil && e.removed == nil {
		return e.obj
	}
	return nil
}

// compare orders references by kind, namespace and name.
func compare(a, b source.Reference) int {
	if n := strings.Compare(a.Kind, b.Kind); n != 0 {
		return n
	}
	if n := strings.Compare(a.Namespace, b.Namespace); n != 0 {
		return n
	}
	return strings.Compare(a.Name, b.Name)
}

// errNoObject is fs.ErrNotExist in other words.
var errNoObject = noObject{}

type noObject struct{}

func (noObject) Error() string        { return "no such object" }
func (noObject) Is(target error) bool { return target == fs.ErrNotExist }

// without returns a copy of list that lacks x.
func without(list []*entry, x *entry) []*entry {
	return slices.DeleteFunc(slices.Clone(list), func(e *entry) bool { return e == x })
}
