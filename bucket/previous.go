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
// copied. It is read in one pass during packing, because both have the same order.
// Its digest is verified at its end, so the copied content is valid only after the
// archive was read completely, see end. A nil previousArtifact contains no objects.
type previousArtifact struct {
	unchanged   map[string]bool // keys of the unchanged objects
	archive     io.ReadCloser
	rest        *bufio.Reader // of archive
	tar         *tar.Reader
	removeIndex func()
	err         error
}

// indexKey returns the key of the cache entry that lists the objects of an artifact with
// their ETags: the text whose digest is the revision. The key covers the
// bucket and the digest of the archive.
func (o *Origin) indexKey(revision, digest string) string {
	return strings.Join([]string{"objects of", bucketName(&o.bucket.Spec), revision, digest}, " ")
}

// cacheIndex caches the text of the revision for the next fetch, after the artifact was
// written to w. It does nothing unless w has a method Sum that returns the digest, as
// the writer of a store has. A cache error only makes the next fetch slower.
func (c *content) cacheIndex(w io.Writer) {
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

// openPrevious opens the published artifact. It returns nil if no object can be copied.
func (c *content) openPrevious(ctx context.Context) *previousArtifact {
	o := c.origin
	a := o.bucket.Status.Artifact
	if a == nil || o.env.Sources == nil || o.env.Cache == nil {
		return nil
	}
	index := o.indexKey(a.Revision, a.Digest)
	p := &previousArtifact{unchanged: c.unchanged(index, a.Revision), removeIndex: func() { o.env.Cache.Remove(index) }}
	if len(p.unchanged) == 0 {
		return nil
	}
	stored := *a
	stored.URL = "" // do not download an artifact that is not in the local store
	archive, err := o.env.Sources.Open(ctx, stored)
	if err != nil || p.read(archive) != nil {
		return nil
	}
	return p
}

// read starts reading archive. If it is not a gzip stream, read closes it and returns an error.
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

// unchanged returns the keys of the objects that are listed with the same ETag as in the
// cache entry index. It returns nil if the digest of that entry is not revision.
func (c *content) unchanged(index, revision string) map[string]bool {
	text, err := c.origin.env.Cache.Open(index)
	if err != nil {
		return nil
	}
	defer text.Close()
	keys, sum, files := map[string]bool{}, sha256.New(), c.files
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
			keys[files[0].Key] = true
		}
	}
	if "sha256:"+hex.EncodeToString(sum.Sum(nil)) != revision {
		return nil
	}
	return keys
}

// has reports whether the object with this key can be copied.
func (p *previousArtifact) has(key string) bool { return p != nil && p.unchanged[key] }

// find returns the content of o, which must follow the objects found before. Errors are
// returned by Read.
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

// Read reads the content of the object that find returned last.
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

// damaged records err and removes the cache entry. The fetch fails with
// [source.ErrMoved], so it is retried at once, without copying.
func (p *previousArtifact) damaged(err error) {
	p.removeIndex()
	p.err = fmt.Errorf("copy unchanged objects from the artifact that is published: %v: %w", err, source.ErrMoved)
}

// end reads the archive to its end, where its digest is verified. An error means that the
// copied content is not valid.
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
