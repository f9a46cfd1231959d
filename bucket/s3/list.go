package s3

import (
	"context"
	"iter"
	"net/url"

	"github.com/headgate-io/headgate/bucket"
)

const (
	pageSize = "1000"  // keys; no store gives more
	maxPage  = 8 << 20 // bytes of a page: 1000 keys of 1024 bytes, each of them escaped, and as much again
)

// List implements [bucket.Driver].
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return bucket.Pages(ctx, func(ctx context.Context, token string) (bucket.Page, error) { return d.page(ctx, prefix, token) })
}

// page returns the page at a continuation token.
func (d *driver) page(ctx context.Context, prefix, token string) (p bucket.Page, err error) {
	values := url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "max-keys": {pageSize}, "prefix": {prefix}}
	if token != "" {
		values.Set("continuation-token", token)
	}
	err = d.readWhole(ctx, query{doing: "list objects", values: values}, maxPage, func(text string) error {
		p, err = readPage(text, prefix)
		return err
	})
	return p, err
}
