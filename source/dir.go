package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"

	"github.com/headgate-io/headgate/artifact"
)

// Dir returns an origin that takes the content of obj, of any kind whose
// artifact is a tree, from a local directory in place of its real origin.
//
// Its revision is local@sha256:HEX, the digest of the artifact's tar stream, so
// that Resolve reads the whole directory. Links are never followed out of the
// directory, and are left out of the artifact. A directory has no signature: a
// spec that asks for verification fails. Errors name the directory; a directory
// that changes between Resolve and the end of WriteTo is one.
func Dir(obj Object, directory string, ignore artifact.Ignore) Origin {
	return &dirOrigin{obj, directory, ignore}
}

type dirOrigin struct {
	obj    Object
	name   string
	ignore artifact.Ignore
}

// Resolve implements [Origin].
func (o *dirOrigin) Resolve(ctx context.Context, _ State) (Revision, State, error) {
	root, err := o.open()
	if err != nil {
		return Revision{}, nil, err
	}
	defer root.Close()
	rules, err := o.ignore.Compile(root.FS())
	if err != nil {
		return Revision{}, nil, o.failure(err)
	}
	digest := sha256.New()
	if _, err := artifact.Tar(ctx, digest, rules.View(root.FS())); err != nil {
		return Revision{}, nil, o.failure(err)
	}
	sum := hex.EncodeToString(digest.Sum(nil))
	return Revision{ID: localRevision + sum, File: sum + ".tar.gz"}, nil, nil
}

const localRevision = "local@sha256:"

// Open implements [Origin].
func (o *dirOrigin) Open(_ context.Context, rev Revision) (Content, error) {
	root, err := o.open()
	if err != nil {
		return nil, err
	}
	return &dirContent{o, root, rev}, nil
}

func (o *dirOrigin) open() (*os.Root, error) {
	root, err := os.OpenRoot(o.name)
	if err != nil {
		return nil, o.failure(err)
	}
	return root, nil
}

func (o *dirOrigin) failure(err error) error {
	return fmt.Errorf("local directory %s: %w", o.name, err)
}

// dirContent is a directory that Resolve has read once.
type dirContent struct {
	*dirOrigin
	root *os.Root
	rev  Revision
}

// Verify implements [Content].
func (c *dirContent) Verify(context.Context) (Verification, error) {
	if mode := c.obj.Plan().Verify; mode != "" {
		return Verification{}, c.failure(fmt.Errorf("it has no signature, but spec.verify asks for %s: %w", mode, ErrVerification))
	}
	return Verification{}, nil
}

// WriteTo implements [Content]. It reads its own output back to learn whether
// the directory still is what Resolve saw.
func (c *dirContent) WriteTo(ctx context.Context, w io.Writer) (Report, error) {
	rules, err := c.ignore.Compile(c.root.FS())
	if err != nil {
		return Report{}, c.failure(err)
	}
	out, in := io.Pipe()
	sum := make(chan string, 1)
	go func() { sum <- tarDigest(out) }()
	report, err := artifact.Pack(ctx, io.MultiWriter(w, in), rules.View(c.root.FS()))
	in.CloseWithError(err)
	got := <-sum
	if err == nil && localRevision+got != c.rev.ID {
		err = &StepError{Step: StepFetch, Err: errors.New("it changed while it was read, try again")}
	}
	if err != nil {
		return Report{}, c.failure(err)
	}
	return Report{Report: report, Message: fmt.Sprintf("stored artifact for local directory '%s'", c.name)}, nil
}

// tarDigest returns the digest of the tar stream in r, "" when r is damaged. It
// reads r to its end.
func tarDigest(r io.Reader) string {
	defer io.Copy(io.Discard, r)
	zr, err := gzip.NewReader(r)
	if err != nil {
		return ""
	}
	digest := sha256.New()
	if _, err := io.Copy(digest, zr); err != nil {
		return ""
	}
	return hex.EncodeToString(digest.Sum(nil))
}

// Close implements [Content].
func (c *dirContent) Close() error { return c.root.Close() }
