package aws

import (
	"net/url"
	"strings"
	"testing"
)

func TestPlaces(t *testing.T) {
	for u, want := range map[string]place{
		"oci://123456789012.dkr.ecr.us-east-1.amazonaws.com/app":                {registry, "us-east-1", false, false},
		"oci://123456789012.dkr.ecr.us-east-1.amazonaws.com:443/a/b/c":          {registry, "us-east-1", false, false},
		"oci://123456789012.DKR.ECR.us-east-1.AmazonAWS.com/app":                {registry, "us-east-1", false, false},
		"oci://123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com/app":       {registry, "us-gov-west-1", true, false},
		"oci://123456789012.dkr-ecr.eu-central-1.on.aws/app":                    {registry, "eu-central-1", false, true},
		"oci://123456789012.dkr-ecr-fips.us-east-2.on.aws/app":                  {registry, "us-east-2", true, true},
		"oci://123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/app":            {registry, "cn-north-1", false, false},
		"oci://123456789012.dkr-ecr.cn-north-1.on.amazonwebservices.com.cn/app": {registry, "cn-north-1", false, true},
		"oci://123456789012.dkr.ecr.us-iso-east-1.c2s.ic.gov/app":               {registry, "us-iso-east-1", false, false},
		"oci://123456789012.dkr.ecr.us-isob-east-1.sc2s.sgov.gov/app":           {registry, "us-isob-east-1", false, false},
		"oci://123456789012.dkr.ecr.us-isof-south-1.csp.hci.ic.gov/app":         {registry, "us-isof-south-1", false, false},
		"oci://123456789012.dkr.ecr.eu-isoe-west-1.cloud.adc-e.uk/app":          {registry, "eu-isoe-west-1", false, false},
		"oci://123456789012.dkr.ecr.eusc-de-east-1.amazonaws.eu/app":            {registry, "eusc-de-east-1", false, false},
		"oci://public.ecr.aws/acme/app":                                         {gallery, "us-east-1", false, false},
		"oci://ecr-public.aws.com/acme/app":                                     {gallery, "us-east-1", false, true},
		"https://git-codecommit-fips.us-gov-west-1.amazonaws.com/v1/repos/app":  {codeCommit, "us-gov-west-1", true, false},
		"https://git-codecommit.cn-north-1.amazonaws.com.cn/v1/repos/app":       {codeCommit, "cn-north-1", false, false},
	} {
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := placeOf(parsed); got != want || err != nil {
			t.Errorf("%s: %+v, %v", u, got, err)
		}
	}
}

// strangers are hosts that look like those of AWS.
var strangers = []string{
	"oci://evil.com/123456789012.dkr.ecr.us-east-1.amazonaws.com",
	"oci://123456789012.dkr.ecr.us-east-1.amazonaws.com.evil.com/app",
	"oci://evil.com.123456789012.dkr.ecr.us-east-1.amazonaws.com/app",
	"oci://123456789012.dkr.ecr.us-east-1.amazonaws.com:8443/app",
	"oci://123456789012.dkr.ecr.us-east-1.amazonaws.com:/app",
	"oci://123456789012.dkr.ecr.us-east-1.amazonaws.com./app",
	"oci://123456789012.dkr.ecr.us-east-1.amazonaws.com@evil.com/app",
	"oci://AWS:x@123456789012.dkr.ecr.us-east-1.amazonaws.com/app",
	"oci://123456789012.dkr.ecr.us-east-1.amazonaws.com.cn/app",
	"oci://123456789012.dkr.ecr.cn-north-1.amazonaws.com/app",
	"oci://123456789012.dkr.ecr.us-iso-east-1.amazonaws.com/app",
	"oci://123456789012.dkr.ecr.us-east-1.c2s.ic.gov/app",
	"oci://123456789012.dkr.ecr.us-east-1.on.aws/app",
	"oci://123456789012.dkr-ecr.us-east-1.amazonaws.com/app",
	"oci://123456789012.dkr-ecr.us-iso-east-1./app",
	"oci://123456789012.dkr.ecr.us-east-1.evil.aws/app",
	"oci://123456789012xdkrxecrxus-east-1xamazonawsxcom/app",
	"oci://12345678901.dkr.ecr.us-east-1.amazonaws.com/app",
	"oci://1234567890123.dkr.ecr.us-east-1.amazonaws.com/app",
	"oci://acme.dkr.ecr.us-east-1.amazonaws.com/app",
	"oci://123456789012.d\u212ar.ecr.us-east-1.amazonaws.com/app",
	"oci://123456789012.dkr.ecr.us-east-1.amazonaws.com%0a.evil.com/app",
	"oci://dkr.ecr.us-east-1.amazonaws.com/app",
	"oci://ecr.us-east-1.amazonaws.com/app",
	"oci://s3.us-east-1.amazonaws.com/app",
	"oci://123456789012.dkr.ecr.localhost.amazonaws.com/app",
	"oci://123456789012.dkr.ecr.a.b-1.amazonaws.com/app",
	"https://123456789012.dkr.ecr.us-east-1.amazonaws.com/app",
	"http://123456789012.dkr.ecr.us-east-1.amazonaws.com/app",
	"oci://git-codecommit.us-east-1.amazonaws.com/v1/repos/app",
	"https://public.ecr.aws/acme/app",
	"oci://xpublic.ecr.aws/acme/app",
	"oci://public.ecr.aws.evil.com/acme/app",
	"oci://public.ecr.aws:5000/acme/app",
	"oci://evil.public.ecr.aws/acme/app",
	"oci://public.ecr.aws./acme/app",
	"oci://[::1]/public.ecr.aws",
	"oci:public.ecr.aws/acme/app",
	"public.ecr.aws/acme/app",
	"",
}

func TestStrangers(t *testing.T) {
	for _, s := range strangers {
		u, err := url.Parse(s)
		if err != nil {
			continue // no URL reaches a login that is none
		}
		if at, err := placeOf(u); err == nil {
			t.Errorf("%s is taken for %+v", s, at)
		}
	}
}

// FuzzPlace checks that a host whose login is shown anything is one below a
// domain of AWS, and is what a client would connect to.
func FuzzPlace(f *testing.F) {
	for _, s := range strangers {
		f.Add(s)
	}
	f.Add("oci://123456789012.dkr.ecr.eu-isoe-west-1.cloud.adc-e.uk/app")
	f.Add("https://git-codecommit.eu-west-1.amazonaws.com/v1/repos/app")
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.Parse(s)
		if err != nil {
			return
		}
		at, err := placeOf(u)
		if err != nil {
			return
		}
		host := strings.ToLower(strings.TrimSuffix(u.Host, ":443"))
		good := false
		for _, domain := range []string{"amazonaws.com", "amazonaws.com.cn", "amazonaws.eu", "c2s.ic.gov", "sc2s.sgov.gov", "csp.hci.ic.gov",
			"cloud.adc-e.uk", "on.aws", "on.amazonwebservices.com.cn", "ecr.aws", "aws.com"} {
			rest, ok := strings.CutSuffix(host, "."+domain)
			good = good || ok && rest != "" && (at.service == gallery || strings.HasSuffix(rest, "."+at.region))
		}
		if !good || u.User != nil || u.Port() != "" && u.Port() != "443" || u.Scheme != "oci" && u.Scheme != "https" {
			t.Errorf("%q is taken for %+v", s, at)
		}
		for i := range len(host) {
			if c := host[i]; c >= 0x80 || c <= ' ' || strings.IndexByte(`/\@?#%:[]`, c) >= 0 {
				t.Errorf("%q has %q in its host", s, c)
			}
		}
	})
}
