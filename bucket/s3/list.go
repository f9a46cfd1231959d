package s3

import (
	"context"
	"errors"
	"iter"
	"net/url"

	"github.com/headgate-io/headgate/bucket"
)

const (
	pageSize = "1000"  // keys; no store gives more
	maxPage  = 8 << 20 // bytes of a page: 1000 keys of 1024 bytes, each of them escaped, and as much again
)

// An answer is a page that was asked for, or why there is none.
type answer struct {
	page page
	err  error
}

// List implements [bucket.Driver]. While the objects of a page are used the next
// one is read.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		next := d.ask(ctx, prefix, "")
		defer func() {
			cancel()
			<-next // which is closed when the request has ended
		}()
		for {
			a := <-next
			if a.err != nil {
				yield(bucket.Object{}, a.err)
				return
			}
			if a.page.next != "" {
				next = d.ask(ctx, prefix, a.page.next)
			}
			for _, o := range a.page.objects {
				if !yield(o, nil) {
					return
				}
			}
			if a.page.next == "" {
				return
			}
		}
	}
}

// ask asks for the page at a continuation token.
func (d *driver) ask(ctx context.Context, prefix, token string) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		defer close(c)
		p, err := d.page(ctx, prefix, token)
		c <- answer{p, err}
	}()
	return c
}

// page returns the page at a continuation token.
func (d *driver) page(ctx context.Context, prefix, token string) (p page, err error) {
	values := url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "max-keys": {pageSize}, "prefix": {prefix}}
	if token != "" {
		values.Set("continuation-token", token)
	}
	err = d.readWhole(ctx, query{doing: "list objects", values: values}, maxPage, func(text string) error {
		if p, err = readPage(text, prefix); err != nil {
			return err
		}
		if p.next != "" && p.next == token {
			return errors.New("the store repeats a continuation token: its listing would never end")
		}
		return nil
	})
	return p, err
}
