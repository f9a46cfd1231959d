// Package origin compares the origins of URLs, to which credentials are bound.
package origin

import (
	"net/url"
	"strings"
)

// Of returns scheme, host and port of u in a form that can be compared (RFC 6454 section
// 4). It lowers the case of ASCII letters only: [strings.ToLower] would make one of
// different hosts.
func Of(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = ports[u.Scheme]
	}
	return u.Scheme + "://" + strings.Map(lower, u.Hostname()) + ":" + port
}

var ports = map[string]string{"http": "80", "https": "443", "ssh": "22"}

func lower(r rune) rune {
	if 'A' <= r && r <= 'Z' {
		return r + 'a' - 'A'
	}
	return r
}
