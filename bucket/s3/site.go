package s3

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/minio/minio-go/v7/pkg/s3utils"
)

const defaultRegion = "us-east-1"

var (
	// regionForm is what may stand in the scope of a signature.
	regionForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	// awsRegion is what may stand in a host of AWS.
	awsRegion = regexp.MustCompile(`^[a-z]{2,4}(-[a-z]+){1,3}-[0-9]{1,2}$`)
	// awsHost is an endpoint of AWS: what comes before the region, and behind it.
	awsHost = regexp.MustCompile(`^(s3(?:-fips)?(?:\.dualstack)?[.-])([a-z]{2,4}(?:-[a-z]+){1,3}-[0-9]{1,2})(\.amazonaws\.com(?:\.cn)?)$`)
)

const awsGlobal = "s3.amazonaws.com"

// A site is where a bucket is.
type site struct {
	base   *url.URL // scheme and host
	server string   // the host without the bucket
	path   string   // what comes before keys: / or /BUCKET/
	region string   // that requests are signed for
	client *http.Client
}

// regionOf returns the region that a bucket is looked for in.
func regionOf(endpoint *url.URL, region string) string {
	return cmp.Or(region, s3utils.GetRegionFromURL(url.URL{Scheme: endpoint.Scheme, Host: shortened(endpoint)}), defaultRegion)
}

// locate returns the site of a bucket in a region.
func locate(endpoint *url.URL, bucket, region string) site {
	base := &url.URL{Scheme: endpoint.Scheme, Host: hostIn(shortened(endpoint), region)}
	at := site{base: base, server: base.Host, path: "/" + bucket + "/", region: region}
	if inHost(base, bucket) {
		at.base, at.path = &url.URL{Scheme: base.Scheme, Host: bucket + "." + base.Host}, "/"
	}
	return at
}

// shortened returns the host of u without the port of its scheme, which some
// servers leave out of signatures.
func shortened(u *url.URL) string {
	host := strings.TrimSuffix(u.Host, map[string]string{"http": ":80", "https": ":443"}[u.Scheme])
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// hostIn returns the host of AWS for a region; any other host stays as it is.
func hostIn(host, region string) string {
	if !awsRegion.MatchString(region) {
		return host
	}
	if host == awsGlobal && region != defaultRegion {
		host = "s3." + defaultRegion + ".amazonaws.com"
	}
	m := awsHost.FindStringSubmatch(host)
	if m == nil || strings.HasPrefix(region, "cn-") != strings.HasSuffix(host, ".cn") {
		return host
	}
	return m[1] + region + m[3]
}

// inHost reports whether the bucket is a part of the host in requests to base.
func inHost(base *url.URL, bucket string) bool {
	return s3utils.CheckValidBucketNameStrict(bucket) == nil && s3utils.IsVirtualHostSupported(*base, bucket)
}
