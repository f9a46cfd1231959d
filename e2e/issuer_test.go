package e2e

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// service is the name by which an issuer knows a registry.
const service = "registry.test"

// An issuer gives bearer tokens to alice and s3cret (distribution's "Token
// Authentication Specification"): JSON web tokens that are signed with RS256.
type issuer struct {
	*httptest.Server
	key *rsa.PrivateKey

	mu   sync.Mutex
	seen []string // USER SCOPE STATUS
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	check(t, err)
	i := &issuer{key: key}
	i.Server = httptest.NewServer(i)
	t.Cleanup(i.Close)
	return i
}

// keySet returns the public key as a JSON web key set (RFC 7517).
func (i *issuer) keySet(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"keys": []keys{{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "key",
		"n": encode(i.key.N.Bytes()), "e": encode(big.NewInt(int64(i.key.E)).Bytes()),
	}}})
	check(t, err)
	return string(text)
}

// ServeHTTP implements [http.Handler].
func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	query := r.URL.Query()
	status := http.StatusOK
	switch {
	case r.URL.Path != "/token" || query.Get("service") != service:
		status = http.StatusNotFound
	case user != "alice" || password != "s3cret":
		status = http.StatusUnauthorized
	}
	i.mu.Lock()
	i.seen = append(i.seen, user+" "+strings.Join(query["scope"], " ")+" "+http.StatusText(status))
	i.mu.Unlock()
	if status != http.StatusOK {
		w.WriteHeader(status)
		return
	}
	access := []map[string]any{}
	for _, scope := range query["scope"] {
		if part := strings.SplitN(scope, ":", 3); len(part) == 3 {
			access = append(access, map[string]any{"type": part[0], "name": part[1], "actions": strings.Split(part[2], ",")})
		}
	}
	now := time.Now()
	token, err := i.sign(map[string]any{"iss": "test", "sub": user, "aud": service, "jti": rand.Text(), "access": access,
		"iat": now.Unix(), "nbf": now.Add(-time.Minute).Unix(), "exp": now.Add(5 * time.Minute).Unix()})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"token": token, "expires_in": 300})
}

// sign returns claims as a JSON web token.
func (i *issuer) sign(claims map[string]any) (string, error) {
	head, err := json.Marshal(keys{"typ": "JWT", "alg": "RS256", "kid": "key"})
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	text := encode(head) + "." + encode(body)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	return text + "." + encode(signature), err
}

// took returns who asked for what since the last time.
func (i *issuer) took() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	seen := i.seen
	i.seen = nil
	return seen
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
