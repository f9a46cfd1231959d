package testenv

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"strings"
	"time"
)

// Expire ends all tokens that were issued so far.
func (s *Azblob) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tokens {
		t.uses = 0
	}
}

// Issued returns the tokens that were issued so far, and those that the configuration has: what no client may show.
func (s *Azblob) Issued() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for token := range s.tokens {
		all = append(all, token)
	}
	return all
}

// describe answers OpenID Connect Discovery.
func (s *Azblob) describe(w http.ResponseWriter) {
	base := s.Base + "/" + s.config.Tenant
	writeJSON(w, "application/json", map[string]any{"issuer": base + "/v2.0", "token_endpoint": base + "/oauth2/v2.0/token", "authorization_endpoint": base + "/oauth2/v2.0/authorize"})
}

// issue answers a request for a token (RFC 6749 section 4.4, RFC 7523 section 2.2).
func (s *Azblob) issue(w http.ResponseWriter, r *http.Request) {
	c := s.config
	refuse := func(status int, code, text string) {
		w.WriteHeader(status)
		writeJSON(w, "application/json", map[string]any{"error": code, "error_description": text + " Trace ID: 1 Correlation ID: 2 Timestamp: 3"})
	}
	switch {
	case c.Tenant == "" || r.URL.Path != "/"+c.Tenant+"/oauth2/v2.0/token":
		refuse(http.StatusBadRequest, "invalid_request", "AADSTS90002: Tenant not found.")
		return
	case r.PostFormValue("client_id") != c.Client:
		refuse(http.StatusBadRequest, "unauthorized_client", "AADSTS700016: Application was not found in the directory.")
		return
	case !strings.Contains(" "+r.PostFormValue("scope")+" ", " https://storage.azure.com/.default "):
		refuse(http.StatusBadRequest, "invalid_scope", "AADSTS70011: The provided value for the input parameter 'scope' is not valid.")
		return
	case !(c.Secret != "" && same(r.PostFormValue("client_secret"), c.Secret)) && !s.proved(r.PostFormValue("client_assertion")):
		refuse(http.StatusUnauthorized, "invalid_client", "AADSTS7000215: Invalid client secret provided.")
		return
	}
	t := &session{token: rand.Text(), uses: c.Uses, expires: s.now().Add(time.Hour)}
	if c.Uses == 0 {
		t.uses = -1
	}
	if c.Lifetime > 0 {
		t.expires = s.now().Add(c.Lifetime)
	}
	s.mu.Lock()
	s.tokens[t.token] = t
	s.mu.Unlock()
	writeJSON(w, "application/json", map[string]any{"token_type": "Bearer", "expires_in": int(time.Until(t.expires).Seconds()), "access_token": t.token})
}

// proved reports whether an assertion is signed with the key of the certificate (RFC 7515, PS256).
func (s *Azblob) proved(assertion string) bool {
	block, _ := pem.Decode(s.config.Certificate)
	parts := strings.Split(assertion, ".")
	if block == nil || len(parts) != 3 {
		return false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return false
	}
	key, _ := cert.PublicKey.(*rsa.PublicKey)
	var claims struct {
		Issuer  string `json:"iss"`
		Expires int64  `json:"exp"`
	}
	text, _ := base64.RawURLEncoding.DecodeString(parts[1])
	signature, _ := base64.RawURLEncoding.DecodeString(parts[2])
	if json.Unmarshal(text, &claims) != nil || claims.Issuer != s.config.Client || claims.Expires < s.now().Unix() || key == nil {
		return false
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	return rsa.VerifyPSS(key, crypto.SHA256, sum[:], signature, nil) == nil
}
