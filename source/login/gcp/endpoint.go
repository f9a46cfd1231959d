package gcp

import (
	"errors"
	"net/url"
	"regexp"

	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// The clouds that run the software of Google Cloud, by the domain of their services.
const (
	googleCloud = "googleapis.com"
	s3nsCloud   = "s3nsapis.fr"
)

const label = `[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?`

// hosts are the forms of hosts, from their first to their last byte, by the
// scheme of the URL, and the cloud that each is of.
var hosts = []struct {
	scheme, universe string
	form             *regexp.Regexp
}{
	{"oci", googleCloud, regexp.MustCompile(`^(?:` + label + `\.)?gcr\.io$`)},
	{"oci", googleCloud, regexp.MustCompile(`^` + label + `-docker\.pkg\.dev$`)},
	{"oci", s3nsCloud, regexp.MustCompile(`^(?:` + label + `-)?docker\.s3nsregistry\.fr$`)},
	{"gs", googleCloud, regexp.MustCompile(`^storage\.googleapis\.com$`)},
	{"gs", googleCloud, regexp.MustCompile(`^storage\.` + label + `\.rep\.googleapis\.com$`)}, // of one region
	{"gs", googleCloud, regexp.MustCompile(`^storage-` + label + `\.p\.googleapis\.com$`)},    // of a private network
	{"gs", s3nsCloud, regexp.MustCompile(`^storage\.s3nsapis\.fr$`)},
}

// What tokens are for, by the scheme of the URL.
const (
	scope       = "https://www.googleapis.com/auth/cloud-platform"
	bucketScope = "https://www.googleapis.com/auth/devstorage.read_only"
)

var (
	errNoRegistry = errors.New("provider gcp is for oci://LOCATION-docker.pkg.dev/PROJECT/REPOSITORY/NAME and oci://gcr.io/PROJECT/NAME")
	errNoStore    = errors.New("the identity of this program is shown to storage.googleapis.com, storage.REGION.rep.googleapis.com and storage-NAME.p.googleapis.com only: " +
		"for other endpoints set spec.secretRef")
)

// An endpoint is a registry or a store that a token is shown to.
type endpoint struct {
	universe string
	scope    string // of the token
	bucket   bool
}

func (e endpoint) String() string {
	if e.bucket {
		return "the bucket"
	}
	return "the registry"
}

// endpointOf returns the endpoint at u.
func endpointOf(u *url.URL) (endpoint, error) {
	at, none := endpoint{scope: scope}, errNoRegistry
	if u.Scheme == "gs" {
		at, none = endpoint{scope: bucketScope, bucket: true}, errNoStore
	}
	host := exchange.Host(u)
	for _, h := range hosts {
		if u.Scheme == h.scheme && h.form.MatchString(host) {
			at.universe = h.universe
			return at, nil
		}
	}
	return endpoint{}, none
}
