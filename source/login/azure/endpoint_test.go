package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

func TestEndpointOf(t *testing.T) {
	const public, scope = "https://login.microsoftonline.com/", "https://containerregistry.azure.net/.default"
	const blobs = "https://storage.azure.com/.default"
	logintest.CheckEndpoints(t, endpointOf, map[string]endpoint{
		"oci://acme.azurecr.io/app":                   {scope, public, "acme.azurecr.io"},
		"oci://ACME.AzureCR.io:443/a/b":               {scope, public, "acme.azurecr.io"},
		"oci://acme-h4sh.azurecr.io/app":              {scope, public, "acme-h4sh.azurecr.io"},
		"oci://acme.azurecr.cn/app":                   {scope, "https://login.chinacloudapi.cn/", "acme.azurecr.cn"},
		"oci://acme.azurecr.us/app":                   {scope, "https://login.microsoftonline.us/", "acme.azurecr.us"},
		"oci://acme.azurecr.de/app":                   {scope, "https://login.microsoftonline.de/", "acme.azurecr.de"},
		"https://dev.azure.com/org/project/_git/app":  {devOps, public, ""},
		"https://old.visualstudio.com/project/_git/a": {devOps, public, ""},

		"azblob://acme.blob.core.windows.net/c":           {blobs, public, ""},
		"azblob://ACME0.Blob.Core.Windows.Net:443/$root":  {blobs, public, ""},
		"azblob://acme-secondary.blob.core.windows.net/c": {blobs, public, ""},
		"azblob://acme.z42.blob.storage.azure.net/c":      {blobs, public, ""},
		"azblob://acme.blob.core.chinacloudapi.cn/c":      {blobs, "https://login.chinacloudapi.cn/", ""},
		"azblob://acme.blob.core.usgovcloudapi.net/c":     {blobs, "https://login.microsoftonline.us/", ""},
		"azblob://acme.blob.core.cloudapi.de/c":           {blobs, "https://login.microsoftonline.de/", ""},
	})
}

// foreignURLs are hosts that look like those of Azure.
const foreignURLs = `
oci://evil.com/acme.azurecr.io oci://acme.azurecr.io.evil.com/app oci://acme.azurecr.io:8443/app oci://acme.azurecr.io:/app oci://acme.azurecr.io./app
oci://acme.azurecr.io@evil.com/app oci://user@acme.azurecr.io/app oci://acme.evilazurecr.io/app oci://evil.com.acme.azurecr.io/app
oci://acme.westeurope.data.azurecr.io/app oci://acmexazurecrxio/app oci://acme.azurecr.com/app oci://acme.azurecr.ioo/app oci://azurecr.io/app oci://.azurecr.io/app
oci://-.azurecr.io/app oci://acme.aſurecr.io/app oci://Kacme.azurecr.io/app https://acme.azurecr.io/app http://acme.azurecr.io/app oci://dev.azure.com/app
oci://mcr.microsoft.com/app acme.azurecr.io/app azblob://evil.com/acme.blob.core.windows.net azblob://acme.blob.core.windows.net.evil.com/c
azblob://acme.blob.core.windows.net:8443/c azblob://acme.blob.core.windows.net./c azblob://acme.blob.core.windows.net@evil.com/c azblob://user@acme.blob.core.windows.net/c
azblob://acme.evilblob.core.windows.net/c azblob://evil.com.acme.blob.core.windows.net/c azblob://a.b.blob.core.windows.net/c
azblob://acme-tertiary.blob.core.windows.net/c azblob://acme.blob.core.windowsxnet/c azblob://acme.z.blob.storage.azure.net/c azblob://acme.dfs.core.windows.net/c
azblob://acme.azurecr.io/c azblob://127.0.0.1/c oci://acme.blob.core.windows.net/app https://acme.blob.core.windows.net/app http://acme.blob.core.windows.net/app
http://dev.azure.com/org/project/_git/app https://dev.azure.com:8443/org/project/_git/app https://dev.azure.com.evil.example/org https://evildev.azure.com/org
https://x.dev.azure.com/org https://visualstudio.com/org https://a.b.visualstudio.com/org https://evilvisualstudio.com/org https://old.visualstudio.com.evil.example/org
https://evil.example/dev.azure.com https://github.com/acme/app`

func TestForeignURLs(t *testing.T) { logintest.CheckForeignURLs(t, endpointOf, foreignURLs) }

// metadataRedirect sends requests for the metadata address of every cloud to another
// address.
type metadataRedirect struct{ address string }

func (e metadataRedirect) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != metadataHost {
		return nil, errors.New("asked " + req.URL.Host)
	}
	req = req.Clone(req.Context())
	req.URL.Host = e.address
	return http.DefaultTransport.RoundTrip(req)
}

// TestNoIdentity demands ErrNoIdentity if there is no identity for the program, and only then.
func TestNoIdentity(t *testing.T) {
	answer := func(status int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprint(w, `{"error":"invalid_request","error_description":"Identity not found"}`)
		}))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	for name, c := range map[string]struct {
		vars    map[string]string
		address string
		nobody  bool
	}{
		"no machine":              {nil, "127.0.0.1:1", true},
		"no identity":             {nil, answer(400), true},
		"other cloud":             {nil, answer(404), true},
		"other cloud, with token": {nil, answer(401), true},
		"breaks":                  {nil, answer(500), false},
		"throttles":               {nil, answer(429), false},
		"one of several":          {map[string]string{"AZURE_CLIENT_ID": "some"}, answer(400), false},
		"one, no machine":         {map[string]string{"AZURE_CLIENT_ID": "some"}, "127.0.0.1:1", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := exchange.Environment(func(name string) (string, bool) { v, ok := c.vars[name]; return v, ok })
			i := identity{env: env, client: &http.Client{Transport: metadataRedirect{c.address}}, at: "the storage account", retries: -1}
			_, err := i.token(t.Context(), accounts)
			if err == nil || errors.Is(err, source.ErrNoIdentity) != c.nobody || !strings.Contains(err.Error(), "managed identity: ") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestNoIdentityForOtherHosts(t *testing.T) {
	for s, nobody := range map[string]bool{"azblob://127.0.0.1:10000/c": true, "azblob://store.example/c": true, "oci://store.example/c": false} {
		u, err := url.Parse(s)
		testenv.Must(t, err)
		_, err = (&Provider{Lookup: func(string) (string, bool) { return "", false }}).Login(context.Background(), source.LoginRequest{URL: u})
		if !errors.Is(err, source.ErrProvider) || errors.Is(err, source.ErrNoIdentity) != nobody {
			t.Errorf("%s: %v", s, err)
		}
	}
}
