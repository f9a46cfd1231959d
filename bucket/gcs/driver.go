package gcs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/api/storage/v1"

	"github.com/headgate-io/headgate/bucket"
)

const pageSize = 1000 // objects, the most that Cloud Storage sends

// A driver reads one bucket.
type driver struct {
	objects *storage.ObjectsService
	bucket  string
	vault   *bucket.Vault
	tokens  *tokens
}

// List implements [bucket.Driver].
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		for token := ""; ; {
			page, err := d.page(ctx, prefix, token)
			if err != nil {
				yield(bucket.Object{}, err)
				return
			}
			for _, item := range page.Items {
				o, err := object(item)
				if !yield(o, err) || err != nil {
					return
				}
			}
			if page.NextPageToken == "" {
				return
			}
			token = page.NextPageToken
		}
	}
}

// page returns the page of a listing that token names.
func (d *driver) page(ctx context.Context, prefix, token string) (*storage.Objects, error) {
	call := d.objects.List(d.bucket).MaxResults(pageSize).Fields("nextPageToken", "items(name,etag,size,generation)").Context(ctx)
	if prefix != "" {
		call.Prefix(prefix)
	}
	if token != "" {
		call.PageToken(token)
	}
	page, err := call.Do()
	switch {
	case err != nil:
		return nil, d.failure(listing, err)
	case page == nil:
		return nil, errors.New(listing + ": the answer is not what it should be: null")
	case page.NextPageToken != "" && page.NextPageToken == token:
		return nil, errors.New(listing + ": the page after this one is this one again: the listing has no end")
	}
	return page, nil
}

// object returns an object as it was listed.
func object(item *storage.Object) (bucket.Object, error) {
	fail := func(what string) (bucket.Object, error) {
		name := ""
		if item != nil {
			name = item.Name
		}
		return bucket.Object{}, fmt.Errorf("%s: %.256q has %s", listing, name, what)
	}
	switch {
	case item == nil || item.Name == "":
		return fail("no name")
	case bucket.ETag(item.Etag) == "":
		return fail("no etag")
	case item.Generation <= 0:
		return fail("no generation")
	case item.Size > math.MaxInt64:
		return fail("a size that is none")
	}
	return bucket.Object{Key: item.Name, ETag: bucket.ETag(item.Etag), Size: int64(item.Size), Version: strconv.FormatInt(item.Generation, 10)}, nil
}

// Open implements [bucket.Driver].
func (d *driver) Open(ctx context.Context, o bucket.Object, offset int64) (io.ReadCloser, error) {
	generation, err := strconv.ParseInt(o.Version, 10, 64)
	if err != nil || offset < 0 {
		return nil, fmt.Errorf("read %s: it was not listed", o.Key)
	}
	if offset > 0 && offset >= o.Size {
		return http.NoBody, nil
	}
	call := d.objects.Get(d.bucket, o.Key).IfGenerationMatch(generation).Context(ctx)
	if offset > 0 {
		call.Header().Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	resp, err := call.Download()
	if err != nil {
		return nil, d.failure("read "+o.Key, err)
	}
	if err := check(resp, o, offset); err != nil {
		resp.Body.Close()
		return nil, fmt.Errorf("read %s: %w", o.Key, err)
	}
	return newBody(resp, o, offset), nil
}

// check reports why an answer is not o from offset on.
func check(resp *http.Response, o bucket.Object, offset int64) error {
	changed := func(what, now, listed string) error {
		return fmt.Errorf("%w: %s is %.64q, listed was %q", bucket.ErrChanged, what, now, listed)
	}
	generation, etag := resp.Header.Get("X-Goog-Generation"), bucket.ETag(resp.Header.Get("ETag"))
	switch {
	case generation != "" && generation != o.Version:
		return changed("the generation", generation, o.Version)
	case generation == "" && etag != "" && etag != o.ETag: // an ETag changes with the metadata as well
		return changed("the etag", etag, o.ETag)
	}
	stored, sent := resp.Header.Get("X-Goog-Stored-Content-Encoding"), cmp.Or(resp.Header.Get("Content-Encoding"), "identity")
	if stored != "" && !strings.EqualFold(stored, sent) {
		return fmt.Errorf("it is stored with the content encoding %.64q and was sent with %.64q", stored, sent)
	}
	want := http.StatusOK
	if offset > 0 {
		want = http.StatusPartialContent
		part := fmt.Sprintf("bytes %d-%d/%d", offset, o.Size-1, o.Size)
		if got := resp.Header.Get("Content-Range"); resp.StatusCode == want && got != part {
			return fmt.Errorf("asked for %s, got %.64q", part, got)
		}
	}
	if resp.StatusCode != want {
		return fmt.Errorf("the answer is %d, not %d", resp.StatusCode, want)
	}
	if n := resp.ContentLength; n >= 0 && n != o.Size-offset {
		return changed("the size", strconv.FormatInt(n+offset, 10), strconv.FormatInt(o.Size, 10))
	}
	return nil
}
