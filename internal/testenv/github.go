package testenv

import (
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// GitHubConfig says how [ServeGitHub] serves: one app and its installations.
type GitHubConfig struct {
	CA    *CA      // issues the certificate of the server
	Names []string // host names besides localhost and 127.0.0.1

	App           string // id
	Key           *rsa.PublicKey
	Installations map[string]string // orgs/NAME or users/NAME → id
	Repositories  []string          // repositories that a token may be limited to

	Now func() time.Time // default time.Now
}

// A GitHubServer serves the part of the API of GitHub that apps need.
type GitHubServer struct {
	fakeServer
	URL string

	config GitHubConfig
	mu     sync.Mutex
	tokens map[string]time.Time
	issued int
}

// ServeGitHub serves the API below / and /api/v3 until the test ends. It issues
// tokens to clients whose JSON web token is signed with the key of the app.
func ServeGitHub(t testing.TB, c GitHubConfig) *GitHubServer {
	t.Helper()
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &GitHubServer{fakeServer: fakeServer{defectState: newDefectState(nil)}, config: c, tokens: map[string]time.Time{}}
	s.listen(t, s.serve, c.CA.ServerConfig(false, c.Names...), true)
	s.URL = s.Base
	return s
}

// Requests returns the method, path and body of each request so far, separated by spaces.
func (s *GitHubServer) Requests() (all []string) {
	for _, q := range s.fakeServer.Requests() {
		all = append(all, strings.TrimSpace(q.Method+" "+q.Path+" "+string(q.Body)))
	}
	return all
}

// SetAnswer makes h answer all requests from now on; nil makes the server serve correctly again.
func (s *GitHubServer) SetAnswer(h http.HandlerFunc) {
	if h == nil {
		s.Break(nil)
		return
	}
	s.Break(&Defect{Do: Serve, Handler: func(w http.ResponseWriter, r *http.Request, _ http.Handler) { h(w, r) }})
}

// Revoke invalidates all tokens issued so far.
func (s *GitHubServer) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
}

// Allow reports whether r has a valid token. It is for use as [GitConfig].Allow.
func (s *GitHubServer) Allow(r *http.Request) bool {
	user, token, _ := r.BasicAuth()
	s.mu.Lock()
	defer s.mu.Unlock()
	return user == "x-access-token" && s.config.Now().Before(s.tokens[token])
}

// Tokens returns all tokens issued so far.
func (s *GitHubServer) Tokens() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for i := range s.issued {
		all = append(all, tokenName(i+1))
	}
	return all
}

func tokenName(n int) string { return fmt.Sprintf("ghs_canary%06d", n) }

func (s *GitHubServer) serve(w http.ResponseWriter, r *http.Request) {
	body, err := bodyOf(w, r)
	if err != nil {
		return
	}
	w = s.record(w, r, "", body, false)
	s.respond(w, r, "", func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, strings.TrimPrefix(r.URL.Path, "/api/v3"), body)
	})
}

func (s *GitHubServer) answer(w http.ResponseWriter, r *http.Request, path string, body []byte) {
	if doubt := s.tokenError(r); doubt != "" {
		writeJSON(w, http.StatusUnauthorized, map[string]any{"message": doubt})
		return
	}
	if account, ok := strings.CutSuffix(path, "/installation"); ok && r.Method == http.MethodGet {
		id, ok := s.config.Installations[strings.TrimPrefix(account, "/")]
		if !ok {
			writeJSON(w, http.StatusNotFound, map[string]any{"message": "Not Found"})
			return
		}
		writeJSON(w, http.StatusOK, map[string]any{"id": json.RawMessage(id), "app_slug": "app"})
		return
	}
	s.issue(w, r, path, body)
}

func (s *GitHubServer) issue(w http.ResponseWriter, r *http.Request, path string, body []byte) {
	id, ok := strings.CutSuffix(strings.TrimPrefix(path, "/app/installations/"), "/access_tokens")
	if !ok || r.Method != http.MethodPost || !slices.Contains(slices.Collect(maps.Values(s.config.Installations)), id) {
		writeJSON(w, http.StatusNotFound, map[string]any{"message": "Integration not found"})
		return
	}
	var scope struct{ Repositories []string }
	if err := json.Unmarshal(body, &scope); err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]any{"message": "Problems parsing JSON"})
		return
	}
	for _, name := range scope.Repositories {
		if !slices.Contains(s.config.Repositories, name) {
			writeJSON(w, http.StatusUnprocessableEntity, map[string]any{"message": "There is at least one repository that is not accessible"})
			return
		}
	}
	s.mu.Lock()
	s.issued++
	token, expires := tokenName(s.issued), s.config.Now().Add(time.Hour)
	s.tokens[token] = expires
	s.mu.Unlock()
	writeJSON(w, http.StatusCreated, map[string]any{"token": token, "expires_at": expires.UTC().Format(time.RFC3339)})
}

// tokenError returns the error message of GitHub for the JSON web token of r, or "" if GitHub accepts it.
func (s *GitHubServer) tokenError(r *http.Request) string {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	var claims jwt.RegisteredClaims
	_, err := jwt.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) { return s.config.Key, nil },
		jwt.WithValidMethods([]string{"RS256"}), jwt.WithIssuer(s.config.App), jwt.WithIssuedAt(), jwt.WithExpirationRequired(), jwt.WithTimeFunc(s.config.Now))
	switch {
	case errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued"
	case errors.Is(err, jwt.ErrTokenExpired), err == nil && claims.ExpiresAt.Sub(s.config.Now()) > 10*time.Minute:
		return "'Expiration time' claim ('exp') is too far in the future or in the past"
	case err != nil:
		return "A JSON web token could not be decoded"
	}
	return ""
}
