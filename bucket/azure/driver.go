package azure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/headgate-io/headgate/bucket"
)

// A driver reads one container.
type driver struct {
	container *container.Client
	access    *bucket.Access
	anonymous bool
}

// pageSize is how many blobs a page has: the model of the SDK takes 13.6 KB for
// each, so it is less than the 5000 that the service allows.
const pageSize = 1000

// List implements [bucket.Driver]: List Blobs, without a delimiter.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return bucket.Pages(ctx, func(ctx context.Context, marker string) (bucket.Page, error) { return d.page(ctx, prefix, marker) })
}

// page returns the page at a marker, "" for the first.
func (d *driver) page(ctx context.Context, prefix, marker string) (page bucket.Page, err error) {
	o := &container.ListBlobsFlatOptions{MaxResults: to.Ptr(int32(pageSize)), Include: container.ListBlobsInclude{Metadata: true},
		ResponseFormat: container.StorageResponseFormatXML}
	if prefix != "" {
		o.Prefix = &prefix
	}
	if marker != "" {
		o.Marker = &marker
	}
	answer, err := d.container.NewListBlobsFlatPager(o).NextPage(ctx)
	if err != nil {
		return bucket.Page{}, d.explain(ctx, "list blobs", err)
	}
	if answer.NextMarker != nil {
		page.Next = *answer.NextMarker
	}
	if answer.Segment == nil {
		return page, nil
	}
	for _, item := range answer.Segment.BlobItems {
		if item.Snapshot != nil && *item.Snapshot != "" || item.Deleted != nil && *item.Deleted || item.IsCurrentVersion != nil && !*item.IsCurrentVersion {
			continue // it is not what the blob is now
		}
		object, err := objectOf(item)
		if err != nil {
			return bucket.Page{}, fmt.Errorf("list blobs: %s", said(err.Error(), d.access))
		}
		page.Objects = append(page.Objects, object)
	}
	return page, nil
}

// objectOf returns what is listed. A directory of a hierarchical namespace, and
// a blob that stands for a directory, is a directory marker.
func objectOf(item *container.BlobItem) (o bucket.Object, err error) {
	if item.Name == nil || *item.Name == "" {
		return o, errors.New("a blob has no name")
	}
	o.Key = *item.Name
	p := item.Properties
	if p == nil || p.ETag == nil || bucket.ETag(string(*p.ETag)) == "" {
		return o, fmt.Errorf("%q has no ETag", o.Key)
	}
	if p.ContentLength == nil || *p.ContentLength < 0 {
		return o, fmt.Errorf("%q has no size", o.Key)
	}
	o.ETag, o.Size = bucket.ETag(string(*p.ETag)), *p.ContentLength
	folder := p.ResourceType != nil && *p.ResourceType == "directory"
	for name, value := range item.Metadata {
		folder = folder || strings.EqualFold(name, "hdi_isfolder") && value != nil && strings.EqualFold(*value, "true")
	}
	if folder {
		o.Key = strings.TrimSuffix(o.Key, "/") + "/"
	}
	return o, nil
}

// Open implements [bucket.Driver]: Get Blob.
func (d *driver) Open(ctx context.Context, o bucket.Object, offset int64) (io.ReadCloser, error) {
	etag := azcore.ETag(`"` + o.ETag + `"`)
	answer, err := d.container.NewBlobClient(o.Key).DownloadStream(ctx, &blob.DownloadStreamOptions{
		Range:            blob.HTTPRange{Offset: offset},
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &etag}},
	})
	if err != nil {
		return nil, d.explain(ctx, d.getting(o), err)
	}
	if err := same(answer, o, offset); err != nil {
		if answer.Body != nil {
			answer.Body.Close()
		}
		return nil, fmt.Errorf("%s: %w", d.getting(o), err)
	}
	return answer.Body, nil
}

// getting says what Open does, fit to be shown: names are the other side's.
func (d *driver) getting(o bucket.Object) string {
	return bucket.Said(fmt.Sprintf("get blob %q", o.Key), d.access.Vault.Values()...)
}

// same checks that what is sent is o from offset on.
func same(answer blob.DownloadStreamResponse, o bucket.Object, offset int64) error {
	switch {
	case answer.Body == nil: // 304, which a request with If-Match does not have
		return errors.New("the answer has no content")
	case answer.ETag == nil || bucket.ETag(string(*answer.ETag)) != o.ETag:
		return fmt.Errorf("the answer is of another blob: %w", bucket.ErrChanged)
	case answer.ContentLength != nil && *answer.ContentLength != o.Size-offset:
		return fmt.Errorf("%d bytes are sent where %d were listed: %w", *answer.ContentLength, o.Size-offset, bucket.ErrChanged)
	case offset > 0 && (answer.ContentRange == nil || !strings.HasPrefix(*answer.ContentRange, fmt.Sprintf("bytes %d-", offset))):
		return errors.New("the answer begins elsewhere: the server ignores ranges")
	}
	return nil
}
