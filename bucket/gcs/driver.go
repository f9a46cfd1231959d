package gcs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/bucket"
)

// A driver reads one bucket.
type driver struct {
	client  *http.Client
	objects string // URL of the bucket's objects
	vault   *bucket.Vault
	tokens  *tokens
}

// List implements [bucket.Driver].
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return bucket.Pages(ctx, func(ctx context.Context, token string) (bucket.Page, error) { return d.page(ctx, prefix, token) })
}

// page returns the page of a listing that token names.
func (d *driver) page(ctx context.Context, prefix, token string) (bucket.Page, error) {
	q := query{
		doing:  listing,
		values: url.Values{"prettyPrint": {"false"}, "maxResults": {pageSize}, "fields": {fields}},
		header: map[string]string{"User-Agent": userAgent + " (gzip)"}, // Google compresses listings for such names only
	}
	if prefix != "" {
		q.values.Set("prefix", prefix)
	}
	if token != "" {
		q.values.Set("pageToken", token)
	}
	resp, err := d.do(ctx, q)
	if err != nil {
		return bucket.Page{}, err
	}
	defer resp.Body.Close()
	page, err := readPage(resp.Body, d.vault)
	if err != nil {
		return bucket.Page{}, fmt.Errorf("%s: %w", q.doing, err)
	}
	return page, nil
}

// Open implements [bucket.Driver].
func (d *driver) Open(ctx context.Context, o bucket.Object, offset int64) (io.ReadCloser, error) {
	q := query{
		doing:  "read " + d.said(o.Key),
		key:    o.Key,
		values: url.Values{"alt": {"media"}, "ifGenerationMatch": {o.Version}},
		header: map[string]string{"User-Agent": userAgent, "Accept-Encoding": "gzip"}, // as stored, and not decompressed by package http either
	}
	switch {
	case o.Key == "" || o.Version == "" || offset < 0:
		return nil, errors.New(q.doing + ": it was not listed")
	case offset > 0 && offset >= o.Size:
		return http.NoBody, nil
	case offset > 0:
		q.header["Range"] = fmt.Sprintf("bytes=%d-", offset)
	}
	resp, err := d.do(ctx, q)
	if err != nil {
		return nil, err
	}
	if err := d.check(resp, o, offset); err != nil {
		resp.Body.Close()
		return nil, fmt.Errorf("%s: %w", q.doing, err)
	}
	return newBody(resp, o, offset, d.vault), nil
}

// check reports why an answer is not o from offset on.
func (d *driver) check(resp *http.Response, o bucket.Object, offset int64) error {
	if err := d.checkVersion(resp.Header, o); err != nil {
		return err
	}
	stored, sent := resp.Header.Get("X-Goog-Stored-Content-Encoding"), cmp.Or(resp.Header.Get("Content-Encoding"), "identity")
	if stored != "" && !strings.EqualFold(stored, sent) {
		return fmt.Errorf("it is stored with the content encoding %q and was sent with %q", d.said(stored), d.said(sent))
	}
	if err := d.checkPart(resp, o, offset); err != nil {
		return err
	}
	if n := resp.ContentLength; n >= 0 && n != o.Size-offset {
		return d.changed("the size", strconv.FormatInt(n+offset, 10), strconv.FormatInt(o.Size, 10))
	}
	return nil
}

// checkVersion compares the generation. The ETag changes with the metadata as
// well, so it counts only where there is nothing better.
func (d *driver) checkVersion(header http.Header, o bucket.Object) error {
	generation, etag := header.Get("X-Goog-Generation"), bucket.ETag(header.Get("ETag"))
	switch {
	case generation == o.Version:
		return nil
	case generation != "":
		return d.changed("the generation", generation, o.Version)
	case etag != "" && etag != o.ETag:
		return d.changed("the etag", etag, o.ETag)
	}
	return nil
}

// checkPart reports whether all that is behind offset was sent (RFC 9110 section 14.4).
func (d *driver) checkPart(resp *http.Response, o bucket.Object, offset int64) error {
	want := http.StatusOK
	if offset > 0 {
		want = http.StatusPartialContent
	}
	if resp.StatusCode != want {
		return fmt.Errorf("the answer is %d, not %d", resp.StatusCode, want)
	}
	part := fmt.Sprintf("bytes %d-%d/%d", offset, o.Size-1, o.Size)
	if got := resp.Header.Get("Content-Range"); offset > 0 && got != part {
		return fmt.Errorf("asked for %s, got %q", part, d.said(got))
	}
	return nil
}

func (d *driver) changed(what, now, listed string) error {
	return fmt.Errorf("%w: %s is %q, listed was %q", bucket.ErrChanged, what, d.said(now), d.said(listed))
}
