package azure

import (
	"errors"
	"net/url"
	"regexp"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"

	"github.com/headgate-io/headgate/login/internal/exchange"
)

// What tokens are for.
const (
	devOps     = "499b84ac-1321-427f-aa17-267ca6975798/.default" // the id of its application
	registries = "https://containerregistry.azure.net/.default"  // of every cloud
)

// A place is what one logs in to.
type place struct {
	scope     string // of the token
	authority string // that issues it
	registry  string // the host that exchanges it; "" for Azure DevOps
}

// authorities of registries, by the end of their host.
var authorities = map[string]string{
	"io": cloud.AzurePublic.ActiveDirectoryAuthorityHost,
	"cn": cloud.AzureChina.ActiveDirectoryAuthorityHost,
	"de": "https://login.microsoftonline.de/",
	"us": cloud.AzureGovernment.ActiveDirectoryAuthorityHost,
}

// The forms of hosts, from their first to their last byte.
var (
	oldDevOps    = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.visualstudio\.com$`)
	registryForm = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.azurecr\.(io|cn|de|us)$`)
)

var errNoPlace = errors.New("provider azure is for https://dev.azure.com/ORGANISATION/PROJECT/_git/REPOSITORY and oci://NAME.azurecr.io/REPOSITORY")

// placeOf returns what u is.
func placeOf(u *url.URL) (place, error) {
	host := exchange.Host(u)
	if m := registryForm.FindStringSubmatch(host); m != nil && u.Scheme == "oci" {
		return place{registries, authorities[m[1]], host}, nil
	}
	if u.Scheme == "https" && (host == "dev.azure.com" || oldDevOps.MatchString(host)) {
		return place{devOps, cloud.AzurePublic.ActiveDirectoryAuthorityHost, ""}, nil
	}
	return place{}, errNoPlace
}
