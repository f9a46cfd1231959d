package redact

import (
	"net/url"
	"strings"
)

// Password returns an address without the password in it, or for http and
// https without a user that has none, who is a token; and otherwise as it
// was written. One that is no URL loses what [String] removes.
func Password(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return String(address)
	}
	if _, has := u.User.Password(); has {
		return u.Redacted()
	}
	if u.User != nil && (u.Scheme == "http" || u.Scheme == "https") {
		u.User = url.User("xxxxx")
		return u.String()
	}
	return address
}

// Query returns an address without what [String] removes if it has a query,
// and otherwise as it was written.
func Query(address string) string {
	if strings.Contains(address, "?") {
		return String(address)
	}
	return address
}
