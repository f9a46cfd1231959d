package azure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	azcontainer "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/headgate-io/headgate/bucket"
)

// A driver reads one container.
type driver struct {
	container *azcontainer.Client
	access    *bucket.Access
}

// pageSize is how many blobs a page has: the model of the SDK takes 13.6 KB for
// each, so it is less than the 5000 that the service allows.
const pageSize = 1000

// List implements [bucket.Driver]: List Blobs, without a delimiter.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		o := &azcontainer.ListBlobsFlatOptions{MaxResults: to.Ptr(int32(pageSize)), Include: azcontainer.ListBlobsInclude{Metadata: true},
			ResponseFormat: azcontainer.StorageResponseFormatXML}
		if prefix != "" {
			o.Prefix = &prefix
		}
		requests := bucket.Listing(ctx)
		for pages := d.container.NewListBlobsFlatPager(o); pages.More(); {
			page, err := pages.NextPage(requests)
			if err != nil {
				yield(bucket.Object{}, d.access.Explain(ctx, "list blobs", err))
				return
			}
			for _, item := range page.Segment.BlobItems { // the guard has seen the segment
				if item.Snapshot != nil && *item.Snapshot != "" || item.Deleted != nil && *item.Deleted || item.IsCurrentVersion != nil && !*item.IsCurrentVersion {
					continue // it is not what the blob is now
				}
				object, err := objectOf(item)
				if err != nil {
					err = fmt.Errorf("list blobs: %s", d.access.Said(err.Error()))
				}
				if !yield(object, err) || err != nil {
					return
				}
			}
		}
	}
}

// objectOf returns what is listed. A directory of a hierarchical namespace, and
// a blob that stands for a directory, is a directory marker.
func objectOf(item *azcontainer.BlobItem) (o bucket.Object, err error) {
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
	doing := d.access.Said(fmt.Sprintf("get blob %q", o.Key))
	var resp *http.Response
	answer, err := d.container.NewBlobClient(o.Key).DownloadStream(policy.WithCaptureResponse(ctx, &resp), &blob.DownloadStreamOptions{
		Range:            blob.HTTPRange{Offset: offset},
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &etag}},
	})
	if err != nil {
		return nil, d.access.Explain(ctx, doing, err)
	}
	if err := d.access.CheckPart(resp, o, offset); err != nil {
		resp.Body.Close()
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return answer.Body, nil
}
