package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/headgate-io/headgate/bucket"
)

const (
	pageSize = 1000    // keys; no store gives more
	maxPage  = 8 << 20 // bytes of a page: 1000 keys of 1024 bytes, each of them escaped, and as much again
)

// pages are the answers to ListObjectsV2.
var pages = bucket.XMLPage{Root: "ListBucketResult", Item: "Contents", Items: pageSize, Each: []string{"Key", "Size"}, Needs: "IsTruncated", Limit: maxPage}

// List implements [bucket.Driver].
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return bucket.Pages(ctx, func(ctx context.Context, token string) (bucket.Page, error) { return d.page(ctx, prefix, token) })
}

// page returns the page at a continuation token.
func (d *driver) page(ctx context.Context, prefix, token string) (bucket.Page, error) {
	c := &call{driver: d, ctx: ctx, doing: "list objects", check: pages.Check}
	client, err := c.client()
	if err != nil {
		return bucket.Page{}, err
	}
	answer, err := client.ListObjectsV2(d.access.Spec.BucketName, prefix, "", token, "", pageSize)
	if e, ok := errors.AsType[minio.ErrorResponse](err); ok && e.Code == minio.NotImplemented {
		return bucket.Page{}, errors.New("list objects: there are more objects, says the store, but not how to ask for them: it lacks ListObjectsV2")
	}
	if err != nil {
		return bucket.Page{}, c.failed(err)
	}
	page := bucket.Page{Objects: make([]bucket.Object, 0, len(answer.Contents))}
	if answer.IsTruncated {
		page.Next = answer.NextContinuationToken
	}
	for _, o := range answer.Contents {
		switch {
		case o.Key == "" || o.Size < 0:
			return bucket.Page{}, errors.New("list objects: the answer lists an object without Key or Size")
		case !strings.HasPrefix(o.Key, prefix):
			return bucket.Page{}, errors.New("list objects: the answer lists an object that does not begin with spec.prefix")
		}
		page.Objects = append(page.Objects, bucket.Object{Key: o.Key, ETag: bucket.ETag(o.ETag), Size: o.Size})
	}
	return page, nil
}

// Open implements [bucket.Driver].
func (d *driver) Open(ctx context.Context, o bucket.Object, offset int64) (io.ReadCloser, error) {
	var options minio.GetObjectOptions
	options.Set("If-Match", `"`+o.ETag+`"`)
	switch {
	case offset > 0 && offset == o.Size:
		return http.NoBody, nil // no range is empty
	case offset > 0:
		options.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	c := &call{driver: d, ctx: ctx, doing: "get object", key: o.Key, check: func(resp *http.Response) error { return d.begin(resp, o, offset) }}
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	body, _, _, err := client.GetObject(ctx, d.access.Spec.BucketName, "object", options) // a stand-in: it refuses blank keys
	return body, c.failed(err)
}

// begin makes sure that the content of resp is that of o from offset on.
func (d *driver) begin(resp *http.Response, o bucket.Object, offset int64) error {
	from := offset
	if resp.StatusCode == http.StatusOK {
		from = 0 // the range was ignored
	}
	if err := d.access.CheckPart(resp, o, from); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, resp.Body, offset-from); err != nil {
		return fmt.Errorf("the answer breaks off: %w", err)
	}
	// minio-go would refuse objects with other headers that it cannot parse.
	resp.Header = http.Header{"Etag": resp.Header["Etag"], "Last-Modified": {"Thu, 01 Jan 1970 00:00:00 GMT"}}
	return nil
}
