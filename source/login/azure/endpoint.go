package azure

import (
	"errors"
	"net/url"
	"regexp"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"

	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// What tokens are for.
const (
	devOps     = "499b84ac-1321-427f-aa17-267ca6975798/.default" // the id of its application
	registries = "https://containerregistry.azure.net/.default"  // of every cloud
	accounts   = "https://storage.azure.com/.default"            // of every cloud
)

// An endpoint is a registry, a storage account or Azure DevOps.
type endpoint struct {
	scope     string // of the token
	authority string // that issues it
	registry  string // the host that exchanges it; "" for others than registries
}

func (e endpoint) String() string {
	switch e.scope {
	case registries:
		return "the registry"
	case accounts:
		return "the storage account"
	}
	return "the repository"
}

// authorities of registries and accounts, by the end of their host.
var authorities = map[string]string{
	"io": cloud.AzurePublic.ActiveDirectoryAuthorityHost,
	"cn": cloud.AzureChina.ActiveDirectoryAuthorityHost,
	"de": "https://login.microsoftonline.de/",
	"us": cloud.AzureGovernment.ActiveDirectoryAuthorityHost,

	"windows.net":       cloud.AzurePublic.ActiveDirectoryAuthorityHost,
	"storage.azure.net": cloud.AzurePublic.ActiveDirectoryAuthorityHost,
	"chinacloudapi.cn":  cloud.AzureChina.ActiveDirectoryAuthorityHost,
	"cloudapi.de":       "https://login.microsoftonline.de/",
	"usgovcloudapi.net": cloud.AzureGovernment.ActiveDirectoryAuthorityHost,
}

// The forms of hosts, from their first to their last byte.
var (
	oldDevOps    = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.visualstudio\.com$`)
	registryForm = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.azurecr\.(io|cn|de|us)$`)
	accountForm  = regexp.MustCompile(`^[a-z0-9]{3,24}(?:-secondary)?\.(?:blob\.core\.(windows\.net|chinacloudapi\.cn|cloudapi\.de|usgovcloudapi\.net)|z[0-9]{1,2}\.blob\.(storage\.azure\.net))$`)
)

var (
	errNoEndpoint = errors.New("provider azure is for https://dev.azure.com/ORGANISATION/PROJECT/_git/REPOSITORY and oci://NAME.azurecr.io/REPOSITORY")
	errNoStore    = errors.New("the identity of this program is shown to ACCOUNT.blob.core.windows.net, and its like in other clouds, only: for other endpoints set spec.secretRef")
)

// endpointOf returns the endpoint at u.
func endpointOf(u *url.URL) (endpoint, error) {
	host := exchange.Host(u)
	if m := registryForm.FindStringSubmatch(host); m != nil && u.Scheme == "oci" {
		return endpoint{registries, authorities[m[1]], host}, nil
	}
	if m := accountForm.FindStringSubmatch(host); m != nil && u.Scheme == "azblob" {
		return endpoint{accounts, authorities[m[1]+m[2]], ""}, nil
	}
	if u.Scheme == "azblob" {
		return endpoint{}, exchange.NoIdentity(errNoStore)
	}
	if u.Scheme == "https" && (host == "dev.azure.com" || oldDevOps.MatchString(host)) {
		return endpoint{devOps, cloud.AzurePublic.ActiveDirectoryAuthorityHost, ""}, nil
	}
	return endpoint{}, errNoEndpoint
}
