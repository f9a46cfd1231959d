package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
	"github.com/minio/minio-go/v7/pkg/signer"

	"github.com/headgate-io/headgate/bucket"
)

const (
	userAgent = "headgate"
	emptySum  = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256 of nothing
	freshFor  = 5 * time.Minute                                                    // how old a signature may be before its age is why it was refused
	maxMoves  = 3                                                                  // of a bucket from region to region
	maxBreaks = 3                                                                  // tries of an answer that breaks off
)

// A cure is what may make a request that was refused succeed.
type cure int

const (
	none   cure = iota
	move        // to another region
	rekey       // with other keys
	resign      // now: it waited for too long
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
			if errors.Is(err, bucket.ErrBroken) {
				err = c.unanswered(c.site(), err, c.access.Vault.Values()...)
			} else {
				err = fmt.Errorf("%s: %w", c.doing, err)
			}
		}
		c.err = err
		return nil, err
	}
}

// send sends req, and returns the answer when that is a success. What can be
// cured is asked again, once for each cure.
func (c *call) send(req *http.Request) (*http.Response, error) {
	tried := map[cure]bool{none: true}
	for {
		at := c.site()
		k, err := c.keys.get(c.ctx)
		if err != nil {
			return nil, err
		}
		signed := time.Now()
		out := at.request(c.ctx, req, c.key, k)
		resp, err := at.client.Do(out)
		if err != nil {
			return nil, c.unanswered(at, err, c.secrets(out)...)
		}
		if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent {
			return resp, nil
		}
		r := refusalOf(resp, c.doing, c.secrets(out)...)
		way := r.cure(at.region, signed)
		if tried[way] {
			return nil, r.status(c.hints(k))
		}
		tried[way] = true
		if cured, err := c.apply(c.ctx, way, r, at, k); !cured || err != nil {
			return nil, cmp.Or[error](err, r.status(c.hints(k)))
		}
	}
}

// apply does what c needs, and reports whether it is worth another try.
func (d *driver) apply(ctx context.Context, c cure, r *refusal, at site, k *keys) (bool, error) {
	switch c {
	case move:
		return d.move(at, r.region), nil
	case rekey:
		return d.keys.renew(ctx, k)
	}
	return true, nil
}

// move looks for the bucket in another region than at, unless somebody did
// already. It reports whether the driver is elsewhere now.
func (d *driver) move(at site, region string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.region == at.region && d.moves < maxMoves {
		d.moves++
		d.at = d.locate(region)
	}
	return d.at.region != at.region
}

func (d *driver) site() site {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}

// secrets returns what an answer to req must not show.
func (d *driver) secrets(req *http.Request) []string {
	secrets := append(d.access.Vault.Values(), req.Header.Get("X-Amz-Security-Token"))
	for part := range strings.FieldsFuncSeq(req.Header.Get("Authorization"), func(r rune) bool { return r == ' ' || r == ',' }) {
		if name, value, found := strings.Cut(part, "="); found && name != "SignedHeaders" {
			secrets = append(secrets, value)
		}
	}
	return secrets
}

// unanswered says why there was no answer, without the query of the request and secrets.
func (c *call) unanswered(at site, err error, secrets ...string) error {
	if c.ctx.Err() != nil {
		err = context.Cause(c.ctx)
	}
	return fmt.Errorf("%s at %s: %w", c.doing, at.base.Host, bare(err, tlsOfEndpoint, secrets...))
}

// request returns the request that minio-go made as it is sent to a site for key, signed with k.
func (at site) request(ctx context.Context, made *http.Request, key string, k *keys) *http.Request {
	req := made.Clone(ctx)
	req.Host, req.URL.Scheme, req.URL.Host = "", at.base.Scheme, at.base.Host
	req.URL.Path = at.path + key
	req.URL.RawPath = s3utils.EncodePath(req.URL.Path)
	values := req.URL.Query()
	values.Del("fetch-owner") // minio-go asks for owners, and for common prefixes
	values.Del("delimiter")
	req.URL.RawQuery = strings.ReplaceAll(values.Encode(), "+", "%20")
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept-Encoding", "identity") // objects come as they are stored
	if k.access == "" {
		return req
	}
	req.Header.Set("X-Amz-Content-Sha256", emptySum)
	return signer.SignV4(*req, k.access, k.secret, k.session, at.region)
}

// hints returns what to do about refusals of k.
func (d *driver) hints(k *keys) map[string]string {
	switch {
	case k.access == "":
		return hintsOfNobody
	case d.keys.issue != nil:
		return hintsOfIssued
	}
	return hintsOfKeys
}

var _ bucket.Driver = (*driver)(nil)
