package s3

import (
	"net/url"
	"testing"
)

func TestLocate(t *testing.T) {
	for _, c := range []struct {
		endpoint, bucket, region string
		at                       string // URL of the bucket
		signedFor                string
	}{
		{"https://minio.lab:9000", "bucket", "", "https://minio.lab:9000/bucket/", "us-east-1"},
		{"http://127.0.0.1:80", "bucket", "lab", "http://127.0.0.1/bucket/", "lab"},
		{"http://[::1]:9000", "bucket", "", "http://[::1]:9000/bucket/", "us-east-1"},
		{"https://MINIO.lab.:443", "bucket", "", "https://minio.lab/bucket/", "us-east-1"},
		{"https://s3.amazonaws.com", "bucket", "", "https://bucket.s3.amazonaws.com/", "us-east-1"},
		{"https://s3.amazonaws.com", "bucket", "us-east-1", "https://bucket.s3.amazonaws.com/", "us-east-1"},
		{"https://s3.amazonaws.com", "bucket", "eu-west-1", "https://bucket.s3.eu-west-1.amazonaws.com/", "eu-west-1"},
		{"https://s3.amazonaws.com", "buc.ket", "eu-west-1", "https://s3.eu-west-1.amazonaws.com/buc.ket/", "eu-west-1"},
		{"http://s3.amazonaws.com", "buc.ket", "eu-west-1", "http://buc.ket.s3.eu-west-1.amazonaws.com/", "eu-west-1"},
		{"https://s3.amazonaws.com", "bucket", "evil.example/", "https://bucket.s3.amazonaws.com/", "evil.example/"},
		{"https://s3.eu-west-1.amazonaws.com", "bucket", "", "https://bucket.s3.eu-west-1.amazonaws.com/", "eu-west-1"},
		{"https://S3.US-GOV-WEST-1.amazonaws.com.", "bucket", "", "https://bucket.s3.us-gov-west-1.amazonaws.com/", "us-gov-west-1"},
		{"https://s3-eu-west-1.amazonaws.com", "bucket", "eu-west-3", "https://bucket.s3-eu-west-3.amazonaws.com/", "eu-west-3"},
		{"https://s3-fips.dualstack.us-gov-west-1.amazonaws.com", "bucket", "", "https://bucket.s3-fips.dualstack.us-gov-west-1.amazonaws.com/", "us-gov-west-1"},
		{"https://s3.cn-north-1.amazonaws.com.cn", "bucket", "cn-northwest-1", "https://bucket.s3.cn-northwest-1.amazonaws.com.cn/", "cn-northwest-1"},
		{"https://s3.cn-north-1.amazonaws.com.cn", "bucket", "us-east-1", "https://bucket.s3.cn-north-1.amazonaws.com.cn/", "us-east-1"},
		{"https://s3.eu-west-1.amazonaws.com", "bucket", "cn-north-1", "https://bucket.s3.eu-west-1.amazonaws.com/", "cn-north-1"},
		{"https://bucket.vpce-1a.s3.us-east-1.vpce.amazonaws.com", "app", "", "https://app.bucket.vpce-1a.s3.us-east-1.vpce.amazonaws.com/", "us-east-1"},
		{"https://storage.googleapis.com", "bucket", "auto", "https://bucket.storage.googleapis.com/", "auto"},
		{"https://oss-cn-hangzhou.aliyuncs.com", "bucket", "cn-hangzhou", "https://bucket.oss-cn-hangzhou.aliyuncs.com/", "cn-hangzhou"},
		{"https://s3.fr-par.scw.cloud", "bucket", "fr-par", "https://s3.fr-par.scw.cloud/bucket/", "fr-par"},
	} {
		u, err := url.Parse(c.endpoint)
		if err != nil {
			t.Fatal(err)
		}
		at := locate(u, c.bucket, regionOf(u, c.region))
		if got := at.base.String() + at.path; got != c.at || at.region != c.signedFor {
			t.Errorf("%s, %s, %q: %s in %s, want %s in %s", c.endpoint, c.bucket, c.region, got, at.region, c.at, c.signedFor)
		}
	}
}
