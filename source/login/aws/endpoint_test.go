package aws

import (
	"testing"

	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

// TestEndpointOf recognises endpoints; TestEndpoints has registries of more partitions.
func TestEndpointOf(t *testing.T) {
	logintest.CheckEndpoints(t, endpointOf, map[string]endpoint{
		"oci://123456789012.dkr.ecr.us-east-1.amazonaws.com:443/a/b/c":         {registry, "us-east-1", false, false, ""},
		"oci://123456789012.DKR.ECR.us-east-1.AmazonAWS.com/app":               {registry, "us-east-1", false, false, ""},
		"oci://123456789012.dkr-ecr-fips.us-east-2.on.aws/app":                 {registry, "us-east-2", true, true, ""},
		"oci://public.ecr.aws/acme/app":                                        {publicRegistry, "us-east-1", false, false, ""},
		"https://git-codecommit-fips.us-gov-west-1.amazonaws.com/v1/repos/app": {codeCommit, "us-gov-west-1", true, false, ""},
		"https://git-codecommit.cn-north-1.amazonaws.com.cn/v1/repos/app":      {codeCommit, "cn-north-1", false, false, ""},

		"s3://s3.eu-west-1.amazonaws.com/bucket":                                       {buckets, "eu-west-1", false, false, ""},
		"s3://S3.eu-west-1.amazonaws.com:443/bucket":                                   {buckets, "eu-west-1", false, false, ""},
		"s3://s3.amazonaws.com/bucket":                                                 {buckets, "us-east-1", false, false, ""},
		"s3://s3-us-west-2.amazonaws.com/bucket":                                       {buckets, "us-west-2", false, false, ""},
		"s3://s3.dualstack.us-west-2.amazonaws.com/bucket":                             {buckets, "us-west-2", false, false, ""},
		"s3://s3-fips.us-gov-west-1.amazonaws.com/bucket":                              {buckets, "us-gov-west-1", true, false, ""},
		"s3://s3-fips.dualstack.us-east-2.amazonaws.com/bucket":                        {buckets, "us-east-2", true, false, ""},
		"s3://s3.cn-north-1.amazonaws.com.cn/bucket":                                   {buckets, "cn-north-1", false, false, ""},
		"s3://s3.eusc-de-east-1.amazonaws.eu/bucket":                                   {buckets, "eusc-de-east-1", false, false, ""},
		"s3://bucket.vpce-1a2b3c4d-5e6f.s3.us-east-1.vpce.amazonaws.com/bucket":        {buckets, "us-east-1", false, false, ""},
		"s3://s3.eu-west-1.amazonaws.com/b?sts=https://sts.eu-central-1.amazonaws.com": {buckets, "eu-central-1", false, false, "sts.eu-central-1.amazonaws.com"},
		"s3://s3.eu-west-1.amazonaws.com/b?sts=https://sts.amazonaws.com/":             {buckets, "us-east-1", false, false, "sts.amazonaws.com"},
		"s3://s3.us-gov-west-1.amazonaws.com/b?sts=https://sts-fips.us-gov-west-1.amazonaws.com": {buckets, "us-gov-west-1", false, false,
			"sts-fips.us-gov-west-1.amazonaws.com"},
		"s3://s3.eu-west-1.amazonaws.com/b?sts=https://vpce-1a-2b.sts.eu-west-1.vpce.amazonaws.com": {buckets, "eu-west-1", false, false,
			"vpce-1a-2b.sts.eu-west-1.vpce.amazonaws.com"},
	})
}

// foreignURLs are hosts that look like those of AWS.
const foreignURLs = `
oci://evil.com/123456789012.dkr.ecr.us-east-1.amazonaws.com oci://123456789012.dkr.ecr.us-east-1.amazonaws.com.evil.com/app
oci://evil.com.123456789012.dkr.ecr.us-east-1.amazonaws.com/app oci://123456789012.dkr.ecr.us-east-1.amazonaws.com:8443/app
oci://123456789012.dkr.ecr.us-east-1.amazonaws.com:/app oci://123456789012.dkr.ecr.us-east-1.amazonaws.com./app
oci://123456789012.dkr.ecr.us-east-1.amazonaws.com@evil.com/app oci://AWS:x@123456789012.dkr.ecr.us-east-1.amazonaws.com/app
oci://123456789012.dkr.ecr.us-east-1.amazonaws.com.cn/app oci://123456789012.dkr.ecr.cn-north-1.amazonaws.com/app
oci://123456789012.dkr.ecr.us-iso-east-1.amazonaws.com/app oci://123456789012.dkr.ecr.us-east-1.c2s.ic.gov/app oci://123456789012.dkr.ecr.us-east-1.on.aws/app
oci://123456789012.dkr-ecr.us-east-1.amazonaws.com/app oci://123456789012.dkr-ecr.us-iso-east-1./app oci://123456789012.dkr.ecr.us-east-1.evil.aws/app
oci://123456789012xdkrxecrxus-east-1xamazonawsxcom/app oci://12345678901.dkr.ecr.us-east-1.amazonaws.com/app oci://1234567890123.dkr.ecr.us-east-1.amazonaws.com/app
oci://acme.dkr.ecr.us-east-1.amazonaws.com/app oci://123456789012.dKr.ecr.us-east-1.amazonaws.com/app oci://123456789012.dkr.ecr.us-east-1.amazonaws.com%0a.evil.com/app
oci://dkr.ecr.us-east-1.amazonaws.com/app oci://ecr.us-east-1.amazonaws.com/app oci://s3.us-east-1.amazonaws.com/app oci://123456789012.dkr.ecr.localhost.amazonaws.com/app
oci://123456789012.dkr.ecr.a.b-1.amazonaws.com/app https://123456789012.dkr.ecr.us-east-1.amazonaws.com/app http://123456789012.dkr.ecr.us-east-1.amazonaws.com/app
oci://git-codecommit.us-east-1.amazonaws.com/v1/repos/app https://public.ecr.aws/acme/app oci://xpublic.ecr.aws/acme/app oci://public.ecr.aws.evil.com/acme/app
oci://public.ecr.aws:5000/acme/app oci://evil.public.ecr.aws/acme/app oci://public.ecr.aws./acme/app oci://[::1]/public.ecr.aws oci:public.ecr.aws/acme/app
public.ecr.aws/acme/app https://s3.eu-west-1.amazonaws.com/bucket oci://s3.eu-west-1.amazonaws.com/bucket s3://s3.evil-amazonaws.com/bucket
s3://s3.eu-west-1.evilamazonaws.com/bucket s3://s3.eu-west-1.amazonaws.com.evil.com/bucket s3://evil.s3.eu-west-1.amazonaws.com/bucket
s3://s3.eu-west-1.amazonaws.com:9000/bucket s3://s3.eu-west-1.amazonaws.com.cn/bucket s3://s3.cn-north-1.amazonaws.com/bucket s3://s3xeu-west-1xamazonaws.com/bucket
s3://s3-website.eu-west-1.amazonaws.com/bucket s3://s3express-use1-az4.us-east-1.amazonaws.com/bucket s3://bucket.vpce-evil.com/x.s3.us-east-1.vpce.amazonaws.com/bucket
s3://accesspoint.vpce-1.s3.us-east-1.vpce.amazonaws.com/bucket s3://minio.example/bucket s3://127.0.0.1:9000/bucket s3://AKID:x@s3.eu-west-1.amazonaws.com/bucket
s3://s3.eu-west-1.amazonaws.com/b?sts=http://sts.eu-west-1.amazonaws.com s3://s3.eu-west-1.amazonaws.com/b?sts=https://sts.eu-west-1.amazonaws.com:8443
s3://s3.eu-west-1.amazonaws.com/b?sts=https://sts.eu-west-1.amazonaws.com/evil s3://s3.eu-west-1.amazonaws.com/b?sts=https://sts.eu-west-1.amazonaws.com.evil.com
s3://s3.eu-west-1.amazonaws.com/b?sts=https://sts.cn-north-1.amazonaws.com.cn s3://s3.cn-north-1.amazonaws.com.cn/b?sts=https://sts.amazonaws.com
s3://s3.eu-west-1.amazonaws.com/b?sts=https://x@sts.eu-west-1.amazonaws.com s3://s3.eu-west-1.amazonaws.com/b?sts=https://evil.example
s3://s3.eu-west-1.amazonaws.com/b?sts=: http://git-codecommit.eu-west-1.amazonaws.com/v1/repos/app https://git-codecommit.eu-west-1.amazonaws.com:8443/v1/repos/app
https://git-codecommit.eu-west-1.amazonaws.com.evil.example/v1/repos/app https://evil.example/git-codecommit.eu-west-1.amazonaws.com
https://xgit-codecommit.eu-west-1.amazonaws.com/v1/repos/app https://git-codecommitXeu-west-1.amazonaws.com/v1/repos/app
https://git-codecommit.eu-west-1xamazonaws.com/v1/repos/app https://git-codecommit.evil.example#.eu-west-1.amazonaws.com/
https://git-codecommit.eu-west-1.amazonaws.com.cn/v1/repos/app https://git-codecommit.cn-north-1.amazonaws.com/v1/repos/app
https://git-codecommit.a.b.amazonaws.com/v1/repos/app https://s3.eu-west-1.amazonaws.com/v1/repos/app https://github.com/acme/app`

func TestForeignURLs(t *testing.T) { logintest.CheckForeignURLs(t, endpointOf, foreignURLs) }
