package source

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/headgate-io/headgate/artifact"
)

// An Inventory is the [Sources] of objects at hand. It hands out the objects
// themselves: who reconciles some of them at the same time keeps to [Order].
type Inventory struct {
	Objects []Object        // not to be changed once a method was called
	Store   *artifact.Store // of their artifacts; nil: there is none
	// Client fetches artifacts that Store does not have, those of
	// ExternalArtifacts, from their URL. Nil: none is fetched.
	Client *artifact.Client

	once  sync.Once
	index map[Reference]Object
}

// Source implements [Sources].
func (v *Inventory) Source(_ context.Context, ref Reference) (Object, error) {
	v.once.Do(func() {
		v.index = make(map[Reference]Object, len(v.Objects))
		for _, obj := range v.Objects {
			v.index[ReferenceTo(obj)] = obj
		}
	})
	obj, ok := v.index[ref]
	if !ok {
		return nil, errNoObject
	}
	return obj, nil
}

// List implements [Sources].
func (v *Inventory) List(_ context.Context, kind, namespace string) ([]Object, error) {
	var found []Object
	for _, obj := range v.Objects {
		if ref := ReferenceTo(obj); ref.Kind == kind && ref.Namespace == namespace {
			found = append(found, obj)
		}
	}
	slices.SortStableFunc(found, func(a, b Object) int {
		return strings.Compare(a.Head().Metadata.Name, b.Head().Metadata.Name)
	})
	return found, nil
}

// errNoObject is fs.ErrNotExist in other words.
var errNoObject = noObject{}

type noObject struct{}

func (noObject) Error() string        { return "no such object" }
func (noObject) Is(target error) bool { return target == fs.ErrNotExist }

// Open implements [Sources].
func (v *Inventory) Open(ctx context.Context, a artifact.Artifact) (io.ReadCloser, error) {
	err := fmt.Errorf("open artifact %q: %w: there is no store", a.Path, fs.ErrNotExist)
	if v.Store != nil {
		var content io.ReadCloser
		if content, err = v.Store.Open(a); err == nil {
			return content, nil
		}
	}
	if v.Client == nil || strings.HasPrefix(a.URL, "file:") && !v.Client.Local {
		return nil, err
	}
	return v.Client.Open(ctx, a)
}
