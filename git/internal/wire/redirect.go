package wire

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/redact"
)

const maxRedirects = 5

var redirects = map[int]bool{
	http.StatusMovedPermanently: true, http.StatusFound: true, http.StatusSeeOther: true,
	http.StatusTemporaryRedirect: true, http.StatusPermanentRedirect: true,
}

func isRedirect(resp *http.Response) bool { return redirects[resp.StatusCode] }

// credentialHeaders are those that a redirect to another origin would leak.
var credentialHeaders = []string{"Authorization", "Cookie", "Proxy-Authorization"}

// follow returns where the greeting of resp is to be asked for. It applies
// git's rule, that the new address too ends in /info/refs, and ours on origins.
func follow(resp *http.Response) (*url.URL, error) {
	from := resp.Request.URL
	to, err := from.Parse(resp.Header.Get("Location"))
	if err != nil || resp.Header.Get("Location") == "" {
		return nil, fmt.Errorf("%w: it has no valid address", ErrRedirect)
	}
	refuse := func(why string) (*url.URL, error) {
		return nil, fmt.Errorf("%w: to %s: %s", ErrRedirect, clean(redact.URL(to)), why)
	}
	switch {
	case to.Scheme != "http" && to.Scheme != "https" || to.Host == "":
		return refuse("it is no HTTP address")
	case from.Scheme == "https" && to.Scheme == "http":
		return refuse("it gives up TLS")
	case !strings.HasSuffix(to.Path, "/info/refs") || to.RawQuery != serviceQuery:
		return refuse("it is not the address of a Git repository: is a log-in needed?")
	}
	if sameOrigin(from, to) {
		to.User = from.User
		return to, nil
	}
	if hasCredentials(resp.Request) {
		return refuse("credentials are not taken to another origin: put this address into the URL, without /info/refs, if you trust it")
	}
	to.User = nil
	return to, nil
}

// hasCredentials reports whether a request, as it was sent, has any in its headers.
func hasCredentials(req *http.Request) bool {
	return slices.ContainsFunc(credentialHeaders, func(h string) bool { return req.Header.Get(h) != "" })
}

// sameOrigin reports whether two HTTP addresses have the same scheme, host and port.
func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443", "ssh": "22"}[u.Scheme]
}

// baseOf returns the address of the repository whose greeting was found at u.
func baseOf(u, was *url.URL) *url.URL {
	base := *u
	base.RawQuery = ""
	base.Path = strings.TrimSuffix(u.Path, "/info/refs")
	base.RawPath = strings.TrimSuffix(u.RawPath, "/info/refs")
	return &base
}
