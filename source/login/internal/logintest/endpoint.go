package logintest

import (
	"net/url"
	"strings"
	"testing"
)

// A Judge is the function by which a provider recognises the URL of a login as an
// endpoint of its own; an error says that it is none.
type Judge[P comparable] func(*url.URL) (P, error)

// Endpoints checks what URLs are taken for.
func Endpoints[P comparable](t *testing.T, judge Judge[P], want map[string]P) {
	t.Helper()
	for s, want := range want {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := judge(u); got != want || err != nil {
			t.Errorf("%s: %#v, %v", s, got, err)
		}
	}
}

// Strangers checks that none of the URLs, which look like those of the
// provider, is taken for an endpoint.
func Strangers[P comparable](t *testing.T, judge Judge[P], urls []string) {
	t.Helper()
	for _, s := range urls {
		u, err := url.Parse(s)
		if err != nil {
			continue // no URL reaches a login that is none
		}
		if at, err := judge(u); err == nil {
			t.Errorf("%s is taken for %#v", s, at)
		}
	}
}

// FuzzEndpoint checks that a login is shown only to what a client would connect
// to: a plain name at port 443, without a user. good is a second, simpler
// opinion on an endpoint and its host, in lower case and without the port.
func FuzzEndpoint[P comparable](f *testing.F, judge Judge[P], good func(at P, scheme, host string) bool, seeds ...string) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.Parse(s)
		if err != nil {
			return
		}
		at, err := judge(u)
		if err != nil {
			return
		}
		host := strings.ToLower(strings.TrimSuffix(u.Host, ":443"))
		if u.User != nil || strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" || !good(at, u.Scheme, host) {
			t.Errorf("%q is taken for %#v", s, at)
		}
	})
}
