package httpserve

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// credentialHeaders are the headers that contain credentials, or may contain them.
var credentialHeaders = [...]string{"Authorization", "Cookie", "Referer"}

// credentials are the credentials of a request.
type credentials struct {
	bearer, basic, path, query string

	cookies    string // the header
	base       string // prefix of relative URLs in the answer to /: ./TOKEN/ for the path /token/TOKEN without a final slash, else ""
	unreadable bool   // the header Authorization contains no token
}

type credentialsKey struct{}

// takeCredentials removes the credentials from a request: the headers Authorization and Cookie, the query parameter
// token, the path prefix /token/TOKEN, and the header Referer, which may repeat these two. It stores them in
// the context of the request, where later calls find them.
func takeCredentials(r *http.Request) *credentials {
	if c, ok := r.Context().Value(credentialsKey{}).(*credentials); ok {
		return c
	}
	c := &credentials{}
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
	if r.URL.RawQuery != "" {
		c.takeQuery(r.URL)
	}
	if strings.Contains(r.URL.Path, "token") {
		c.takePath(r.URL)
	}
	if c.path != "" || c.query != "" {
		r.RequestURI = r.URL.RequestURI()
	}
	*r = *r.WithContext(context.WithValue(r.Context(), credentialsKey{}, c))
	return c
}

// takeQuery removes the parameter token. It leaves the spelling of the other parameters unchanged.
func (c *credentials) takeQuery(u *url.URL) {
	var rest []string
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if decoded, err := url.QueryUnescape(name); err != nil || decoded != "token" {
			rest = append(rest, pair)
			continue
		}
		if decoded, err := url.QueryUnescape(value); err == nil {
			value = decoded
		}
		if c.query == "" {
			c.query = value
		}
	}
	u.RawQuery = strings.Join(rest, "&")
}

// takePath changes the path /token/TOKEN/REST to /REST. Repeated slashes count as one.
func (c *credentials) takePath(u *url.URL) {
	first, tail, _ := strings.Cut(strings.TrimLeft(u.EscapedPath(), "/"), "/")
	if decoded, err := url.PathUnescape(first); err != nil || decoded != "token" {
		return
	}
	token, rest, slash := strings.Cut(strings.TrimLeft(tail, "/"), "/")
	decoded, err := url.PathUnescape(token)
	if err != nil || decoded == "" {
		return
	}
	if c.path = decoded; !slash {
		c.base = "./" + token + "/"
	}
	path, err := url.PathUnescape(rest)
	if err != nil {
		path = rest
	}
	u.Path, u.RawPath = "/"+path, "/"+rest
}

const (
	sessionLifetime = 12 * time.Hour
	maxSessions     = 100 // of one token
)

// sessions are the sessions of the web page. They are kept in memory only.
type sessions struct {
	cookieName string // its name

	mu   sync.Mutex
	byID map[digest]session // by the digest of the value of the cookie
}

// A session replaces a token until it ends.
type session struct {
	token   digest
	expires time.Time
}

// Login begins a session for a token and sets its cookie. The session ends after 12 hours, by
// [Guard.Logout], or when the token is no longer valid. The error is a [Denial] that wraps [ErrUnknown].
func (g *Guard) Login(w http.ResponseWriter, r *http.Request, token string) (Grant, error) {
	if !g.Required() {
		return Grant{All: true}, nil
	}
	if token == "" {
		return Grant{}, denyUnknown("missing", "", "there is no token in the request")
	}
	grant, err := g.byToken(digestOf(token))
	if err != nil {
		return Grant{}, err
	}
	id := rand.Text()
	g.sessions.add(digestOf(id), session{digestOf(token), g.now().Add(sessionLifetime)}, g.now())
	http.SetCookie(w, g.sessions.newCookie(r, id, int(sessionLifetime.Seconds())))
	return grant, nil
}

// Logout ends the session of a request, if there is one.
func (g *Guard) Logout(w http.ResponseWriter, r *http.Request) {
	c := takeCredentials(r)
	if g == nil {
		return
	}
	if id := g.sessions.id(r, c.cookies); id != "" {
		g.sessions.mu.Lock()
		delete(g.sessions.byID, digestOf(id))
		g.sessions.mu.Unlock()
		http.SetCookie(w, g.sessions.newCookie(r, "", -1))
	}
}

// newCookie returns the cookie of a session. If the browser uses https, with this server or with a proxy that terminates
// TLS, the name of the cookie has a prefix with which browsers accept it only from this host and only over https
// (RFC 6265bis, section 4.1.3). Sibling hosts then cannot log users in or out here.
func (s *sessions) newCookie(r *http.Request, value string, maxAge int) *http.Cookie {
	c := &http.Cookie{Name: s.cookieName, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteStrictMode}
	if c.Secure = r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"; c.Secure {
		c.Name = "__Host-" + c.Name
	}
	return c
}

// id returns the value of the session cookie, "" if there is none.
func (s *sessions) id(r *http.Request, cookies string) string {
	if cookies == "" {
		return ""
	}
	header := http.Request{Header: http.Header{"Cookie": {cookies}}}
	if c, err := header.Cookie(s.newCookie(r, "", 0).Name); err == nil {
		return c.Value
	}
	return ""
}

// find returns the token of the session of a request.
func (s *sessions) find(r *http.Request, cookies string, now time.Time) (digest, bool) {
	id := s.id(r, cookies)
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.byID[digestOf(id)]
	return found.token, ok && id != "" && now.Before(found.expires)
}

// add adds a session and deletes those that have ended. If a token has too many sessions, the one that ends first is
// deleted; thus no caller can end the sessions of another token.
func (s *sessions) add(id digest, new session, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count, first := 0, id
	s.byID[id] = new
	for other, old := range s.byID {
		if !now.Before(old.expires) {
			delete(s.byID, other)
		} else if old.token == new.token {
			if count++; old.expires.Before(s.byID[first].expires) {
				first = other
			}
		}
	}
	if count > maxSessions {
		delete(s.byID, first)
	}
}
