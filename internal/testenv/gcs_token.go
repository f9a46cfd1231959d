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
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// gcsKey is the key of all service accounts.
var gcsKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err) // of the machine
	}
	return key
})

const (
	gcsKeyID   = "0123456789abcdef"
	gcsScope   = "https://www.googleapis.com/auth/devstorage.read_only"
	gcsGrant   = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	maxGCSSkew = time.Minute
)

// TokenURL is where tokens are given.
func (s *GCS) TokenURL() string { return s.Base + tokenPath }

// Key returns the JSON key of the service account.
func (s *GCS) Key() []byte {
	der, err := x509.MarshalPKCS8PrivateKey(gcsKey())
	if err != nil {
		panic(err) // of nobody: the key is RSA
	}
	text, _ := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "project", "private_key_id": gcsKeyID,
		"private_key":  string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"client_email": s.config.Account, "token_uri": s.TokenURL(), "universe_domain": "googleapis.com",
	})
	return text
}

// Tokens returns the tokens that were given so far, and the proofs that they were given for.
func (s *GCS) Tokens() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(slices.Sorted(maps.Keys(s.tokens)), s.proofs)
}

// Expire ends all tokens that were given so far.
func (s *GCS) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for token := range s.tokens {
		s.tokens[token] = 0
	}
}

// verify reports why a request is not served, nil when it is.
func (s *GCS) verify(r *http.Request) *gcsError {
	c := s.config
	token, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case c.Account == "" && c.Token == "":
		return nil
	case !given && c.Anonymous:
		return nil
	case !given:
		return gcsRefusal(http.StatusUnauthorized, "required", "Anonymous caller does not have storage.objects.list access to the Google Cloud Storage bucket.")
	case c.Token != "" && same(token, c.Token):
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens[token] == 0 {
		return gcsRefusal(http.StatusUnauthorized, "authError", "Invalid Credentials")
	}
	s.tokens[token]--
	return nil
}

// issue gives a token for a proof.
func (s *GCS) issue(w http.ResponseWriter, r *http.Request) {
	proof := r.PostFormValue("assertion")
	if proof != "" { // a request that was given up has none
		s.mu.Lock()
		s.proofs = append(s.proofs, proof)
		s.mu.Unlock()
	}
	if r.Method != http.MethodPost || r.PostFormValue("grant_type") != gcsGrant {
		refuseToken(w, "unsupported_grant_type", "Invalid grant_type")
		return
	}
	if problem := s.judge(proof, time.Now()); problem != "" {
		refuseToken(w, "invalid_grant", problem)
		return
	}
	token, uses := "ya29."+rand.Text(), s.config.Uses
	if uses == 0 {
		uses = -1
	}
	s.mu.Lock()
	s.tokens[token] = uses
	s.mu.Unlock()
	writeJSON(w, "application/json; charset=UTF-8", map[string]any{"access_token": token, "expires_in": 3599, "token_type": "Bearer"})
}

func refuseToken(w http.ResponseWriter, code, description string) {
	text, _ := json.Marshal(map[string]string{"error": code, "error_description": description})
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(http.StatusBadRequest)
	w.Write(text)
}

// judge says what is wrong with a proof, "" when it is good.
func (s *GCS) judge(proof string, now time.Time) string {
	var header struct{ Alg, Typ, Kid string }
	var claims struct {
		Iss, Scope, Aud string
		Iat, Exp        int64
	}
	signed, signature, _ := cutLast(proof, ".")
	first, second, _ := strings.Cut(signed, ".")
	if !decodePart(first, &header) || !decodePart(second, &claims) || header.Alg != "RS256" || header.Typ != "JWT" || header.Kid != gcsKeyID {
		return "Invalid JWT."
	}
	sum := sha256.Sum256([]byte(signed))
	raw, _ := base64.RawURLEncoding.DecodeString(signature)
	issued, expires := time.Unix(claims.Iat, 0), time.Unix(claims.Exp, 0)
	switch {
	case s.config.Account == "" || claims.Iss != s.config.Account:
		return "Invalid grant: account not found"
	case rsa.VerifyPKCS1v15(&gcsKey().PublicKey, crypto.SHA256, sum[:], raw) != nil:
		return "Invalid JWT Signature."
	case claims.Aud != s.TokenURL():
		return "Invalid JWT: Failed audience check."
	case claims.Scope != gcsScope:
		return "Invalid OAuth scope"
	case issued.After(now.Add(maxGCSSkew)) || !expires.After(now) || expires.Sub(issued) > time.Hour:
		return "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe."
	}
	return ""
}

func cutLast(s, sep string) (before, after string, found bool) {
	at := strings.LastIndex(s, sep)
	if at < 0 {
		return s, "", false
	}
	return s[:at], s[at+len(sep):], true
}

func decodePart(text string, out any) bool {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	return err == nil && json.Unmarshal(raw, out) == nil
}

// gcsTokenOf returns the page token that stands for a key.
func gcsTokenOf(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

func gcsToken(token string) (key string, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	return string(raw), err == nil
}
