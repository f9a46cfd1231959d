package chart

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// normalise returns the URL of a repository as it is compared and asked for
// (reference A12, "URL normalisation"): with exactly one slash at the end of
// its path, none for oci, and none doubled within; scheme and host in lower
// case, no fragment. Query and the spelling of the path are kept. "" stays "".
func normalise(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	u, err := parseURL(text)
	if err != nil {
		return "", err
	}
	return u.String(), nil
}

var slashes = regexp.MustCompile(`/{2,}`)

// parseURL returns the URL that normalise spells. Errors repeat nothing of text.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return nil, fmt.Errorf("parse URL: %w", err)
	}
	if u.Host == "" {
		return nil, errors.New("parse URL: no host: want SCHEME://HOST/PATH")
	}
	path := strings.TrimRight(slashes.ReplaceAllString(u.EscapedPath(), "/"), "/")
	if u.Scheme != "oci" {
		path += "/"
	}
	if u.Path, err = url.PathUnescape(path); err != nil {
		return nil, fmt.Errorf("parse URL: %w", err)
	}
	u.RawPath, u.Host = path, strings.ToLower(u.Host)
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// below returns the URL of a file of the repository at base, whose path ends
// in a slash. The query is that of base.
func below(base *url.URL, file string) *url.URL {
	u := *base
	u.Path += file
	u.RawPath += url.PathEscape(file)
	return &u
}
