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
	call := d.objects.List(d.bucket).MaxResults(pageSize).Fields("kind", "nextPageToken", "items(name,etag,size,generation)").Context(ctx)
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
	case page == nil || page.Kind != "storage#objects": // what else would be an empty bucket
		return nil, errors.New(listing + ": the answer is not a listing: check spec.endpoint")
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
	if err := checkVersion(resp.Header, o); err != nil {
		return err
	}
	stored, sent := resp.Header.Get("X-Goog-Stored-Content-Encoding"), cmp.Or(resp.Header.Get("Content-Encoding"), "identity")
	if stored != "" && !strings.EqualFold(stored, sent) {
		return fmt.Errorf("it is stored with the content encoding %.64q and was sent with %.64q", stored, sent)
	}
	if err := checkPart(resp, o, offset); err != nil {
		return err
	}
	if n := resp.ContentLength; n >= 0 && n != o.Size-offset {
		return changed("the size", strconv.FormatInt(n+offset, 10), strconv.FormatInt(o.Size, 10))
	}
	return nil
}

// checkVersion compares the generation. The ETag changes with the metadata as
// well, so it counts only where there is nothing better.
func checkVersion(header http.Header, o bucket.Object) error {
	generation, etag := header.Get("X-Goog-Generation"), bucket.ETag(header.Get("ETag"))
	switch {
	case generation == o.Version:
		return nil
	case generation != "":
		return changed("the generation", generation, o.Version)
	case etag != "" && etag != o.ETag:
		return changed("the etag", etag, o.ETag)
	}
	return nil
}

// checkPart reports whether all that is behind offset was sent (RFC 9110 section 14.4).
func checkPart(resp *http.Response, o bucket.Object, offset int64) error {
	want := http.StatusOK
	if offset > 0 {
		want = http.StatusPartialContent
	}
	if resp.StatusCode != want {
		return fmt.Errorf("the answer is %d, not %d", resp.StatusCode, want)
	}
	part := fmt.Sprintf("bytes %d-%d/%d", offset, o.Size-1, o.Size)
	if got := resp.Header.Get("Content-Range"); offset > 0 && got != part {
		return fmt.Errorf("asked for %s, got %.64q", part, got)
	}
	return nil
}

func changed(what, now, listed string) error {
	return fmt.Errorf("%w: %s is %.64q, listed was %q", bucket.ErrChanged, what, now, listed)
}
