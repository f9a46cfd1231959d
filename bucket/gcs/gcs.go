// Package gcs reads buckets of Google Cloud Storage (provider gcp), and of what
// speaks its JSON API (reference A10).
//
// # Endpoint
//
// spec.endpoint is HOST, HOST:PORT or a URL; /storage/v1/ is appended unless it
// ends in that. Google's is storage.googleapis.com.
//
// # Credentials
//
// The key serviceaccount of spec.secretRef is the JSON key of a service account
// (type service_account). Files of other types name servers to ask and programs
// to run, and are refused. The key is exchanged for an access token with the
// scope devstorage.read_only at its token_uri (RFC 7523), which must be an https
// URL; with spec.insecure it may be http on loopback. Whoever that is gets a
// proof that is good for nothing else than asking there.
//
// Without spec.secretRef the identity of the program is used, towards hosts of
// Google Cloud over TLS only. Where there is none, and for other endpoints,
// requests are anonymous, which is enough for public buckets; spec.serviceAccountName
// excludes that.
//
// Tokens are used for 80 % of their life. When the store refuses one, another
// is asked for, once a request.
//
// # Objects
//
// An object is read with its generation as a precondition, in one request, and
// as it is stored: objects with the content encoding gzip are not decompressed.
// The answer has to be of that generation and of the size that was listed. At the
// end of what is read from its beginning, reading fails unless it has the CRC-32C
// that the store announces. The ETag is that of the listing, which changes with an object's
// metadata as well.
//
// Neither credentials nor servers are looked for in the environment or at a
// metadata server here, nothing is logged, and nothing is sent about this machine.
package gcs

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"cloud.google.com/go/storage"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"

	"github.com/headgate-io/headgate/bucket"
)

const apiPath = "/storage/v1"

// Connect is a [bucket.Provider].
func Connect(ctx context.Context, a *bucket.Access) (bucket.Driver, error) {
	endpoint, _, err := a.Endpoint()
	if err != nil {
		return nil, err
	}
	tokens, err := identify(ctx, a, endpoint)
	if err != nil {
		return nil, err
	}
	client := *a.Client(endpoint, a.Way)
	g := &guard{next: client.Transport, access: a}
	if tokens != nil {
		g.next = &bucket.Bearer{Next: client.Transport, Tokens: tokens}
	}
	client.Transport = g
	sdk, err := storage.NewClient(ctx, option.WithHTTPClient(&client), option.WithoutAuthentication(), // the guard has the credentials
		option.WithEndpoint(api(endpoint)), storage.WithJSONReads(), option.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, stepError("InvalidProviderConfiguration", errors.New(a.Said(err.Error())))
	}
	sdk.SetRetry(storage.WithPolicy(storage.RetryNever)) // our client does that
	return &driver{bucket: sdk.Bucket(a.Spec.BucketName), access: a}, nil
}

// api returns the URL of the JSON API at endpoint.
func api(endpoint *url.URL) string {
	u := *endpoint
	if !strings.HasSuffix(u.Path, apiPath) {
		u.Path, u.RawPath = u.Path+apiPath, ""
	}
	return u.String() + "/"
}

const pageSize = 1000 // objects, the most that Cloud Storage sends

// A driver reads one bucket.
type driver struct {
	bucket *storage.BucketHandle
	access *bucket.Access
}

// List implements [bucket.Driver].
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		query := &storage.Query{Prefix: prefix, Projection: storage.ProjectionNoACL}
		err := query.SetAttrSelection([]string{"Name", "Etag", "Size", "Generation"})
		it := d.bucket.Objects(context.WithValue(bucket.Listing(ctx), callKey{}, new(call)), query)
		it.PageInfo().MaxSize = pageSize
		for err == nil {
			var a *storage.ObjectAttrs
			if a, err = it.Next(); err == nil && a.Name != "" && // else it is a prefix, which was not asked for
				!yield(bucket.Object{Key: a.Name, ETag: bucket.ETag(a.Etag), Size: a.Size, Version: strconv.FormatInt(a.Generation, 10)}, nil) {
				return
			}
		}
		if err != iterator.Done {
			yield(bucket.Object{}, d.access.Explain(ctx, "list objects", err))
		}
	}
}

// Open implements [bucket.Driver].
func (d *driver) Open(ctx context.Context, o bucket.Object, offset int64) (io.ReadCloser, error) {
	doing := "read " + d.access.Said(o.Key)
	generation, err := strconv.ParseInt(o.Version, 10, 64)
	switch {
	case o.Key == "" || err != nil || offset < 0:
		return nil, errors.New(doing + ": it was not listed")
	case offset > 0 && offset >= o.Size:
		return http.NoBody, nil
	}
	handle := d.bucket.Object(o.Key).If(storage.Conditions{GenerationMatch: generation})
	r, err := handle.NewRangeReader(context.WithValue(ctx, callKey{}, &call{object: &o, offset: offset}), offset, -1)
	if err != nil {
		return nil, d.access.Explain(ctx, doing, err)
	}
	return &body{r, d.access, ctx, doing}, nil
}

// A body is the content of an object. At its end the SDK compares it with the
// checksum that the store announced.
type body struct {
	io.ReadCloser
	access *bucket.Access
	ctx    context.Context
	doing  string
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = b.access.Explain(b.ctx, b.doing, err)
	}
	return n, err
}
