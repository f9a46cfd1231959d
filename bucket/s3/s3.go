// Package s3 reads buckets of AWS and of other stores that speak the protocol of S3
// (providers aws and generic) (reference A10).
//
// # Requests
//
// minio-go makes two kinds of requests: ListObjectsV2 with 1000 keys per page, and
// GetObject with If-Match. The driver sends them to the URL of the bucket, and checks
// responses before minio-go reads them. It does not query the region or the existence
// of the bucket, and follows no redirects. Requests are signed with AWS4-HMAC-SHA256
// or, for anonymous access, not at all.
//
//   - The region is spec.region, or the one in the host of an AWS endpoint, or
//     us-east-1. If the store answers with another region, the request is retried once
//     with that region; with AWS that is another host.
//   - The bucket is in the path. With AWS, Google and Alibaba Cloud it is in the host
//     if its name allows that.
//   - s3.amazonaws.com is replaced by the host of the region, unless that is us-east-1.
//
// # Keys
//
// The first of these is used:
//
//   - spec.secretRef: accesskey and secretkey.
//   - spec.sts with provider ldap or webidentity: the keys that the token service
//     issues for username and password, or for token, of spec.sts.secretRef. It is
//     contacted over TLS unless it is on this machine or spec.insecure is set.
//   - provider aws: the keys of this program, see package source/login/aws, which
//     issues them for AWS only. Requests with them use TLS, except to this machine.
//   - No keys: requests are anonymous.
//
// Issued keys are used for four fifths of their lifetime. If the store reports that
// they are no longer valid, the request is retried once with new keys.
//
// # Limits
//
// A page has at most 8 MiB, the answer of a token service 1 MiB. Buckets whose names
// AWS reserves for directories (S3 Express) are refused.
package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// A driver reads one bucket.
type driver struct {
	access     *bucket.Access
	endpoint   *url.URL
	staticKeys source.Credential         // keys: Username, Password and Token; empty for none
	issued     *bucket.CredentialCache   // in place of fixed, may be nil
	client     *minio.Core               // builds requests and decodes responses; its server name is a placeholder
	location   atomic.Pointer[bucketURL] // replaced when the store names another region
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
	d.location.Store(d.locate(regionOf(endpoint, a.Spec.Region), nil))
	if err := d.authenticate(ctx); err != nil {
		return nil, err
	}
	guard := &bucket.Guard{Access: a, Send: d.send, Page: pages.Check, PageBytes: maxPage, Token: "continuation-token", Object: d.checkObject}
	if d.issued == nil && d.staticKeys.Username == "" {
		guard.Anonymous = "the bucket does not allow anonymous reads: set spec.secretRef to a Secret with accesskey and secretkey"
	}
	d.client, err = minio.NewCore("s3.invalid", &minio.Options{Creds: credentials.NewStaticV4("", "", ""), Secure: true, Transport: guard,
		Region: defaultRegion, BucketLookup: minio.BucketLookupPath, MaxRetries: 1})
	return d, err
}

// check refuses invalid names of buckets and regions, which could change the meaning of a request.
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

const defaultRegion = "us-east-1"

var (
	// regionForm matches regions that are valid in the scope of a signature.
	regionForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	// awsRegion matches regions that are valid in a host of AWS.
	awsRegion = regexp.MustCompile(`^[a-z]{2,4}(-[a-z]+){1,3}-[0-9]{1,2}$`)
	// awsHost matches an endpoint of AWS: the part before the region, the region, and the rest.
	awsHost = regexp.MustCompile(`^(s3(?:-fips)?(?:\.dualstack)?[.-])([a-z]{2,4}(?:-[a-z]+){1,3}-[0-9]{1,2})(\.amazonaws\.com(?:\.cn)?)$`)
)

// A bucketURL is the location of a bucket.
type bucketURL struct {
	base   *url.URL // scheme and host
	server string   // the host without the bucket
	path   string   // prefix of keys in the path: / or /BUCKET/
	region string   // region that requests are signed for
	client *http.Client
}

// locate returns the location of the bucket in a region. It reuses the client of before,
// which may be nil, if the server is the same.
func (d *driver) locate(region string, before *bucketURL) *bucketURL {
	at := locate(d.endpoint, d.access.Spec.BucketName, region)
	if before != nil && *at.base == *before.base {
		at.client = before.client
	} else {
		at.client = d.access.Client(at.base, d.access.Transport)
	}
	return at
}

// regionOf returns the region of the first request: region, or that of the endpoint, or the default.
func regionOf(endpoint *url.URL, region string) string {
	return cmp.Or(region, s3utils.GetRegionFromURL(url.URL{Scheme: endpoint.Scheme, Host: hostOf(endpoint)}), defaultRegion)
}

func locate(endpoint *url.URL, bucket, region string) *bucketURL {
	base := &url.URL{Scheme: endpoint.Scheme, Host: regionalHost(hostOf(endpoint), region)}
	at := &bucketURL{base: base, server: base.Host, path: "/" + bucket + "/", region: region}
	if s3utils.CheckValidBucketNameStrict(bucket) == nil && s3utils.IsVirtualHostSupported(*base, bucket) {
		at.base, at.path = &url.URL{Scheme: base.Scheme, Host: bucket + "." + base.Host}, "/"
	}
	return at
}

// hostOf returns the host of u in lower case, without the default port of its scheme,
// which some servers leave out of signatures.
func hostOf(u *url.URL) string {
	host := strings.TrimSuffix(u.Host, map[string]string{"http": ":80", "https": ":443"}[u.Scheme])
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// regionalHost returns the host of AWS for a region. It returns other hosts unchanged.
func regionalHost(host, region string) string {
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

func invalid(reason, text string) error {
	return bucket.Failed(reason, fmt.Errorf("%w: %s", source.ErrInvalid, text))
}

// authenticate sets the keys of the driver. Errors are *[source.StepError].
func (d *driver) authenticate(ctx context.Context) (err error) {
	a, sts := d.access, d.access.Spec.STS
	if a.Spec.SecretRef != nil {
		if d.staticKeys.Username, d.staticKeys.Password, err = transport.S3Keys(a.Secret.Name, a.Secret.Secret); err != nil {
			err = bucket.Failed("AuthenticationFailed", fmt.Errorf("spec.secretRef: %w", err))
		}
		return err
	}
	if sts == nil && a.Spec.Provider != "aws" {
		return nil
	}
	var service *url.URL
	if sts != nil {
		if service, err = sts.EndpointURL(); err != nil {
			return bucket.Failed("URLInvalid", err)
		}
	}
	issue := d.ownIdentity
	if sts != nil && sts.Provider != source.STSAWS {
		issue, err = d.exchangeKeys(service)
	} else if at := d.location.Load().base; at.Scheme == "http" && transport.ZoneOfHost(at) != transport.Link {
		err = invalid("InvalidProviderConfiguration", "spec.insecure: the identity of this program is not shown in the clear: remove it, or set spec.secretRef")
	}
	if err == nil {
		d.issued, err = bucket.NewCredentialCache(ctx, issue)
	}
	return err
}

// ownIdentity returns keys issued to the identity of this program, by the service of
// spec.sts if there is one.
func (d *driver) ownIdentity(ctx context.Context) (source.Credential, error) {
	spec := d.access.Spec
	u := &url.URL{Scheme: "s3", Host: d.location.Load().server, Path: "/" + spec.BucketName}
	if spec.STS != nil {
		u.RawQuery = url.Values{"sts": {spec.STS.Endpoint}}.Encode()
	}
	issued, err := d.access.LogIn(ctx, u)
	if errors.Is(err, errors.ErrUnsupported) {
		err = invalid("InvalidProviderConfiguration", "spec.provider: this program cannot log in with provider aws: set spec.secretRef")
	}
	return issued, err
}

// exchangeKeys returns a function that gets keys from the token service of spec.sts.
func (d *driver) exchangeKeys(service *url.URL) (func(context.Context) (source.Credential, error), error) {
	a, sts := d.access, d.access.Spec.STS
	switch {
	case sts.SecretRef == nil:
		return nil, invalid("InvalidSTSConfiguration", "spec.sts.secretRef is required with provider "+sts.Provider)
	case service.Scheme == "http" && !a.Spec.Insecure && transport.ZoneOfHost(service) != transport.Link:
		return nil, invalid("InvalidSTSConfiguration", "spec.sts.endpoint would be shown credentials in the clear: use https, or set spec.insecure to allow that")
	}
	var err error
	var retrieve func(*credentials.CredContext) (credentials.Value, error)
	switch sts.Provider {
	case source.STSLDAP:
		p := &credentials.LDAPIdentity{STSEndpoint: service.String()}
		p.LDAPUsername, p.LDAPPassword, err = transport.LDAP(a.STS.Name, a.STS.Secret)
		retrieve = p.RetrieveWithCredContext
	case source.STSWebIdentity:
		var token string
		p := &credentials.STSWebIdentity{STSEndpoint: service.String(), GetWebIDTokenExpiry: func() (*credentials.WebIdentityToken, error) {
			return &credentials.WebIdentityToken{Token: token}, nil
		}}
		token, p.RoleARN, err = transport.WebIdentity(a.STS.Name, a.STS.Secret)
		retrieve = p.RetrieveWithCredContext
	default:
		return nil, invalid("InvalidSTSConfiguration", fmt.Sprintf("spec.sts.provider %q is not known here", sts.Provider))
	}
	if err != nil {
		return nil, bucket.Failed("AuthenticationFailed", fmt.Errorf("spec.sts.secretRef: %w", err))
	}
	client := a.Client(service, a.STSTransport)
	return func(ctx context.Context) (source.Credential, error) {
		s := a.TokenService(ctx, client, "check spec.sts.endpoint, and the Secret of spec.sts.secretRef")
		v, err := retrieve(&credentials.CredContext{Client: s.Client(), Context: ctx})
		a.SecretReader.Conceal(v.AccessKeyID, v.SecretAccessKey, v.SessionToken)
		if err != nil {
			return source.Credential{}, s.Failed("log in to the token service "+redact.URL(service), err)
		}
		return source.Credential{Username: v.AccessKeyID, Password: v.SecretAccessKey, Token: v.SessionToken, Expires: v.Expiration}, nil
	}, nil
}
