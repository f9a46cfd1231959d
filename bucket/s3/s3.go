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
// Keys that were issued are used for four fifths of their life. A store that
// says they are not valid any more is asked again with new ones, once.
//
// # Limits
//
// A page has at most 8 MiB, the answer of a token service 1 MiB. Buckets whose
// names AWS reserves for directories (S3 Express) are refused.
package s3

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/source"
)

// A driver reads one bucket.
type driver struct {
	access   *bucket.Access
	endpoint *url.URL
	fixed    source.Credential // keys: Username, Password and Token; empty for none
	issued   *bucket.Issued    // in place of fixed, may be nil
	client   *minio.Core       // builds requests and decodes answers; its server is a stand-in, and the driver its transport

	mu    sync.Mutex
	at    bucketURL // moves on when a store names another region
	moves int
}

var _ bucket.Driver = (*driver)(nil)

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
	if err := d.authenticate(ctx); err != nil {
		return nil, err
	}
	d.client, err = minio.NewCore("s3.invalid", &minio.Options{Creds: credentials.NewStaticV4("", "", ""), Secure: true, Transport: d,
		Region: defaultRegion, BucketLookup: minio.BucketLookupPath, MaxRetries: 1})
	return d, err
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

const (
	defaultRegion = "us-east-1"
	maxMoves      = 3 // of a bucket from region to region
)

var (
	// regionForm is what may stand in the scope of a signature.
	regionForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	// awsRegion is what may stand in a host of AWS.
	awsRegion = regexp.MustCompile(`^[a-z]{2,4}(-[a-z]+){1,3}-[0-9]{1,2}$`)
	// awsHost is an endpoint of AWS: what comes before the region, and behind it.
	awsHost = regexp.MustCompile(`^(s3(?:-fips)?(?:\.dualstack)?[.-])([a-z]{2,4}(?:-[a-z]+){1,3}-[0-9]{1,2})(\.amazonaws\.com(?:\.cn)?)$`)
)

// A bucketURL is where a bucket is.
type bucketURL struct {
	base   *url.URL // scheme and host
	server string   // the host without the bucket
	path   string   // what comes before keys: / or /BUCKET/
	region string   // that requests are signed for
	client *http.Client
}

// locate returns where the bucket is in a region.
func (d *driver) locate(region string) bucketURL {
	at := locate(d.endpoint, d.access.Spec.BucketName, region)
	if at.client = d.at.client; d.at.base == nil || *at.base != *d.at.base {
		at.client = d.access.Client(at.base, d.access.Way)
	}
	return at
}

// regionOf returns the region that a bucket is looked for in.
func regionOf(endpoint *url.URL, region string) string {
	return cmp.Or(region, s3utils.GetRegionFromURL(url.URL{Scheme: endpoint.Scheme, Host: hostOf(endpoint)}), defaultRegion)
}

func locate(endpoint *url.URL, bucket, region string) bucketURL {
	base := &url.URL{Scheme: endpoint.Scheme, Host: hostIn(hostOf(endpoint), region)}
	at := bucketURL{base: base, server: base.Host, path: "/" + bucket + "/", region: region}
	if s3utils.CheckValidBucketNameStrict(bucket) == nil && s3utils.IsVirtualHostSupported(*base, bucket) {
		at.base, at.path = &url.URL{Scheme: base.Scheme, Host: bucket + "." + base.Host}, "/"
	}
	return at
}

// hostOf returns the host of u without the port of its scheme, which some
// servers leave out of signatures.
func hostOf(u *url.URL) string {
	host := strings.TrimSuffix(u.Host, map[string]string{"http": ":80", "https": ":443"}[u.Scheme])
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// hostIn returns the host of AWS for a region; any other host stays as it is.
func hostIn(host, region string) string {
	if !awsRegion.MatchString(region) {
		return host
	}
	if host == "s3.amazonaws.com" && region != defaultRegion {
		host = "s3." + defaultRegion + ".amazonaws.com"
	}
	m := awsHost.FindStringSubmatch(host)
	if m == nil || strings.HasPrefix(region, "cn-") != strings.HasSuffix(host, ".cn") {
		return host
	}
	return m[1] + region + m[3]
}

// move looks for the bucket in another region than at, unless another request
// did already. It reports whether the driver is elsewhere now.
func (d *driver) move(at bucketURL, region string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.region == at.region && d.moves < maxMoves {
		d.moves++
		d.at = d.locate(region)
	}
	return d.at.region != at.region
}

func (d *driver) where() bucketURL {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}
