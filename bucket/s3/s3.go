// Package s3 reads buckets of AWS and of other stores that speak the protocol
// of S3 (providers aws and generic) (reference A10).
//
// # Requests
//
// minio-go makes two: ListObjectsV2, 1000 keys a page, and GetObject with If-Match.
// A round tripper sends them to where the bucket is, and checks answers first.
// Neither the region nor the existence of the bucket is asked for, and redirects
// are not followed. Requests are signed with AWS4-HMAC-SHA256, or not at all.
//
//   - The region is spec.region, or what the host of AWS's endpoint says, or
//     us-east-1. A store that answers with another one is asked again there, once
//     for a request and three times in all; with AWS that is another host.
//   - The bucket is in the path. At AWS, Google and Alibaba Cloud it is in the
//     host, when its name can be.
//   - s3.amazonaws.com with a region is the host of that region.
//
// # Keys
//
//   - spec.secretRef: accesskey and secretkey. It comes before all others.
//   - spec.sts with provider ldap or webidentity: what the token service issues
//     for username and password, or for token, of spec.sts.secretRef. It is reached
//     over TLS unless it is on this machine or spec.insecure is set.
//   - provider aws: those of this program, see package source/login/aws, which gives them
//     to AWS alone. They go in the clear to this machine at most.
//   - else none.
//
// Keys that were issued are replaced shortly before they expire. A store that
// says they are not valid any more is asked again with new ones, once.
//
// # Limits
//
// A page has at most 8 MiB, the answer of a token service 1 MiB, a refusal 16 KiB.
// Buckets whose names AWS reserves for directories (S3 Express) are refused.
package s3

import (
	"context"
	"fmt"
	"net/url"
	"sync"

	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/source"
)

// A driver reads one bucket.
type driver struct {
	access   *bucket.Access
	endpoint *url.URL
	keys     *keyring

	mu    sync.Mutex
	at    site // moves on when a store names another region
	moves int
}

// Connect is a [bucket.Provider].
func Connect(ctx context.Context, a *bucket.Access) (bucket.Driver, error) {
	if err := check(a.Spec); err != nil {
		return nil, err
	}
	endpoint, _, err := a.Endpoint()
	if err != nil {
		return nil, err
	}
	d := &driver{access: a, endpoint: endpoint}
	d.at = d.locate(regionOf(endpoint, a.Spec.Region))
	if d.keys, err = keysFor(a, d.at); err != nil {
		return nil, err
	}
	if _, err := d.keys.get(ctx); err != nil {
		return nil, err
	}
	return d, nil
}

// check refuses names that no store has, and which would change what a request is for.
func check(spec *source.BucketSpec) error {
	if err := s3utils.CheckValidBucketName(spec.BucketName); err != nil {
		return fmt.Errorf("%w: spec.bucketName is no name of a bucket: it has 3 to 63 letters, digits, dots and hyphens", source.ErrInvalid)
	}
	if spec.Region != "" && !regionForm.MatchString(spec.Region) {
		return fmt.Errorf("%w: spec.region is no name of a region, such as eu-west-1", source.ErrInvalid)
	}
	if s3utils.IsS3ExpressBucket(spec.BucketName) && spec.Provider == "aws" {
		return fmt.Errorf("%w: spec.bucketName is that of a directory bucket (S3 Express), which cannot be read", source.ErrInvalid)
	}
	return nil
}

// locate returns the site of the bucket in a region.
func (d *driver) locate(region string) site {
	at := locate(d.endpoint, d.access.Spec.BucketName, region)
	if at.client = d.at.client; d.at.base == nil || *at.base != *d.at.base {
		at.client = d.access.Client(at.base, d.access.Way)
	}
	return at
}
