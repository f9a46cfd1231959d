package azure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/transport"
)

// A driver reads one container.
type driver struct {
	container *container.Client
	vault     *transport.Vault
	anonymous bool
}

// pageSize is what the service gives at most.
const pageSize = 5000

// List implements [bucket.Driver]: List Blobs, without a delimiter.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return bucket.Pages(ctx, func(ctx context.Context, marker string) (bucket.Page, error) { return d.page(ctx, prefix, marker) })
}

// page returns the page at a marker, "" for the first.
func (d *driver) page(ctx context.Context, prefix, marker string) (bucket.Page, error) {
	var text string
	size := int32(pageSize)
	o := &container.ListBlobsFlatOptions{MaxResults: &size, Include: container.ListBlobsInclude{Metadata: true},
		ResponseFormat: container.StorageResponseFormatXML}
	if prefix != "" {
		o.Prefix = &prefix
	}
	if marker != "" {
		o.Marker = &marker
	}
	if _, err := d.container.NewListBlobsFlatPager(o).NextPage(context.WithValue(ctx, pageKey{}, &text)); err != nil {
		return bucket.Page{}, d.explain(ctx, "list blobs", err)
	}
	p, err := readPage(text)
	if err != nil {
		err = fmt.Errorf("list blobs: %s", said(err.Error(), d.vault))
	}
	return p, err
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
	return bucket.Said(fmt.Sprintf("get blob %q", o.Key), d.vault.Values()...)
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
