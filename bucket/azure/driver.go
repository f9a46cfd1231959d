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
const pageSize int32 = 5000

// List implements [bucket.Driver]: List Blobs, without a delimiter.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		if err := d.list(ctx, prefix, func(o bucket.Object) bool { return yield(o, nil) }); err != nil {
			yield(bucket.Object{}, err)
		}
	}
}

func (d *driver) list(ctx context.Context, prefix string, yield func(bucket.Object) bool) error {
	const doing = "list blobs"
	size := pageSize
	o := &container.ListBlobsFlatOptions{MaxResults: &size, Include: container.ListBlobsInclude{Metadata: true},
		ResponseFormat: container.StorageResponseFormatXML}
	if prefix != "" {
		o.Prefix = &prefix
	}
	seen := map[string]bool{}
	for pages := d.container.NewListBlobsFlatPager(o); pages.More(); {
		page, err := pages.NextPage(ctx)
		switch {
		case err != nil:
			return d.explain(ctx, doing, err)
		case page.Segment == nil:
			return errors.New(doing + ": the answer is no listing: check spec.endpoint")
		}
		for _, item := range page.Segment.BlobItems {
			if old(item) {
				continue
			}
			o, err := object(item)
			if err != nil {
				return fmt.Errorf("%s: %s", doing, said(err.Error(), d.vault))
			}
			if !yield(o) {
				return nil
			}
		}
		if next := page.NextMarker; next != nil && *next != "" {
			if seen[*next] {
				return errors.New(doing + ": the server repeats a page: its listing has no end")
			}
			seen[*next] = true
		}
	}
	return nil
}

// old reports whether item is not what the blob is now. None was asked for.
func old(item *container.BlobItem) bool {
	return item.Deleted != nil && *item.Deleted || item.Snapshot != nil && *item.Snapshot != "" ||
		item.IsCurrentVersion != nil && !*item.IsCurrentVersion
}

// object returns an item of a listing.
func object(item *container.BlobItem) (bucket.Object, error) {
	if item.Name == nil || *item.Name == "" {
		return bucket.Object{}, errors.New("a blob has no name")
	}
	o := bucket.Object{Key: *item.Name}
	if isDirectory(item) {
		o.Key = strings.TrimSuffix(o.Key, "/") + "/"
	}
	p := item.Properties
	switch {
	case p == nil || p.ETag == nil || bucket.ETag(string(*p.ETag)) == "":
		return o, fmt.Errorf("%q has no ETag", o.Key)
	case p.ContentLength == nil || *p.ContentLength < 0:
		return o, fmt.Errorf("%q has no size", o.Key)
	}
	o.ETag, o.Size = bucket.ETag(string(*p.ETag)), *p.ContentLength
	return o, nil
}

// isDirectory reports whether item is a directory of a hierarchical namespace,
// or stands for one.
func isDirectory(item *container.BlobItem) bool {
	if p := item.Properties; p != nil && p.ResourceType != nil && *p.ResourceType == "directory" {
		return true
	}
	flag := item.Metadata["hdi_isfolder"]
	return flag != nil && strings.EqualFold(*flag, "true")
}

// Open implements [bucket.Driver]: Get Blob.
func (d *driver) Open(ctx context.Context, o bucket.Object, offset int64) (io.ReadCloser, error) {
	doing := fmt.Sprintf("get blob %q", o.Key)
	etag := azcore.ETag(`"` + o.ETag + `"`)
	answer, err := d.container.NewBlobClient(o.Key).DownloadStream(ctx, &blob.DownloadStreamOptions{
		Range:            blob.HTTPRange{Offset: offset},
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &etag}},
	})
	if err != nil {
		return nil, d.explain(ctx, doing, err)
	}
	if err := same(answer, o, offset); err != nil {
		if answer.Body != nil {
			answer.Body.Close()
		}
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return answer.Body, nil
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
