package bucket

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// A Page is a part of a listing.
type Page struct {
	Objects []Object
	Next    string // what the store calls the page after this one, "" on the last one
}

const maxPageToken = 8 << 10 // bytes

// Pages is a listing whose store gives it in pages: ask asks for the one of a
// token, "" for the first. While the objects of a page are used the next one is
// read; no request outlives the listing. A store that turns in circles is found
// out by its tokens, pages without objects included.
func Pages(ctx context.Context, ask func(ctx context.Context, token string) (Page, error)) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		next := askAhead(ctx, ask, "")
		defer func() {
			cancel()
			<-next // which is closed when the request has ended
		}()
		for tokens := (cycle{}); ; {
			a := <-next
			switch more := a.page.Next; {
			case a.err == nil && len(more) > maxPageToken:
				a.err = fmt.Errorf("list objects: the store's page token has more than %d bytes", maxPageToken)
			case a.err == nil && more != "" && tokens.repeats(more):
				a.err = errors.New("list objects: the store repeats a page token: its listing would never end")
			case a.err == nil && more != "":
				next = askAhead(ctx, ask, more)
			}
			if a.err != nil {
				yield(Object{}, a.err)
				return
			}
			for _, o := range a.page.Objects {
				if !yield(o, nil) {
					return
				}
			}
			if a.page.Next == "" {
				return
			}
		}
	}
}

// An askedPage is a page that was asked for, or why there is none.
type askedPage struct {
	page Page
	err  error
}

func askAhead(ctx context.Context, ask func(context.Context, string) (Page, error), token string) <-chan askedPage {
	c := make(chan askedPage, 1)
	go func() {
		defer close(c)
		p, err := ask(ctx, token)
		c <- askedPage{p, err}
	}()
	return c
}
