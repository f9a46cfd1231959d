package azure

import (
	"net/url"
	"strings"
	"testing"
)

func TestPlaces(t *testing.T) {
	const public, scope = "https://login.microsoftonline.com/", "https://containerregistry.azure.net/.default"
	const blobs = "https://storage.azure.com/.default"
	for u, want := range map[string]place{
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

// strangers are hosts that look like those of Azure.
var strangers = []string{
	"oci://evil.com/acme.azurecr.io",
	"oci://acme.azurecr.io.evil.com/app",
	"oci://acme.azurecr.io:8443/app",
	"oci://acme.azurecr.io:/app",
	"oci://acme.azurecr.io./app",
	"oci://acme.azurecr.io@evil.com/app",
	"oci://user@acme.azurecr.io/app",
	"oci://acme.evilazurecr.io/app",
	"oci://evil.com.acme.azurecr.io/app",
	"oci://acme.westeurope.data.azurecr.io/app",
	"oci://acmexazurecrxio/app",
	"oci://acme.azurecr.com/app",
	"oci://acme.azurecr.ioo/app",
	"oci://azurecr.io/app",
	"oci://.azurecr.io/app",
	"oci://-.azurecr.io/app",
	"oci://acme.a\u017furecr.io/app",
	"oci://\u212aacme.azurecr.io/app",
	"https://acme.azurecr.io/app",
	"http://acme.azurecr.io/app",
	"oci://dev.azure.com/app",
	"oci://mcr.microsoft.com/app",
	"acme.azurecr.io/app",
	"",

	"azblob://evil.com/acme.blob.core.windows.net",
	"azblob://acme.blob.core.windows.net.evil.com/c",
	"azblob://acme.blob.core.windows.net:8443/c",
	"azblob://acme.blob.core.windows.net./c",
	"azblob://acme.blob.core.windows.net@evil.com/c",
	"azblob://user@acme.blob.core.windows.net/c",
	"azblob://acme.evilblob.core.windows.net/c",
	"azblob://evil.com.acme.blob.core.windows.net/c",
	"azblob://a.b.blob.core.windows.net/c",
	"azblob://acme-tertiary.blob.core.windows.net/c",
	"azblob://acme.blob.core.windowsxnet/c",
	"azblob://acme.z.blob.storage.azure.net/c",
	"azblob://acme.dfs.core.windows.net/c",
	"azblob://acme.azurecr.io/c",
	"azblob://127.0.0.1/c",
	"oci://acme.blob.core.windows.net/app",
	"https://acme.blob.core.windows.net/app",
	"http://acme.blob.core.windows.net/app",
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

// FuzzPlace checks that a token goes to one name below a domain of Azure only,
// which is what a client would connect to.
func FuzzPlace(f *testing.F) {
	for _, s := range strangers {
		f.Add(s)
	}
	f.Add("oci://acme.azurecr.io/app")
	f.Add("https://old.visualstudio.com/app")
	f.Add("azblob://acme.blob.core.windows.net/c")
	f.Add("azblob://acme.z42.blob.storage.azure.net/c")
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
		name, domain, _ := strings.Cut(host, ".")
		good := map[string]bool{"azurecr.io": true, "azurecr.cn": true, "azurecr.de": true, "azurecr.us": true}[domain] && u.Scheme == "oci" && at.registry == host ||
			(domain == "visualstudio.com" || host == "dev.azure.com") && u.Scheme == "https" && at.registry == "" ||
			u.Scheme == "azblob" && at.registry == "" && at.scope == accounts && isAccount(domain)
		if !good || u.User != nil || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Errorf("%q is taken for %+v", s, at)
		}
	})
}

func isAccount(domain string) bool {
	if zone, ok := strings.CutSuffix(domain, ".blob.storage.azure.net"); ok {
		return strings.Trim(strings.TrimPrefix(zone, "z"), "0123456789") == ""
	}
	return map[string]bool{"blob.core.windows.net": true, "blob.core.chinacloudapi.cn": true, "blob.core.cloudapi.de": true, "blob.core.usgovcloudapi.net": true}[domain]
}

// FuzzExpiry checks that no token makes expiry panic, or end before it began.
func FuzzExpiry(f *testing.F) {
	f.Add("eyJhbGciOiJSUzI1NiJ9.eyJleHAiOjE3OTUyODQ0MzB9.x")
	f.Add("..")
	f.Add("a.e30.b")
	f.Fuzz(func(t *testing.T, s string) {
		if e := expiry(s); !e.IsZero() && e.Unix() <= 0 {
			t.Errorf("%q expires %s", s, e)
		}
	})
}
