package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/headgate-io/headgate/artifact"
)

// maxNeeds bounds the number of objects that one object may need, directly or indirectly.
const maxNeeds = 1000

// ReferenceTo returns the reference with which other objects refer to obj.
func ReferenceTo(obj Object) Reference {
	head := obj.Head()
	name := head.Kind
	if k := objectKind(obj); k != nil {
		name = k.name
	}
	return Reference{name, head.Metadata.namespace(), head.Metadata.Name}
}

// checkCircle returns an error if obj needs itself, directly or indirectly. The error names the
// shortest such path in the spelling of obj. It reads only [Plan], so that any of the objects may
// be under reconciliation. An object that does not exist needs nothing.
func checkCircle(ctx context.Context, obj Object, from Sources) error {
	start := ReferenceTo(obj)
	cameFrom := map[Reference]Reference{}
	for queue := []Reference{start}; len(queue) > 0; queue = queue[1:] {
		at, next := queue[0], obj
		if at != start {
			var err error
			if next, err = from.Source(ctx, at); errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return fmt.Errorf("look up %s: %w", at, err)
			}
		}
		for _, need := range next.Plan().Needs {
			if need == start {
				path := obj.Head().Spell(start)
				for ; at != start; at = cameFrom[at] {
					path = obj.Head().Spell(at) + " → " + path
				}
				return fmt.Errorf("%w: the source is made of itself, remove one of these references: %s → %s", ErrInvalid, obj.Head().Spell(start), path)
			}
			if _, seen := cameFrom[need]; seen {
				continue
			}
			if cameFrom[need] = at; len(cameFrom) > maxNeeds {
				return fmt.Errorf("%w: %s needs more than %d other sources, directly or not", ErrInvalid, obj.Head(), maxNeeds)
			}
			queue = append(queue, need)
		}
	}
	return nil
}

// Needed returns the objects that obj needs directly, in the order of its [Plan]. A nil from has no
// objects.
//
// The error wraps [ErrInvalid] if obj can never be made: it needs itself, directly or indirectly,
// and the error names the shortest path; or it needs more than 1000 others. The error wraps
// [ErrWaiting] and fs.ErrNotExist if an object that obj needs directly does not exist.
func Needed(ctx context.Context, obj Object, from Sources) ([]Object, error) {
	refs := obj.Plan().Needs
	if len(refs) == 0 {
		return nil, nil
	}
	if len(refs) > maxNeeds {
		return nil, fmt.Errorf("%w: %d other sources are needed, more than the limit of %d", ErrInvalid, len(refs), maxNeeds)
	}
	if from == nil {
		from = &Inventory{}
	}
	if err := checkCircle(ctx, obj, from); err != nil {
		return nil, err
	}
	needed := make([]Object, len(refs))
	for i, ref := range refs {
		var err error
		needed[i], err = from.Source(ctx, ref)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s: %w", ErrWaiting, obj.Head().Spell(ref), err)
		}
		if err != nil {
			return nil, fmt.Errorf("look up %s: %w", obj.Head().Spell(ref), err)
		}
	}
	return needed, nil
}

// NoArtifact returns the error for objects made from obj while obj has no artifact. It wraps
// [ErrWaiting].
func NoArtifact(obj Object) error {
	suspended := ""
	if obj.Plan().Suspend {
		suspended = ", and is suspended"
	}
	return fmt.Errorf("%w: %s has no artifact yet%s", ErrWaiting, obj.Head(), suspended)
}

// WithNeeds returns objects, followed by the existing objects that they need, directly or
// indirectly: everything to bring up to date for them. It omits the needs of a suspended object,
// which is not changed. Errors are those of from.
func WithNeeds(ctx context.Context, objects []Object, from Sources) ([]Object, error) {
	all := slices.Clone(objects)
	seen := map[Reference]bool{}
	for _, obj := range objects {
		seen[ReferenceTo(obj)] = true
	}
	for i := 0; i < len(all); i++ {
		plan := all[i].Plan()
		if plan.Suspend {
			continue
		}
		for _, ref := range plan.Needs {
			if seen[ref] {
				continue
			}
			seen[ref] = true
			obj, err := from.Source(ctx, ref)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("look up %s: %w", ref, err)
			}
			all = append(all, obj)
		}
	}
	return all, nil
}

// Order returns the order in which objects can be brought up to date: element i lists the indices
// of the objects that must be done before objects[i]. If objects need each other in a circle, one
// of these dependencies is left out, so that no object waits forever for others in the list.
func Order(objects []Object) [][]int {
	index := make(map[Reference]int, len(objects))
	for i, obj := range objects {
		index[ReferenceTo(obj)] = i
	}
	before := make([][]int, len(objects))
	open, done := make([]bool, len(objects)), make([]bool, len(objects))
	var visit func(i int)
	visit = func(i int) {
		open[i] = true
		for _, ref := range objects[i].Plan().Needs {
			need, known := index[ref]
			if !known || open[need] || slices.Contains(before[i], need) {
				continue
			}
			before[i] = append(before[i], need)
			if !done[need] {
				visit(need)
			}
		}
		open[i], done[i] = false, true
	}
	for i := range objects {
		if !done[i] {
			visit(i)
		}
	}
	return before
}

// An Inventory implements [Sources] with a list of objects. It returns the objects themselves: a
// caller that reconciles some of them concurrently must respect [Order].
type Inventory struct {
	Objects []Object        // must not change after a method was called
	Store   *artifact.Store // of their artifacts; nil if there is none
	// Client fetches artifacts that Store does not have, those of ExternalArtifacts, from their
	// URL. Nil: they are not fetched.
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
		return nil, ErrNoObject
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

// ErrNoObject is the error for an object that does not exist. It matches [fs.ErrNotExist].
var ErrNoObject error = noObject{}

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
	if v.Client == nil || strings.HasPrefix(a.URL, "file:") || v.Store != nil && a.URL == v.Store.URL(a.Path) {
		return nil, err
	}
	return v.Client.Open(ctx, a)
}

// OpenArchive opens an artifact of another source, which must be an archive of files, as
// [artifact.Read] does. The caller must close it.
//
// The error wraps [ErrWaiting] if the artifact is not where its source says it is, and
// artifact.ErrFormat if it is not an archive.
func OpenArchive(ctx context.Context, from Sources, a artifact.Artifact, l artifact.Limits) (*artifact.Tree, error) {
	r, err := OpenArtifact(ctx, from, a)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return artifact.Read(r, l)
}

// OpenArtifact opens an artifact of another source. The reader checks the content against the
// digest. Reads fail after ctx ends. The caller must close the reader.
//
// The error wraps [ErrWaiting] if the artifact is not where its source says it is.
func OpenArtifact(ctx context.Context, from Sources, a artifact.Artifact) (io.ReadCloser, error) {
	switch {
	case a.Digest == "":
		return nil, errors.New("its artifact has no digest, so that its content cannot be checked")
	case from == nil:
		return nil, fmt.Errorf("%w: the artifact is gone", ErrWaiting)
	}
	r, err := from.Open(ctx, a)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the artifact is gone: %w", ErrWaiting, err)
	}
	if err != nil {
		return nil, err
	}
	return interruptible{ctx, r}, nil
}

// An interruptible reader fails after its context ends.
type interruptible struct {
	ctx context.Context
	io.ReadCloser
}

func (r interruptible) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.ReadCloser.Read(p)
}
