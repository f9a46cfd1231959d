package bucket

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"
)

// An Object is one object of a bucket as it was listed.
type Object struct {
	Key     string
	ETag    string // without quotes and W/, spelled the same however it was learned
	Size    int64  // bytes
	Version string // what the driver needs beyond ETag to read just this content, "" when nothing
}

// A Driver reads one bucket. It is safe for concurrent use, and trusts nothing
// that the store says further than the context lasts.
//
// Errors satisfy fs.ErrNotExist when there is no such bucket or object and
// fs.ErrPermission when credentials are missing or were refused; [*StatusError]
// is the answer of a store. No error, of any kind, shows credentials,
// signatures or the query of a URL.
type Driver interface {
	// List yields the objects whose keys begin with prefix, in any order, the
	// one error last. At most one page is asked for ahead of what is used. Keys
	// that end in / are directory markers, and so are directories of stores that
	// have any.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Open reads o, as it was listed, from offset on. The error wraps
	// [ErrChanged] when that is not what there is any more. Reading may end early
	// with an error, or without one when less was sent than announced.
	Open(ctx context.Context, o Object, offset int64) (io.ReadCloser, error)
}

// ErrChanged marks an object that is not what was listed any more.
var ErrChanged = errors.New("the object changed since it was listed")

// A Provider connects to the bucket that a names. It logs in where it has to,
// and sends the bucket nothing. Errors are *[source.StepError] with the reason
// URLInvalid, AuthenticationFailed, InvalidProviderConfiguration or
// InvalidSTSConfiguration, or wrap [source.ErrInvalid].
type Provider func(ctx context.Context, a *Access) (Driver, error)

// ETag returns the spelling of an entity tag that [Object] has: without quotes
// and W/. Stores spell the same tag differently in listings and in headers.
func ETag(s string) string {
	s = strings.TrimPrefix(strings.TrimSpace(s), "W/")
	if n := len(s); n >= 2 && s[0] == '"' && s[n-1] == '"' {
		s = s[1 : n-1]
	}
	return s
}
