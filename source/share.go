package source

import (
	"context"
	"time"
)

// A Share lets origins that ask an upstream the same question at about the
// same time use one answer. The zero value is ready to use; a nil Share has
// everybody ask for himself.
type Share struct{}

// Do returns the answer to a question: the one that another caller is about to
// get or has got, when he began to ask no earlier than since, or else that of
// ask. The key says what is asked, of whom, and with which credentials. Errors
// are answers too, except that a caller whose ctx has not ended is never told
// of the end of another's.
func (s *Share) Do(ctx context.Context, key string, since time.Time, ask func(context.Context) (any, error)) (any, error) {
	return ask(ctx)
}
