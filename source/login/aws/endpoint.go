package aws

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// The services of AWS that can be logged in to.
const (
	codeCommit = "codecommit"
	registry   = "ecr"
	gallery    = "ecr-public"
	buckets    = "s3"
)

// An endpoint is a service of AWS in a region.
type endpoint struct {
	service string
	region  string
	fips    bool   // its endpoint for validated cryptography
	dual    bool   // its endpoint for IPv6 and IPv4
	issuer  string // the host of the token service that keys are to come from, "" for that of the region
}

const regionForm = `([a-z]{2,4}(?:-[a-z]+){1,3}-[0-9]{1,2})`

// hosts are the forms of the services' hosts, from their first to their last
// byte: the submatches are -fips, the region, and the domain of its partition.
var hosts = []struct {
	scheme, service string
	dual            bool
	form            *regexp.Regexp
}{
	{"https", codeCommit, false, regexp.MustCompile(`^git-codecommit(-fips)?\.` + regionForm + `\.(amazonaws\.com(?:\.cn)?)$`)},
	{"oci", registry, false, regexp.MustCompile(`^[0-9]{12}\.dkr\.ecr(-fips)?\.` + regionForm + `\.([a-z0-9.-]+)$`)},
	{"oci", registry, true, regexp.MustCompile(`^[0-9]{12}\.dkr-ecr(-fips)?\.` + regionForm + `\.([a-z0-9.-]+)$`)},
	{"s3", buckets, false, regexp.MustCompile(`^s3(-fips)?\.(?:dualstack\.)?` + regionForm + `\.([a-z0-9.-]+)$`)},
	{"s3", buckets, false, regexp.MustCompile(`^s3()-` + regionForm + `\.([a-z0-9.-]+)$`)},
	{"s3", buckets, false, regexp.MustCompile(`^bucket\.vpce-[0-9a-z-]+\.s3()\.` + regionForm + `\.vpce\.([a-z0-9.-]+)$`)},
}

// issuers are the forms of the hosts of token services, as hosts has those of others.
var issuers = []*regexp.Regexp{
	regexp.MustCompile(`^sts(-fips)?\.` + regionForm + `\.([a-z0-9.-]+)$`),
	regexp.MustCompile(`^vpce-[0-9a-z-]+\.sts(-fips)?\.` + regionForm + `\.vpce\.([a-z0-9.-]+)$`),
}

// A partition is a cloud of AWS of its own.
type partition struct{ region, name, domain, dual string }

// partitions of AWS, by how the names of their regions begin: how their ARNs
// name them, and the domains of their services. The first that fits counts, the
// last is the public one.
var partitions = []partition{
	{"cn-", "aws-cn", "amazonaws.com.cn", "on.amazonwebservices.com.cn"},
	{"us-gov-", "aws-us-gov", "amazonaws.com", "on.aws"},
	{"eusc-", "aws-eusc", "amazonaws.eu", ""},
	{"us-iso-", "aws-iso", "c2s.ic.gov", ""},
	{"us-isob-", "aws-iso-b", "sc2s.sgov.gov", ""},
	{"us-isof-", "aws-iso-f", "csp.hci.ic.gov", ""},
	{"eu-isoe-", "aws-iso-e", "cloud.adc-e.uk", ""},
	{"", "aws", "amazonaws.com", "on.aws"},
}

// global are the endpoints without a region in their names, by scheme and host.
var global = map[[2]string]endpoint{
	{"oci", "public.ecr.aws"}:     {service: gallery, region: "us-east-1"},
	{"oci", "ecr-public.aws.com"}: {service: gallery, region: "us-east-1", dual: true},
	{"s3", "s3.amazonaws.com"}:    {service: buckets, region: "us-east-1"},
}

var (
	errNoEndpoint = errors.New("provider aws is for https://git-codecommit.REGION.amazonaws.com/v1/repos/NAME, " +
		"oci://ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME and oci://public.ecr.aws/NAME")
	errNoBuckets = errors.New("the identity of this program is for s3.REGION.amazonaws.com and its like alone: " +
		"for another server set spec.secretRef to a Secret with accesskey and secretkey, or spec.provider to generic to send none")
	errNoIssuer = errors.New("the token service, spec.sts.endpoint, must be https://sts.REGION.amazonaws.com or its like in the same partition: it is shown the identity of this program")
)

// endpointOf returns the endpoint at u. The query of a bucket's URL may name a token service: sts=URL.
func endpointOf(u *url.URL) (endpoint, error) {
	at, err := serviceOf(u)
	if err != nil || at.service != buckets {
		return at, err
	}
	if issuer := u.Query().Get("sts"); issuer != "" {
		err = at.from(issuer)
	}
	return at, err
}

// from makes the URL issuer the token service for the bucket at.
func (at *endpoint) from(issuer string) error {
	u, err := url.Parse(issuer)
	if err != nil || u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return errNoIssuer
	}
	host, region := exchange.Host(u), ""
	for _, form := range issuers {
		if m := form.FindStringSubmatch(host); m != nil && m[3] == partitionOf(m[2]).domain {
			region = m[2]
		}
	}
	if host == "sts.amazonaws.com" {
		region = "us-east-1"
	}
	if region == "" || partitionOf(region) != partitionOf(at.region) {
		return errNoIssuer
	}
	at.issuer, at.region = host, region
	return nil
}

// serviceOf returns the endpoint at u without its query.
func serviceOf(u *url.URL) (endpoint, error) {
	host := exchange.Host(u)
	if at, ok := global[[2]string{u.Scheme, host}]; ok {
		return at, nil
	}
	for _, h := range hosts {
		m := h.form.FindStringSubmatch(host)
		if m == nil || u.Scheme != h.scheme {
			continue
		}
		domain := partitionOf(m[2]).domain
		if h.dual {
			domain = partitionOf(m[2]).dual
		}
		if m[3] == domain {
			return endpoint{service: h.service, region: m[2], fips: m[1] != "", dual: h.dual}, nil
		}
	}
	if u.Scheme == "s3" {
		return endpoint{}, errNoBuckets
	}
	return endpoint{}, errNoEndpoint
}

// partitionOf returns the partition that region is in.
func partitionOf(region string) partition {
	i := slices.IndexFunc(partitions, func(p partition) bool { return strings.HasPrefix(region, p.region) })
	return partitions[i] // the last fits all
}
