package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/headgate-io/headgate/artifact"
)

// Dir returns an origin that reads the content of obj from a local directory instead of its real
// origin. obj may be of any kind whose artifact is a tree.
//
// Its revision is local@sha256:HEX, the digest of the artifact's tar stream, so Resolve reads the
// whole directory. With view.Mount, it is the digest of everything that view.Select returns,
// ignored or not: mounted ignore files may apply to the directory's own files, but mounted content
// is not part of the revision.
//
// Links are never followed out of the directory, and are left out of the artifact. A directory has
// no signature, so a spec that asks for verification fails. Errors name the directory. It is an
// error if the directory changes between Resolve and the end of WriteTo.
func Dir(obj Object, directory string, view DirView) Origin {
	return &dirOrigin{obj, directory, view}
}

// A DirView selects the content of the artifact of a directory.
type DirView struct {
	Ignore artifact.Ignore
	// Select returns the part of the directory to use; nil: all of it.
	Select func(ctx context.Context, tree fs.FS) (fs.FS, error)
	// Mount adds the content of inputs, the Inputs of the [Revision], before ignore rules apply;
	// nil: nothing is added. The returned Closer is closed with the content.
	Mount func(ctx context.Context, tree fs.FS, inputs []artifact.Artifact) (fs.FS, io.Closer, error)
}

type dirOrigin struct {
	obj  Object
	name string
	view DirView
}

// Resolve implements [Origin].
func (o *dirOrigin) Resolve(ctx context.Context, _ State) (Revision, State, error) {
	root, tree, err := o.open(ctx)
	if err != nil {
		return Revision{}, nil, err
	}
	defer root.Close()
	sum, err := o.digest(ctx, tree)
	if err != nil {
		return Revision{}, nil, o.failure(err)
	}
	return Revision{ID: localRevision + sum, File: sum + ".tar.gz"}, nil, nil
}

const localRevision = "local@sha256:"

// digest returns the hexadecimal digest for the revision of tree.
func (o *dirOrigin) digest(ctx context.Context, tree fs.FS) (string, error) {
	if o.view.Mount == nil {
		rules, err := o.view.Ignore.Compile(ctx, tree)
		if err != nil {
			return "", err
		}
		tree = rules.View(ctx, tree)
	}
	digest := sha256.New()
	_, err := artifact.Tar(ctx, digest, tree)
	return hex.EncodeToString(digest.Sum(nil)), err
}

// Open implements [Origin].
func (o *dirOrigin) Open(ctx context.Context, rev Revision) (Content, error) {
	root, dirTree, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	c := &dirContent{dirOrigin: o, rev: rev, dirTree: dirTree, tree: dirTree, closers: []io.Closer{root}}
	if o.view.Mount != nil {
		var mounted io.Closer
		if c.tree, mounted, err = o.view.Mount(ctx, dirTree, rev.Inputs); err == nil {
			c.closers = append(c.closers, mounted)
		}
	}
	if err == nil {
		c.rules, err = o.view.Ignore.Compile(ctx, c.tree)
	}
	if err != nil {
		return nil, errors.Join(o.failure(err), c.Close())
	}
	return c, nil
}

func (o *dirOrigin) open(ctx context.Context) (*os.Root, fs.FS, error) {
	root, err := os.OpenRoot(o.name)
	if err != nil {
		return nil, nil, o.failure(err)
	}
	if o.view.Select == nil {
		return root, root.FS(), nil
	}
	tree, err := o.view.Select(ctx, root.FS())
	if err != nil {
		return nil, nil, errors.Join(o.failure(err), root.Close())
	}
	return root, tree, nil
}

func (o *dirOrigin) failure(err error) error {
	return fmt.Errorf("local directory %s: %w", o.name, err)
}

// dirContent is the content of a directory that Resolve has read once.
type dirContent struct {
	*dirOrigin
	rev     Revision
	dirTree fs.FS // the directory
	tree    fs.FS // the directory with mounted content
	rules   *artifact.Rules
	closers []io.Closer
}

// Verify implements [Content].
func (c *dirContent) Verify(context.Context) (Verification, error) {
	if mode := c.obj.Plan().Verify; mode != "" {
		return Verification{}, c.failure(fmt.Errorf("it has no signature, but spec.verify asks for %s: %w", mode, ErrVerification))
	}
	return Verification{}, nil
}

// WriteTo implements [Content]. At the end it reads the directory again, to check that it has not
// changed since Resolve.
func (c *dirContent) WriteTo(ctx context.Context, w io.Writer) (Report, error) {
	report, err := artifact.Pack(ctx, w, c.rules.View(ctx, c.tree))
	if err != nil {
		return Report{}, c.failure(err)
	}
	sum, err := c.digest(ctx, c.dirTree)
	if err == nil && localRevision+sum != c.rev.ID {
		err = &StepError{Step: StepFetch, Err: errors.New("it changed while it was read, try again")}
	}
	if err != nil {
		return Report{}, c.failure(err)
	}
	return Report{Report: report, Message: fmt.Sprintf("stored artifact for local directory '%s'", c.name), Emptied: c.rules.Emptied(report)}, nil
}

// Explain implements [Explainer].
func (c *dirContent) Explain(context.Context) (fs.FS, *artifact.Rules, error) {
	return c.tree, c.rules, nil
}

// Close implements [Content].
func (c *dirContent) Close() error {
	var err error
	for _, h := range c.closers {
		err = errors.Join(err, h.Close())
	}
	return err
}
