package aws

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/login/internal/exchange"
)

// The services of AWS that can be logged in to.
const (
	codeCommit = "codecommit"
	registry   = "ecr"
	gallery    = "ecr-public"
)

// A place is what one logs in to.
type place struct {
	service string
	region  string
	fips    bool // its endpoint for validated cryptography
	dual    bool // its endpoint for IPv6 and IPv4
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

// galleries are the hosts of ECR Public, which has one region for logins.
var galleries = map[string]place{
	"public.ecr.aws":     {service: gallery, region: "us-east-1"},
	"ecr-public.aws.com": {service: gallery, region: "us-east-1", dual: true},
}

var errNoPlace = errors.New("provider aws is for https://git-codecommit.REGION.amazonaws.com/v1/repos/NAME, " +
	"oci://ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME and oci://public.ecr.aws/NAME")

// placeOf returns what u is.
func placeOf(u *url.URL) (place, error) {
	host := exchange.Host(u)
	if at, ok := galleries[host]; ok && u.Scheme == "oci" {
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
			return place{service: h.service, region: m[2], fips: m[1] != "", dual: h.dual}, nil
		}
	}
	return place{}, errNoPlace
}

// partitionOf returns the partition that region is in.
func partitionOf(region string) partition {
	i := slices.IndexFunc(partitions, func(p partition) bool { return strings.HasPrefix(region, p.region) })
	return partitions[i] // the last fits all
}
