package bucket

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/headgate-io/headgate/source"
)

// A previousArtifact is the published artifact, from which unchanged objects are
// copied: in one pass, in step with packing, for both are in the same order.
// Its digest is known at its end only, so whatever is copied from it counts
// once it has been read to there. A nil one has nothing.
type previousArtifact struct {
	same    map[string]bool // keys of the objects that it has as they are
	archive io.ReadCloser
	rest    *bufio.Reader // of archive
	tar     *tar.Reader
	forget  func()
	err     error
}

// indexKey names the entry of the cache that says which objects an artifact was
// made of, and as what they were listed: the text whose digest is its revision.
// It is about one bucket, and about the one archive with that digest.
func (o *Origin) indexKey(revision, digest string) string {
	return strings.Join([]string{"objects of", bucketName(&o.bucket.Spec), revision, digest}, " ")
}

// remember keeps the text of the revision for the next fetch, once its artifact
// was written to w, where that knows the digest as a store does. A cache that
// fails costs the next fetch time.
func (c *content) remember(w io.Writer) {
	written, ok := w.(interface{ Sum() string })
	if !ok || c.origin.env.Cache == nil {
		return
	}
	c.origin.env.Cache.Put(c.origin.indexKey(c.revision().ID, written.Sum()), func(w io.Writer) error {
		b := bufio.NewWriterSize(w, 64<<10)
		for _, o := range c.files {
			if o.Key != ignoreFile {
				b.WriteString(o.line())
			}
		}
		return b.Flush()
	})
}

// openPrevious returns what can be copied, nil when that is nothing.
func (c *content) openPrevious(ctx context.Context) *previousArtifact {
	o := c.origin
	a := o.bucket.Status.Artifact
	if a == nil || o.env.Sources == nil || o.env.Cache == nil {
		return nil
	}
	index := o.indexKey(a.Revision, a.Digest)
	p := &previousArtifact{same: c.unchanged(index, a.Revision), forget: func() { o.env.Cache.Remove(index) }}
	if len(p.same) == 0 {
		return nil
	}
	stored := *a
	stored.URL = "" // what is not in the store is not worth a transfer
	archive, err := o.env.Sources.Open(ctx, stored)
	if err != nil || p.read(archive) != nil {
		return nil
	}
	return p
}

// read begins to read an archive, and closes it if that is none.
func (p *previousArtifact) read(archive io.ReadCloser) error {
	p.archive, p.rest = archive, bufio.NewReaderSize(archive, 256<<10)
	z, err := gzip.NewReader(p.rest)
	if err != nil {
		archive.Close()
		return err
	}
	z.Multistream(false)
	p.tar = tar.NewReader(z)
	return nil
}

// unchanged returns the keys of the objects that are listed as an entry of the
// cache says, whose digest must be revision.
func (c *content) unchanged(index, revision string) map[string]bool {
	text, err := c.origin.env.Cache.Open(index)
	if err != nil {
		return nil
	}
	defer text.Close()
	same, sum, files := map[string]bool{}, sha256.New(), c.files
	lines := bufio.NewReaderSize(io.TeeReader(text, sum), 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			break
		}
		if err != nil {
			return nil
		}
		for key := line[:max(0, bytes.LastIndexByte(line, ' '))]; len(files) > 0 && files[0].Key < string(key); {
			files = files[1:]
		}
		if len(files) > 0 && files[0].line() == string(line) {
			same[files[0].Key] = true
		}
	}
	if "sha256:"+hex.EncodeToString(sum.Sum(nil)) != revision {
		return nil
	}
	return same
}

// has reports whether the object key is to be copied.
func (p *previousArtifact) has(key string) bool { return p != nil && p.same[key] }

// find returns the content of o, which comes behind what was found before.
func (p *previousArtifact) find(o Object) io.Reader {
	for p.err == nil {
		h, err := p.tar.Next()
		switch {
		case err == nil && h.Name == o.Key && h.Typeflag == tar.TypeReg && h.Size == o.Size:
			return p
		case err == nil && h.Name == o.Key:
			err = fmt.Errorf("%s has %d bytes in it instead of %d", quoted(o.Key), h.Size, o.Size)
		case err == io.EOF || err == nil && h.Name != "." && archiveOrder(o, Object{Key: h.Name}) < 0:
			err = fmt.Errorf("%s is not in it", quoted(o.Key))
		}
		if err != nil {
			p.damaged(err)
		}
	}
	return p
}

// Read reads what was found.
func (p *previousArtifact) Read(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	n, err := p.tar.Read(b)
	if err != nil && err != io.EOF {
		p.damaged(err)
		err = p.err
	}
	return n, err
}

// damaged ends copying: the next fetch, which begins at once, copies nothing.
func (p *previousArtifact) damaged(err error) {
	p.forget()
	p.err = fmt.Errorf("copy unchanged objects from the artifact that is published: %v: %w", err, source.ErrMoved)
}

// end reads what is left, behind which the digest is known, and says why what was copied does not count.
func (p *previousArtifact) end(ctx context.Context) error {
	for p != nil && p.err == nil && ctx.Err() == nil {
		if _, err := p.rest.Discard(p.rest.Size()); err == io.EOF {
			return nil
		} else if err != nil {
			p.damaged(err)
		}
	}
	if p == nil || p.err == nil {
		return context.Cause(ctx)
	}
	return p.err
}

func (p *previousArtifact) close() {
	if p != nil {
		p.archive.Close()
	}
}
