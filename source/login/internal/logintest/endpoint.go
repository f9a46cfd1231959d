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

// Strangers checks that none of the URLs in a text, which look like those of the
// provider, is taken for an endpoint.
func Strangers[P comparable](t *testing.T, judge Judge[P], urls string) {
	t.Helper()
	for s := range strings.FieldsSeq(urls) {
		u, err := url.Parse(s)
		if err != nil {
			continue // no URL reaches a login that is none
		}
		if at, err := judge(u); err == nil {
			t.Errorf("%s is taken for %#v", s, at)
		}
	}
}
