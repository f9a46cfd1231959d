package s3

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/source"
)

const (
	emptySum  = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256 of nothing
	freshFor  = 5 * time.Minute                                                    // how old a signature may be before its age is why it was refused
	maxBreaks = 3                                                                  // tries of an answer that breaks off
)

// A call is the transport of one call of minio-go, which builds the request and
// decodes the answer. The call sends the request to where the bucket is, signed,
// and checks the answer before minio-go reads it.
type call struct {
	*driver
	ctx   context.Context
	doing string // for messages
	key   string // of the object, "" for the bucket
	check func(resp *http.Response) error
	err   error // of RoundTrip: minio-go makes a text of some errors
}

// client returns the client for one call. Its endpoint is a stand-in.
func (c *call) client() (*minio.Core, error) {
	return minio.NewCore("s3.invalid", &minio.Options{Creds: credentials.NewStaticV4("", "", ""), Secure: true, Transport: c,
		Region: defaultRegion, BucketLookup: minio.BucketLookupPath, MaxRetries: 1})
}

// failed returns the error of the call, given that of minio-go.
func (c *call) failed(err error) error {
	switch {
	case err == nil || c.err != nil:
		return c.err
	case c.ctx.Err() != nil: // nothing was sent
		return fmt.Errorf("%s: %w", c.doing, context.Cause(c.ctx))
	}
	return fmt.Errorf("%s: the answer is not what a store of S3 writes", c.doing) // the text of err shows values
}

// RoundTrip implements [http.RoundTripper].
func (c *call) RoundTrip(req *http.Request) (*http.Response, error) {
	for try := 1; ; try++ {
		resp, err := c.send(req)
		if err == nil {
			if err = c.check(resp); err == nil {
				return resp, nil
			}
			resp.Body.Close()
			if errors.Is(err, bucket.ErrBroken) && c.ctx.Err() == nil && try < maxBreaks {
				continue
			}
			err = c.access.Explain(c.ctx, c.doing, err)
		}
		c.err = err
		return nil, err
	}
}

// send sends req, and returns the answer when that is a success. A request that
// is refused is sent again, once for each reason that can be removed: the bucket is
// in another region, the keys are outdated, the signature waited for too long.
func (c *call) send(req *http.Request) (*http.Response, error) {
	var refused *source.Credential
	for moved, resigned := false, false; ; {
		at := c.where()
		keys, err := &c.fixed, error(nil)
		if c.issued != nil {
			if keys, err = c.issued.Get(c.ctx, refused); err != nil {
				return nil, err
			}
		}
		signed := time.Now()
		out := at.request(c.ctx, req, c.key, keys)
		resp, err := at.client.Do(out)
		if err != nil {
			return nil, c.access.Explain(c.ctx, c.doing+" at "+at.base.Host, err, proofs(out)...)
		}
		if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent {
			return resp, nil
		}
		e, region := c.access.Refused(resp, c.doing, c.hints(), proofs(out)...)
		if e.Code == "" && e.Hint == "" {
			e.Hint = "that is not how a store of S3 answers: check spec.endpoint"
		}
		switch {
		case !moved && region != "" && region != at.region && regionForm.MatchString(region):
			if moved = true; c.move(at, region) {
				continue
			}
		case outdated[e.Code]:
			if e.Refused = true; c.issued != nil && refused == nil {
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

// request returns the request that minio-go made as it is sent to a bucket for key, signed with keys.
func (at bucketURL) request(ctx context.Context, made *http.Request, key string, keys *source.Credential) *http.Request {
	req := made.Clone(ctx)
	req.Host, req.URL.Scheme, req.URL.Host = "", at.base.Scheme, at.base.Host
	req.URL.Path = at.path + key
	req.URL.RawPath = s3utils.EncodePath(req.URL.Path)
	values := req.URL.Query()
	values.Del("fetch-owner") // minio-go asks for owners, and for common prefixes
	values.Del("delimiter")
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
		"InvalidAccessKeyId":    "the store does not know the keys that were issued: check that spec.endpoint goes with the service that issues them",
		"SignatureDoesNotMatch": "the store does not know the keys that were issued: check that spec.endpoint goes with the service that issues them",
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
