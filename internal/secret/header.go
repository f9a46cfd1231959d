package secret

import (
	"net/http"
	"slices"
	"strings"
)

var keyHeaders = []string{"headers"}

// ownHeaders are those that belong to the transport or to the format of requests.
var ownHeaders = []string{"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Keep-Alive",
	"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// Headers returns the headers of a Secret, one "Name: value" a line; empty lines
// do not count. The caller's own headers, in canonical form, are not for Secrets to set, and
// neither are those of the transport.
func (r Reader) Headers(own ...string) (http.Header, error) {
	headers := http.Header{}
	text, key := r.Value(keyHeaders)
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, problem := parseHeader(line)
		if slices.Contains(ownHeaders, name) || slices.Contains(own, name) {
			problem = "sets " + name + ", which is not for Secrets to set: remove it"
		}
		if problem != "" {
			return nil, r.Problem(key, "line %d %s", number, problem)
		}
		headers.Add(name, value)
	}
	return headers, nil
}

// Credentials returns what a Secret has for the header of requests: a bearer token, under the first of tokens
// that has a value, or a user name and password, and under the key headers others. The bearer token or the user is
// not among the headers yet. Own are headers that are not for the Secret to set.
func (r Reader) Credentials(tokens []string, own ...string) (http.Header, Auth, error) {
	auth, err := r.Basic()
	if err != nil {
		return nil, auth, err
	}
	_, key := r.Value(tokens)
	token, err := r.Text(tokens)
	if err == nil && token != "" && auth != (Auth{}) {
		err = r.Problem(key, "and username exclude each other: remove one")
	}
	if err != nil {
		return nil, auth, err
	}
	auth.Bearer = token
	headers, err := r.Headers(own...)
	if err == nil && auth != (Auth{}) && headers.Get("Authorization") != "" {
		err = r.Problem("headers", "has Authorization, and so have %s or username: remove one", key)
	}
	return headers, auth, err
}

// parseHeader splits a line. A problem repeats nothing of it.
func parseHeader(line string) (name, value, problem string) {
	name, value, found := strings.Cut(line, ":")
	value = strings.TrimSpace(value)
	switch {
	case !found:
		return "", "", "has no colon: write NAME: VALUE"
	case name == "" || strings.ContainsFunc(name, notToken):
		return "", "", "does not begin with the name of a header: write NAME: VALUE"
	case strings.ContainsFunc(value, func(c rune) bool { return isControl(c) && c != '\t' }):
		return "", "", "has a control character"
	}
	return http.CanonicalHeaderKey(name), value, ""
}

// notToken reports whether c may not be in the name of a header (RFC 9110 section 5.6.2).
func notToken(c rune) bool {
	letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	return !letter && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}
