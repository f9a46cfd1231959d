package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/source"
)

const (
	pageSize  = 1000                                                               // keys; no store gives more
	maxPage   = 8 << 20                                                            // bytes of a page: 1000 keys of 1024 bytes, each of them escaped, and as much again
	emptySum  = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256 of nothing
	freshFor  = 5 * time.Minute                                                    // how old a signature may be before its age is why it was refused
	maxBreaks = 3                                                                  // tries of a page that breaks off
)

// pages are the answers to ListObjectsV2.
var pages = bucket.XMLPage{Root: "ListBucketResult", Item: "Contents", Items: pageSize, Each: []string{"Key", "Size"}, Needs: "IsTruncated", Limit: maxPage}

// A call is one call of minio-go, which makes texts of errors of its transport.
type call struct {
	doing  string
	object *bucket.Object // nil: the listing
	offset int64
	err    error // of the transport
}

// callKey is the key of the context value that is a *[call].
type callKey struct{}

// failed returns the error of the call, given that of minio-go.
func (c *call) failed(ctx context.Context, err error) error {
	refused, _ := errors.AsType[minio.ErrorResponse](err)
	switch {
	case err == nil || c.err != nil:
		return c.err
	case ctx.Err() != nil: // nothing was sent
		return fmt.Errorf("%s: %w", c.doing, context.Cause(ctx))
	case refused.Code == minio.NotImplemented:
		return errors.New("list objects: there are more objects, says the store, but not how to ask for them: it lacks ListObjectsV2")
	}
	return fmt.Errorf("%s: the answer is not what a store of S3 writes", c.doing) // the text of err shows values
}

// List implements [bucket.Driver].
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		c := &call{doing: "list objects"}
		options := minio.ListObjectsOptions{Prefix: prefix, Recursive: true, MaxKeys: pageSize, FetchOwner: new(bool)}
		for o := range d.client.ListObjectsIter(context.WithValue(bucket.Listing(ctx), callKey{}, c), d.access.Spec.BucketName, options) {
			err := c.failed(ctx, o.Err)
			if err == nil && (o.Key == "" || o.Size < 0) {
				err = errors.New("list objects: the answer lists an object without Key or Size")
			}
			if !yield(bucket.Object{Key: o.Key, ETag: bucket.ETag(o.ETag), Size: o.Size}, err) || err != nil {
				return
			}
		}
		if ctx.Err() != nil { // which ends the listing without an error
			yield(bucket.Object{}, c.failed(ctx, ctx.Err()))
		}
	}
}

// Open implements [bucket.Driver].
func (d *driver) Open(ctx context.Context, o bucket.Object, offset int64) (io.ReadCloser, error) {
	var options minio.GetObjectOptions
	options.Set("If-Match", `"`+o.ETag+`"`)
	switch {
	case offset > 0 && offset == o.Size:
		return http.NoBody, nil // no range is empty
	case offset > 0:
		options.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	c := &call{doing: "get object", object: &o, offset: offset}
	body, _, _, err := d.client.GetObject(context.WithValue(ctx, callKey{}, c), d.access.Spec.BucketName, "object", options) // a stand-in: it refuses blank keys
	return body, c.failed(ctx, err)
}

// RoundTrip implements [http.RoundTripper] for minio-go: it sends a request to where the
// bucket is, signed, and checks the answer before minio-go reads it.
func (d *driver) RoundTrip(req *http.Request) (*http.Response, error) {
	c, ok := req.Context().Value(callKey{}).(*call)
	if !ok {
		return nil, errors.New("minio-go sends a request that was not asked for")
	}
	c.err = bucket.NextPage(req.Context(), req.URL.Query().Get("continuation-token"))
	var resp *http.Response
	for try := 0; c.err == nil || errors.Is(c.err, bucket.ErrBroken) && req.Context().Err() == nil && try < maxBreaks; try++ {
		if resp, c.err = d.send(req, c); c.err != nil {
			return nil, c.err
		}
		if c.object == nil {
			c.err = pages.Check(resp)
		} else {
			c.err = d.begin(resp, *c.object, c.offset)
		}
		if c.err == nil {
			return resp, nil
		}
		resp.Body.Close()
	}
	c.err = d.access.Explain(req.Context(), c.doing, c.err)
	return nil, c.err
}

// begin makes sure that the content of resp is that of o from offset on.
func (d *driver) begin(resp *http.Response, o bucket.Object, offset int64) error {
	from := offset
	if resp.StatusCode == http.StatusOK {
		from = 0 // the range was ignored
	}
	if err := d.access.CheckPart(resp, o, from); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, resp.Body, offset-from); err != nil {
		return fmt.Errorf("the answer breaks off: %w", err)
	}
	// minio-go would refuse objects with other headers that it cannot parse.
	resp.Header = http.Header{"Etag": resp.Header["Etag"], "Last-Modified": {"Thu, 01 Jan 1970 00:00:00 GMT"}}
	return nil
}

// send sends req, and returns the answer when that is a success. A request that
// is refused is sent again, once for each reason that can be removed: the bucket is
// in another region, the keys are outdated, the signature waited for too long.
func (d *driver) send(req *http.Request, c *call) (*http.Response, error) {
	ctx := req.Context()
	var refused *source.Credential
	for moved, resigned := false, false; ; {
		at, keys, err := d.where(), &d.fixed, error(nil)
		if d.issued != nil {
			if keys, err = d.issued.Get(ctx, refused); err != nil {
				return nil, err
			}
		}
		signed := time.Now()
		out := at.request(req, c, keys)
		resp, err := at.client.Do(out)
		if err != nil {
			return nil, d.access.Explain(ctx, c.doing+" at "+at.base.Host, err, proofs(out)...)
		}
		if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent {
			return resp, nil
		}
		e := d.access.Refused(resp, d.hints(), proofs(out)...)
		if e.Doing = c.doing; e.Code == "" && e.Hint == "" {
			e.Hint = "that is not how a store of S3 answers: check spec.endpoint"
		}
		switch {
		case !moved && e.Region != "" && e.Region != at.region && regionForm.MatchString(e.Region):
			if moved = true; d.move(at, e.Region) {
				continue
			}
		case outdated[e.Code]:
			if e.Refused = true; d.issued != nil && refused == nil {
				refused = keys
				continue
			}
		case !resigned && e.Code == tooSkewed && time.Since(signed) > freshFor:
			resigned = true
			continue
		}
		return nil, e
	}
}

// proofs returns what an answer to req must not show.
func proofs(req *http.Request) []string {
	secrets := []string{req.Header.Get("X-Amz-Security-Token")}
	for part := range strings.FieldsFuncSeq(req.Header.Get("Authorization"), func(r rune) bool { return r == ' ' || r == ',' }) {
		if name, value, found := strings.Cut(part, "="); found && name != "SignedHeaders" {
			secrets = append(secrets, value)
		}
	}
	return secrets
}

// request returns the request that minio-go made for a call as it is sent to a bucket, signed with keys.
func (at bucketURL) request(made *http.Request, c *call, keys *source.Credential) *http.Request {
	req := made.Clone(made.Context())
	req.Host, req.URL.Scheme, req.URL.Host, req.URL.Path = "", at.base.Scheme, at.base.Host, at.path
	if c.object != nil {
		req.URL.Path += c.object.Key
	}
	req.URL.RawPath = s3utils.EncodePath(req.URL.Path)
	values := req.URL.Query()
	values.Del("delimiter") // which some stores take for one even if it is empty
	req.URL.RawQuery = strings.ReplaceAll(values.Encode(), "+", "%20")
	req.Header.Set("User-Agent", "headgate")
	req.Header.Set("Accept-Encoding", "identity") // objects come as they are stored
	if keys.Username == "" {
		return req
	}
	req.Header.Set("X-Amz-Content-Sha256", emptySum)
	return signer.SignV4(*req, keys.Username, keys.Password, keys.Token, at.region)
}

// outdated are the reasons why keys that were good are not any more.
var outdated = map[string]bool{
	"ExpiredToken":          true,
	"ExpiredTokenException": true,
	"TokenRefreshRequired":  true,
	"InvalidToken":          true,
	"InvalidTokenId":        true,
	"InvalidAccessKeyId":    true,
	"InvalidClientTokenId":  true,
}

const tooSkewed = "RequestTimeTooSkewed"

const strangeKeys = "the store does not know the keys that were issued: check that spec.endpoint goes with the service that issues them"

// What to do about a code, by the keys that were refused.
var (
	hints = map[string]string{
		"NoSuchBucket":                 "check spec.bucketName, and that spec.endpoint and spec.region are where it is",
		"301":                          "set spec.endpoint and spec.region to where the bucket is",
		"AuthorizationHeaderMalformed": "set spec.region to that of the bucket",
		"InvalidRegion":                "set spec.region to that of the bucket",
		"InvalidObjectState":           "it is archived: restore it, or exclude it with spec.ignore",
		"NotImplemented":               "the store lacks ListObjectsV2 or GetObject with If-Match, which this needs",
		"MethodNotAllowed":             "check spec.endpoint: that is no store of S3, or its console",
		tooSkewed:                      "signatures are good for 15 minutes: check the clocks of this machine and of the store",
		"AccessDenied":                 "the keys need s3:ListBucket on the bucket and s3:GetObject on its objects",
	}
	hintsAnonymous = map[string]string{
		"AccessDenied": "not everybody may read the bucket: set spec.secretRef to a Secret with accesskey and secretkey",
	}
	hintsFixed = map[string]string{
		"InvalidAccessKeyId":    "check accesskey in the Secret of spec.secretRef",
		"SignatureDoesNotMatch": "check secretkey in the Secret of spec.secretRef",
	}
	hintsIssued = map[string]string{
		"InvalidAccessKeyId":    strangeKeys,
		"SignatureDoesNotMatch": strangeKeys,
		"ExpiredToken":          "the keys that were issued just now have expired: check the clocks of this machine and of the service that issues them",
	}
)

// hints returns what to do about refusals, by code.
func (d *driver) hints() map[string]string {
	mine := hintsFixed
	switch {
	case d.issued != nil:
		mine = hintsIssued
	case d.fixed.Username == "":
		mine = hintsAnonymous
	}
	all := maps.Clone(hints)
	maps.Copy(all, mine)
	return all
}
