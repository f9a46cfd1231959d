package access

import (
	"crypto/rand"
	"net/http"
	"sync"
	"time"
)

const (
	sessionLasts = 12 * time.Hour
	maxSessions  = 100 // of one token
)

// sessions are the logins of the web page. They are in memory only.
type sessions struct {
	mu   sync.Mutex
	byID map[digest]session // the key is the digest of what the cookie has
}

// A session stands for a token until it ends.
type session struct {
	token digest
	ends  time.Time
}

// Login begins a session for a token and sets its cookie. The session ends
// after 12 hours, with [Guard.Logout], or when the token is not valid any more.
// The error is a [Denial] that wraps [ErrUnknown].
func (g *Guard[S]) Login(w http.ResponseWriter, r *http.Request, token string) (Grant[S], error) {
	if !g.Required() {
		return Grant[S]{all: true}, nil
	}
	if token == "" {
		return Grant[S]{}, &Denial{Kind: "missing", reason: "there is no token in the request", err: ErrUnknown}
	}
	grant, err := g.byToken(digestOf(token))
	if err != nil {
		return Grant[S]{}, err
	}
	id := rand.Text()
	g.sessions.add(digestOf(id), session{digestOf(token), g.now().Add(sessionLasts)}, g.now())
	http.SetCookie(w, g.cookie(r, id, int(sessionLasts.Seconds())))
	return grant, nil
}

// Logout ends the session of a request, if there is one.
func (g *Guard[S]) Logout(w http.ResponseWriter, r *http.Request) {
	c := Take(r)
	if g == nil {
		return
	}
	id := c.session(g.cookieFor(r))
	if id == "" {
		return
	}
	g.sessions.remove(digestOf(id))
	http.SetCookie(w, g.cookie(r, "", -1))
}

// cookie returns the cookie of the web page.
func (g *Guard[S]) cookie(r *http.Request, value string, maxAge int) *http.Cookie {
	return &http.Cookie{
		Name: g.cookieFor(r), Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: encrypted(r),
	}
}

// cookieFor returns the name of the cookie. That of https has a prefix, with
// which browsers take it from no other host and by no plain connection (RFC
// 6265bis, section 4.1.3): hosts beside this one cannot log people in or out here.
func (g *Guard[S]) cookieFor(r *http.Request) string {
	if encrypted(r) {
		return "__Host-" + g.cookieName
	}
	return g.cookieName
}

// encrypted reports whether the browser sent a request by https, to this server
// or to a proxy that ends TLS.
func encrypted(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
}

// bySession returns the grant of a session that has not ended.
func (g *Guard[S]) bySession(id string) (Grant[S], bool) {
	if id == "" {
		return Grant[S]{}, false
	}
	s, ok := g.sessions.find(digestOf(id))
	if !ok || !g.now().Before(s.ends) {
		return Grant[S]{}, false
	}
	grant, err := g.byToken(s.token)
	return grant, err == nil
}

func (s *sessions) find(id digest) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.byID[id]
	return found, ok
}

// add remembers a session, and forgets those that have ended. When a token has
// too many, the one of them that ends first is forgotten: nobody ends those of others.
func (s *sessions) add(id digest, new session, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = make(map[digest]session)
	}
	same, first, ends := 0, digest{}, new.ends
	for id, old := range s.byID {
		switch {
		case !now.Before(old.ends):
			delete(s.byID, id)
		case old.token == new.token:
			if same++; !old.ends.After(ends) {
				first, ends = id, old.ends
			}
		}
	}
	if same >= maxSessions {
		delete(s.byID, first)
	}
	s.byID[id] = new
}

func (s *sessions) remove(id digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}
