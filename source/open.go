package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/headgate-io/headgate/artifact"
)

// OpenArchive opens an artifact of another source, an archive of files, as
// [artifact.Read] does. The caller closes it.
//
// The error wraps [ErrWaiting] when the artifact is not where its source said
// it is, and artifact.ErrFormat when it is no archive.
func OpenArchive(ctx context.Context, from Sources, a artifact.Artifact, l artifact.Limits) (*artifact.Tree, error) {
	r, err := OpenArtifact(ctx, from, a)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return artifact.Read(r, l)
}

// OpenArtifact opens an artifact of another source, whose content is checked
// against its digest as it is read. Reading ends with ctx.
//
// The error wraps [ErrWaiting] when the artifact is not where its source said it is.
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

// An interruptible reader ends with its context.
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
