package access

import (
	"context"
	"net/http"
	"net/url"
	"strings"
)

const (
	firstPart = "token" // of the path; the next is TOKEN
	parameter = "token" // of the query
)

// credentialHeaders are those that say who the caller is, or may.
var credentialHeaders = [...]string{"Authorization", "Cookie", "Referer"}

// Credentials are what a request said of its caller.
type Credentials struct {
	bearer, basic, path, query string

	cookies string // the header

	base string // of relative URLs of the root

	unreadable bool // there is a header Authorization that says none of this
}

// Base returns what relative URLs in the answer to / begin with: "", or when the
// request was for /token/TOKEN without a slash at the end ./TOKEN/, for they are
// relative to /token/ then.
func (c *Credentials) Base() string { return c.base }

// session returns the value of the first cookie of a name, "" for none.
func (c *Credentials) session(name string) string {
	if c.cookies == "" {
		return ""
	}
	r := http.Request{Header: http.Header{"Cookie": {c.cookies}}}
	cookie, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return cookie.Value
}

type credentialsKey struct{}

// Take takes the credentials out of a request: the headers Authorization and
// Cookie, the query, the beginning of the path, and Referer, which may repeat
// the latter two. Identify finds them in the context of the request from then on.
func Take(r *http.Request) *Credentials {
	if c, ok := r.Context().Value(credentialsKey{}).(*Credentials); ok {
		return c
	}
	if !carries(r) {
		return &none
	}
	c := &Credentials{}
	c.takeHeaders(r)
	c.takeQuery(r.URL)
	c.takePath(r.URL)
	if c.path != "" || c.query != "" {
		r.RequestURI = r.URL.RequestURI()
	}
	if *c != (Credentials{}) { // else there is nothing to find, now and later
		*r = *r.WithContext(context.WithValue(r.Context(), credentialsKey{}, c))
	}
	return c
}

// none are the credentials of a request that has none; nobody changes them.
var none Credentials

// carries reports whether a request may have credentials. Of one that has none,
// most of them where nobody is asked, nothing is changed however often it is looked at.
func carries(r *http.Request) bool {
	for _, name := range credentialHeaders {
		if r.Header[name] != nil {
			return true
		}
	}
	u := r.URL
	return u.RawQuery != "" || strings.Contains(u.Path, firstPart)
}

func (c *Credentials) takeHeaders(r *http.Request) {
	if text := r.Header.Get("Authorization"); text != "" {
		scheme, token, _ := strings.Cut(text, " ")
		if _, password, ok := r.BasicAuth(); ok {
			c.basic = password
		} else if strings.EqualFold(scheme, "Bearer") {
			c.bearer = strings.TrimSpace(token)
		}
		c.unreadable = c.basic == "" && c.bearer == ""
	}
	c.cookies = strings.Join(r.Header["Cookie"], "; ")
	for _, name := range credentialHeaders {
		delete(r.Header, name)
	}
}

// takeQuery leaves the other parameters as they are written.
func (c *Credentials) takeQuery(u *url.URL) {
	if !strings.Contains(u.RawQuery, parameter) && !strings.Contains(u.RawQuery, "%") {
		return
	}
	var rest []string
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err != nil || plain != parameter {
			rest = append(rest, pair)
			continue
		}
		plain, err := url.QueryUnescape(value)
		if err != nil {
			plain = value // which is no token of the file
		}
		if c.query == "" {
			c.query = plain
		}
	}
	u.RawQuery = strings.Join(rest, "&")
}

// takePath makes /token/TOKEN/rest /rest. Repeated slashes count as one.
func (c *Credentials) takePath(u *url.URL) {
	first, tail, _ := strings.Cut(strings.TrimLeft(u.EscapedPath(), "/"), "/")
	if plain, err := url.PathUnescape(first); err != nil || plain != firstPart {
		return
	}
	token, rest, slash := strings.Cut(strings.TrimLeft(tail, "/"), "/")
	plain, err := url.PathUnescape(token)
	if err != nil || plain == "" {
		return
	}
	c.path = plain
	if !slash {
		c.base = "./" + token + "/"
	}
	path, err := url.PathUnescape(rest)
	if err != nil {
		path = rest
	}
	u.Path, u.RawPath = "/"+path, "/"+rest
}
