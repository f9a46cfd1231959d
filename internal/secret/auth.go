package secret

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
)

var (
	keyUsername = []string{"username"}
	keyPassword = []string{"password"}
	keyBearer   = []string{"bearerToken"}
	keyHeaders  = []string{"headers"}
)

// An Auth holds the credentials of an Authorization header. The zero value is none.
type Auth struct {
	Username, Password string // basic
	Bearer             string // bearer token; takes precedence
}

// Header returns the value of the Authorization header, "" for none.
func (a Auth) Header() string {
	switch {
	case a.Bearer != "":
		return "Bearer " + a.Bearer
	case a.Username != "" || a.Password != "":
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(a.Username+":"+a.Password))
	}
	return ""
}

// Basic returns the user name and password of a Secret, or the zero Auth if it has neither.
// A user name may come without a password, but a password needs a user name.
func (r Reader) Basic() (Auth, error) {
	user, err := r.Text(keyUsername)
	if err != nil {
		return Auth{}, err
	}
	password, err := r.Text(keyPassword)
	if err != nil {
		return Auth{}, err
	}
	if user == "" && password != "" {
		return Auth{}, r.Problem("username", "is missing: password needs it")
	}
	if strings.Contains(user, ":") {
		return Auth{}, r.Problem("username", "has a colon, which basic authentication cannot carry")
	}
	return Auth{Username: user, Password: password}, nil
}

// Auth returns a bearer token or a user name and password of a Secret, never
// both. The zero Auth means that it has neither.
func (r Reader) Auth() (Auth, error) { return r.auth(keyBearer) }

// auth is Auth with the token under the first of tokens that has a value.
func (r Reader) auth(tokens []string) (Auth, error) {
	auth, err := r.Basic()
	if err != nil {
		return Auth{}, err
	}
	_, key := r.Value(tokens)
	token, err := r.Text(tokens)
	if err == nil && token != "" && auth != (Auth{}) {
		err = r.Problem(key, "and username exclude each other: remove one")
	}
	if err != nil {
		return Auth{}, err
	}
	auth.Bearer = token
	return auth, nil
}

// ownHeaders are the headers that belong to the transport or to the format of requests.
var ownHeaders = []string{"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Keep-Alive",
	"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// Headers returns the headers of a Secret, one "Name: value" per line; empty lines are
// ignored. The Secret must not set the headers in reserved, in canonical form, or
// those of the transport.
func (r Reader) Headers(reserved ...string) (http.Header, error) {
	headers := http.Header{}
	text, key := r.Value(keyHeaders)
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, problem := parseHeader(line)
		if slices.Contains(ownHeaders, name) || slices.Contains(reserved, name) {
			problem = "sets " + name + ", which is not for Secrets to set: remove it"
		}
		if problem != "" {
			return nil, r.Problem(key, "line %d %s", number, problem)
		}
		headers.Add(name, value)
	}
	return headers, nil
}

// Credentials returns the credentials of a Secret for requests: a bearer token, under the
// first of tokens that has a value, or a user name and password, and the headers under the
// key headers. The headers do not contain the bearer token or the user. reserved are headers
// that the Secret must not set.
func (r Reader) Credentials(tokens []string, reserved ...string) (http.Header, Auth, error) {
	auth, err := r.auth(tokens)
	if err != nil {
		return nil, auth, err
	}
	headers, err := r.Headers(reserved...)
	if _, key := r.Value(tokens); err == nil && auth != (Auth{}) && headers.Get("Authorization") != "" {
		err = r.Problem("headers", "has Authorization, and so have %s or username: remove one", key)
	}
	return headers, auth, err
}

// parseHeader splits a line. problem repeats nothing of the line.
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
