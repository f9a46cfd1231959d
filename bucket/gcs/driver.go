package gcs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"

	"cloud.google.com/go/storage"
	"google.golang.org/api/iterator"

	"github.com/headgate-io/headgate/bucket"
)

const pageSize = 1000 // objects, the most that Cloud Storage sends

// A driver reads one bucket.
type driver struct {
	bucket *storage.BucketHandle
	access *bucket.Access
}

// List implements [bucket.Driver].
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return bucket.Pages(ctx, func(ctx context.Context, token string) (bucket.Page, error) { return d.page(ctx, prefix, token) })
}

// page returns the page of a listing that token names.
func (d *driver) page(ctx context.Context, prefix, token string) (page bucket.Page, err error) {
	query := &storage.Query{Prefix: prefix, Projection: storage.ProjectionNoACL}
	if err := query.SetAttrSelection([]string{"Name", "Etag", "Size", "Generation"}); err != nil {
		return bucket.Page{}, err
	}
	it := d.bucket.Objects(context.WithValue(ctx, callKey{}, new(call)), query)
	info := it.PageInfo()
	info.MaxSize, info.Token = pageSize, token
	for more := true; more; more = info.Remaining() > 0 {
		a, err := it.Next()
		switch {
		case errors.Is(err, iterator.Done), errors.Is(err, errAgain): // the page has no objects
			return bucket.Page{Next: info.Token}, nil
		case err != nil:
			return bucket.Page{}, d.access.Explain(ctx, "list objects", err)
		}
		if a.Name == "" { // a prefix, which was not asked for
			continue
		}
		page.Objects = append(page.Objects, bucket.Object{Key: a.Name, ETag: bucket.ETag(a.Etag), Size: a.Size, Version: strconv.FormatInt(a.Generation, 10)})
	}
	page.Next = info.Token
	return page, nil
}

// Open implements [bucket.Driver].
func (d *driver) Open(ctx context.Context, o bucket.Object, offset int64) (io.ReadCloser, error) {
	doing := "read " + d.access.Said(o.Key)
	generation, err := strconv.ParseInt(o.Version, 10, 64)
	switch {
	case o.Key == "" || err != nil || offset < 0:
		return nil, errors.New(doing + ": it was not listed")
	case offset > 0 && offset >= o.Size:
		return http.NoBody, nil
	}
	handle := d.bucket.Object(o.Key).If(storage.Conditions{GenerationMatch: generation})
	r, err := handle.NewRangeReader(context.WithValue(ctx, callKey{}, &call{object: &o, offset: offset}), offset, -1)
	if err != nil {
		return nil, d.access.Explain(ctx, doing, err)
	}
	return &body{ReadCloser: r, driver: d, ctx: ctx, doing: doing, left: o.Size - offset}, nil
}

// A body is the content of an object. It gives out the last bytes only when the
// SDK has found that they are the last ones and have the checksum that the store announced.
type body struct {
	io.ReadCloser
	driver *driver
	ctx    context.Context
	doing  string
	left   int64 // bytes that are still to come
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left == 0 && n > 0 && err == nil {
		_, err = b.ReadCloser.Read(make([]byte, 1))
	}
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case b.left == 0 && !errors.Is(err, bucket.ErrChanged):
		err = fmt.Errorf("%w: %w", bucket.ErrChanged, err)
	}
	return 0, b.driver.access.Explain(b.ctx, b.doing, err)
}
