package gcp

import (
	"errors"
	"net/url"
	"regexp"

	"github.com/headgate-io/headgate/login/internal/exchange"
)

// The clouds that run the software of Google Cloud, by the domain of their services.
const (
	googleCloud = "googleapis.com"
	s3nsCloud   = "s3nsapis.fr"
)

const label = `[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?`

// registries are the forms of hosts, from their first to their last byte, and
// the cloud that each is of.
var registries = []struct {
	universe string
	form     *regexp.Regexp
}{
	{googleCloud, regexp.MustCompile(`^(?:` + label + `\.)?gcr\.io$`)},
	{googleCloud, regexp.MustCompile(`^` + label + `-docker\.pkg\.dev$`)},
	{s3nsCloud, regexp.MustCompile(`^(?:` + label + `-)?docker\.s3nsregistry\.fr$`)},
}

var errNoPlace = errors.New("provider gcp is for oci://LOCATION-docker.pkg.dev/PROJECT/REPOSITORY/NAME and oci://gcr.io/PROJECT/NAME")

// universeOf returns the cloud of the registry at u.
func universeOf(u *url.URL) (string, error) {
	host := exchange.Host(u)
	for _, r := range registries {
		if u.Scheme == "oci" && r.form.MatchString(host) {
			return r.universe, nil
		}
	}
	return "", errNoPlace
}
