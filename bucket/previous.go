package bucket

import (
	"archive/tar"
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"

	"github.com/headgate-io/headgate/source"
)

// A previousArtifact is the published artifact, from which unchanged objects are
// copied: in one pass, in step with packing, for both are in the same order.
// Its digest is known at its end only, so whatever is copied from it counts
// once it has been read to there. A nil one has nothing.
type previousArtifact struct {
	same    []bool // the objects of the listing that it has as they are
	count   int    // of them
	archive io.ReadCloser
	rest    *bufio.Reader // of archive
	gzip    *gzip.Reader
	tar     *tar.Reader
	bad     error
}

// A spoiledError is about an artifact that is not what it was published as. The
// fetch is to be begun again, without it.
type spoiledError struct{ err error }

func (e *spoiledError) Error() string {
	return fmt.Sprintf("copy unchanged objects from the artifact that is published: %v", e.err)
}

// Is tells the [source.Reconciler] to begin again.
func (e *spoiledError) Is(target error) bool { return target == source.ErrMoved }

// openPrevious returns what can be copied, nil when that is nothing.
func (c *content) openPrevious(ctx context.Context) *previousArtifact {
	o := c.origin
	a := o.bucket.Status.Artifact
	if a == nil || o.env.Sources == nil || o.env.Cache == nil || o.spoiledBy(a.Digest) != "" {
		return nil
	}
	e := new(previousArtifact)
	if e.same, e.count = c.compare(*a); e.count == 0 {
		return nil
	}
	stored := *a
	stored.URL = "" // what is not in the store is not worth a transfer
	var err error
	if e.archive, err = o.env.Sources.Open(ctx, stored); err != nil {
		return nil
	}
	e.rest = bufio.NewReaderSize(e.archive, 256<<10)
	if e.gzip, err = gzip.NewReader(e.rest); err != nil {
		e.close()
		return nil
	}
	e.gzip.Multistream(false)
	e.tar = tar.NewReader(e.gzip)
	return e
}

// has reports whether the object i of the listing is to be copied.
func (e *previousArtifact) has(i int) bool { return e != nil && e.same[i] }

// find returns the content of o, which comes behind what was found before.
func (e *previousArtifact) find(o Object) io.Reader {
	for e.bad == nil {
		h, err := e.tar.Next()
		switch {
		case err == nil && h.Name == ".":
			continue
		case err == io.EOF || err == nil && inOrder(o.Key, h.Name):
			err = fmt.Errorf("%s is not in it", quoted(o.Key))
		case err == nil && h.Name != o.Key:
			continue
		case err == nil && (h.Typeflag != tar.TypeReg || h.Size != o.Size):
			err = fmt.Errorf("%s has %d bytes in it instead of %d", quoted(o.Key), h.Size, o.Size)
		}
		if err != nil {
			e.spoil(err)
			break
		}
		return e
	}
	return e
}

// inOrder reports whether a comes before b in an archive.
func inOrder(a, b string) bool {
	n := common(a, b)
	if n == len(a) || n == len(b) {
		return len(a) < len(b)
	}
	return b[n] != '/' && (a[n] == '/' || a[n] < b[n])
}

// Read reads what was found.
func (e *previousArtifact) Read(p []byte) (int, error) {
	if e.bad != nil {
		return 0, e.bad
	}
	n, err := e.tar.Read(p)
	if err != nil && err != io.EOF {
		err = e.spoil(err)
	}
	return n, err
}

func (e *previousArtifact) spoil(err error) error {
	e.bad = &spoiledError{err}
	return e.bad
}

// end reads what is left, behind which the digest is known.
func (e *previousArtifact) end(ctx context.Context) {
	defer e.close()
	buf := make([]byte, 64<<10)
	for e.bad == nil {
		_, err := e.rest.Read(buf)
		switch {
		case err == io.EOF:
			return
		case ctx.Err() != nil:
			e.bad = context.Cause(ctx) // what was copied was not checked
		case err != nil:
			e.spoil(err)
		}
	}
}

// problem returns what was found to be wrong.
func (e *previousArtifact) problem() error {
	if e == nil {
		return nil
	}
	return e.bad
}

func (e *previousArtifact) close() { e.archive.Close() }
