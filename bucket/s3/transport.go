package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/source"
)

const (
	pageSize = 1000                                                               // keys, the maximum of all stores
	maxPage  = 8 << 20                                                            // bytes of a page: 1000 keys of 1024 escaped bytes, and as much again
	emptySum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256 of nothing
)

// pages describes the responses to ListObjectsV2.
var pages = bucket.XMLPage{Root: "ListBucketResult", Item: "Contents", Items: pageSize, Each: []string{"Key", "Size"}, Needs: "IsTruncated"}

// explain replaces an error of minio-go by one without its text, which may contain secret
// values. It returns nil for nil.
func explain(err error) error {
	if refused, _ := errors.AsType[minio.ErrorResponse](err); refused.Code == minio.NotImplemented {
		return errors.New("there are more objects, says the store, but not how to ask for them: it lacks ListObjectsV2")
	} else if err != nil {
		return errors.New("the answer is not what a store of S3 writes")
	}
	return nil
}

// List implements [bucket.Driver].
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[bucket.Object, error] {
	return func(yield func(bucket.Object, error) bool) {
		requests, c := d.access.Listing(ctx)
		options := minio.ListObjectsOptions{Prefix: prefix, Recursive: true, MaxKeys: pageSize, FetchOwner: new(bool)}
		for o := range d.client.ListObjectsIter(requests, d.access.Spec.BucketName, options) {
			err := explain(o.Err)
			if err == nil && (o.Key == "" || o.Size < 0) {
				err = errors.New("the answer lists an object without Key or Size")
			}
			if err = c.Failed(ctx, err); !yield(bucket.Object{Key: o.Key, ETag: bucket.ETag(o.ETag), Size: o.Size}, err) || err != nil {
				return
			}
		}
		if ctx.Err() != nil { // minio-go then ends the listing without an error
			yield(bucket.Object{}, c.Failed(ctx, ctx.Err()))
		}
	}
}

// Open implements [bucket.Driver].
func (d *driver) Open(ctx context.Context, o bucket.Object, offset int64) (io.ReadCloser, error) {
	var options minio.GetObjectOptions
	options.Set("If-Match", `"`+o.ETag+`"`)
	switch {
	case offset > 0 && offset == o.Size:
		return http.NoBody, nil // a range cannot be empty
	case offset > 0:
		options.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	requests, c := d.access.Reading(ctx, o, offset)
	body, _, _, err := d.client.GetObject(requests, d.access.Spec.BucketName, "object", options) // a placeholder, because minio-go refuses blank keys
	return body, c.Failed(ctx, explain(err))
}

// checkObject checks that resp is the requested object. If the store ignored the range, it skips
// the bytes before the offset.
func (d *driver) checkObject(resp *http.Response, c *bucket.Call) error {
	from := c.Offset
	if resp.StatusCode == http.StatusOK {
		from = 0 // the range was ignored
	}
	if err := d.access.CheckPart(resp, *c.Object, from); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, resp.Body, c.Offset-from); err != nil {
		return fmt.Errorf("the answer breaks off: %w", err)
	}
	// minio-go refuses objects with headers that it cannot parse.
	resp.Header = http.Header{"Etag": resp.Header["Etag"], "Last-Modified": {"Thu, 01 Jan 1970 00:00:00 GMT"}}
	return nil
}

// send sends a request of minio-go, signed, to the location of the bucket, and returns the
// response if its status is a success. It retries a refused request at most once for each
// of two reasons: the bucket is in another region, or the keys are outdated.
func (d *driver) send(minioReq *http.Request, c *bucket.Call) (*http.Response, error) {
	ctx := minioReq.Context()
	var refused *source.Credential
	for moved := false; ; {
		at, keys, err := d.location.Load(), &d.staticKeys, error(nil)
		if d.issued != nil {
			if keys, err = d.issued.Get(ctx, refused); err != nil {
				return nil, err
			}
		}
		req := at.request(minioReq, c.Object, keys)
		resp, err := at.client.Do(req)
		if err != nil {
			return nil, d.access.Explain(ctx, c.Doing+" at "+at.base.Host, err, requestSecrets(req)...)
		}
		if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent {
			return resp, nil
		}
		e := d.access.ReadRefusal(resp, hints, requestSecrets(req)...)
		if e.Code == "" && e.Hint == "" {
			e.Hint = "that is not how a store of S3 answers: check spec.endpoint"
		}
		switch {
		case !moved && e.Region != "" && e.Region != at.region && regionForm.MatchString(e.Region):
			moved = true
			d.location.CompareAndSwap(at, d.locate(e.Region, at))
		case expiredCodes[e.Code] && d.issued != nil && refused == nil:
			refused = keys
		default:
			e.Refused = expiredCodes[e.Code]
			return nil, e
		}
	}
}

// requestSecrets returns the secret values of req, which a response may repeat.
func requestSecrets(req *http.Request) []string {
	secrets := []string{req.Header.Get("X-Amz-Security-Token")}
	for part := range strings.FieldsFuncSeq(req.Header.Get("Authorization"), func(r rune) bool { return r == ' ' || r == ',' }) {
		if name, value, found := strings.Cut(part, "="); found && name != "SignedHeaders" {
			secrets = append(secrets, value)
		}
	}
	return secrets
}

// request converts a request of minio-go for o, or for a page if o is nil, into a request
// to the bucket, and signs it with keys.
func (at *bucketURL) request(minioReq *http.Request, o *bucket.Object, keys *source.Credential) *http.Request {
	req := minioReq.Clone(minioReq.Context())
	req.Host, req.URL.Scheme, req.URL.Host, req.URL.Path = "", at.base.Scheme, at.base.Host, at.path
	if o != nil {
		req.URL.Path += o.Key
	}
	req.URL.RawPath = s3utils.EncodePath(req.URL.Path)
	values := req.URL.Query()
	values.Del("delimiter") // some stores do not ignore an empty delimiter
	req.URL.RawQuery = strings.ReplaceAll(values.Encode(), "+", "%20")
	if keys.Username == "" {
		return req
	}
	req.Header.Set("X-Amz-Content-Sha256", emptySum)
	return signer.SignV4(*req, keys.Username, keys.Password, keys.Token, at.region)
}

// expiredCodes are the error codes for keys that are no longer valid.
var expiredCodes = map[string]bool{"ExpiredToken": true, "ExpiredTokenException": true, "TokenRefreshRequired": true, "InvalidToken": true, "InvalidTokenId": true,
	"InvalidAccessKeyId": true, "InvalidClientTokenId": true}

// hints tell the user what to do about a refusal, by its code or status.
var hints = map[string]string{
	"NoSuchBucket":                 "check spec.bucketName, and that spec.endpoint and spec.region are where it is",
	"301":                          "set spec.endpoint and spec.region to where the bucket is",
	"AuthorizationHeaderMalformed": "set spec.region to that of the bucket",
	"InvalidRegion":                "set spec.region to that of the bucket",
	"InvalidObjectState":           "it is archived: restore it, or exclude it with spec.ignore",
	"NotImplemented":               "the store lacks ListObjectsV2 or GetObject with If-Match, which this needs",
	"MethodNotAllowed":             "check spec.endpoint: that is no store of S3, or its console",
	"RequestTimeTooSkewed":         "signatures are good for 15 minutes: check the clocks of this machine and of the store",
	"AccessDenied":                 "the keys need s3:ListBucket on the bucket and s3:GetObject on its objects",
	"InvalidAccessKeyId":           "check accesskey in the Secret of spec.secretRef; keys of a token service need the endpoint that it belongs to",
	"SignatureDoesNotMatch":        "check secretkey in the Secret of spec.secretRef; keys of a token service need the endpoint that it belongs to",
	"ExpiredToken":                 "log in anew; if the keys were issued just now, check the clocks of this machine and of the service that issues them",
}
