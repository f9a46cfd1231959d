package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/source"
)

// inputs returns the artifacts that spec.include names, in its order.
func (o *Origin) inputs(ctx context.Context) ([]artifact.Artifact, error) {
	for i := range o.repo.Spec.Include {
		if _, _, err := o.paths(i); err != nil {
			return nil, err
		}
	}
	needed, err := source.Needed(ctx, o.repo, o.env.Sources)
	switch {
	case errors.Is(err, source.ErrInvalid):
		return nil, inputError("IncludeCycle", err)
	case errors.Is(err, source.ErrWaiting):
		return nil, inputError("NotFound", err)
	case err != nil:
		return nil, fmt.Errorf("spec.include: %w", err)
	}
	var inputs []artifact.Artifact
	for _, obj := range needed {
		a := obj.Artifact()
		if a == nil {
			return nil, inputError("NoArtifact", source.NoArtifact(obj))
		}
		inputs = append(inputs, *a)
	}
	return inputs, nil
}

func inputError(reason string, err error) error {
	return &source.StepError{Step: source.StepInclude, Reason: reason, Err: fmt.Errorf("spec.include: %w", err)}
}

// paths returns the source and the target directory of include i.
func (o *Origin) paths(i int) (from, to string, err error) {
	from, to, err = o.repo.Spec.Include[i].Paths()
	if err == nil && to != "." && object.CheckPath(to) != nil {
		err = fmt.Errorf("toPath must not hold a name that a file system could take for .git")
	}
	if err != nil {
		return "", "", &source.StepError{Step: source.StepStore, Reason: "IllegalPath",
			Err: specError(fmt.Errorf("spec.include[%d]: %w", i, err))}
	}
	return from, to, nil
}

// include mounts the artifacts of c.rev.Inputs.
func (c *content) include(ctx context.Context) error {
	tree, opened, err := c.origin.mount(ctx, c.ownTree, c.rev.Inputs)
	if err == nil {
		c.fullTree, c.closers = tree, append(c.closers, opened)
	}
	return err
}

// mount returns tree with the artifacts that spec.include names mounted over it.
// Closing the Closer closes these artifacts.
func (o *Origin) mount(ctx context.Context, tree fs.FS, inputs []artifact.Artifact) (fs.FS, io.Closer, error) {
	includes := o.repo.Spec.Include
	if len(inputs) != len(includes) {
		return nil, nil, fmt.Errorf("the revision has %d inputs, spec.include names %d: resolve it again", len(inputs), len(includes))
	}
	m := &mounts{env: o.env, trees: map[string]*artifact.Tree{}}
	for i, a := range inputs {
		from, to, err := o.paths(i)
		if err == nil {
			tree, err = m.add(ctx, tree, a, from, to)
		}
		if err != nil {
			return nil, nil, errors.Join(mountError(i, o.repo, err), m.Close())
		}
	}
	return tree, m, nil
}

// mountError adds the name of include i and a condition reason to its error.
func mountError(i int, repo *source.GitRepository, err error) error {
	if wraps[*source.StepError](err) {
		return err
	}
	step := &source.StepError{Step: source.StepStore, Reason: "CopyFailure"}
	if errors.Is(err, source.ErrWaiting) {
		step = &source.StepError{Step: source.StepInclude, Reason: "NoArtifact"}
	}
	step.Err = fmt.Errorf("spec.include[%d]: %s: %w", i, repo.Plan().Needs[i], err)
	return step
}

// A mounts opens each included artifact once. The limits apply to all artifacts that
// are opened, and to everything that is mounted; what is mounted twice counts twice.
type mounts struct {
	env             source.Env
	trees           map[string]*artifact.Tree // by digest
	opened, mounted object.Totals
}

// Close closes the artifacts.
func (m *mounts) Close() error {
	var err error
	for _, tree := range m.trees {
		err = errors.Join(err, tree.Close())
	}
	return err
}

// add mounts the directory from of the artifact a at the directory to of tree.
func (m *mounts) add(ctx context.Context, tree fs.FS, a artifact.Artifact, from, to string) (fs.FS, error) {
	archive, err := m.open(ctx, a)
	if err != nil {
		return nil, err
	}
	info, err := fs.Stat(archive, from)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("fromPath %q does not exist in revision %s", from, a.Revision)
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("fromPath %q is a file in revision %s: name the directory that holds it", from, a.Revision)
	}
	sub, err := fs.Sub(archive, from)
	if err != nil {
		return nil, err
	}
	merged := artifact.Mount(tree, to, sub)
	return merged, m.checkMounted(ctx, merged, sub, to)
}

// open returns the tree of an artifact.
func (m *mounts) open(ctx context.Context, a artifact.Artifact) (*artifact.Tree, error) {
	if tree := m.trees[a.Digest]; tree != nil {
		return tree, nil
	}
	l := m.env.Limits
	tree, err := source.OpenArchive(ctx, m.env.Sources, a, artifact.Limits{
		Bytes: cmp.Or(l.Bytes, maxBytes), FileBytes: cmp.Or(l.FileBytes, maxFileBytes), Entries: cmp.Or(l.Entries, maxEntries),
		NameBytes: l.NameBytes, Ratio: l.Ratio, Temp: l.Temp,
	})
	if errors.Is(err, artifact.ErrFormat) {
		return nil, fmt.Errorf("%w: only sources whose artifact is an archive of files can be included", err)
	}
	if err != nil {
		return nil, err
	}
	m.trees[a.Digest] = tree
	report := tree.Report()
	m.opened.Entries += int64(report.Files + report.Dirs)
	m.opened.Bytes += report.Bytes
	return tree, m.checkLimits(m.opened)
}

// checkMounted walks sub, which is mounted at the directory to. It returns an error now if a
// directory of one tree is a file in the other, and counts entries and bytes against
// the limits.
func (m *mounts) checkMounted(ctx context.Context, merged, sub fs.FS, to string) error {
	return fs.WalkDir(sub, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case d.IsDir():
			if _, err := fs.ReadDir(merged, path.Join(to, name)); err != nil {
				return err
			}
		default:
			info, err := d.Info()
			if err != nil {
				return err
			}
			m.mounted.Bytes += info.Size()
		}
		m.mounted.Entries++
		return m.checkLimits(m.mounted)
	})
}

// checkLimits returns an error when sum is more than the limits.
func (m *mounts) checkLimits(sum object.Totals) error {
	l := m.env.Limits
	for _, x := range []struct {
		what     string
		n, limit int64
	}{
		{"entries", sum.Entries, cmp.Or(int64(l.Entries), maxEntries)},
		{"bytes", sum.Bytes, cmp.Or(l.Bytes, maxBytes)},
	} {
		if x.limit > 0 && x.n > x.limit {
			return fmt.Errorf("all includes together hold more than %d %s: raise the limit if that is right", x.limit, x.what)
		}
	}
	return nil
}
