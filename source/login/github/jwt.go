package github

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/internal/transport"
)

const (
	skew = 30 * time.Second // how far the clocks may be apart
	life = 2 * time.Minute  // of a proof; GitHub accepts ten minutes
)

// sign returns the proof that its bearer is app: a JSON web token (RFC 7519)
// with an RS256 signature (RFC 7518 section 3.3).
func sign(app transport.App, now time.Time) (string, error) {
	claims, err := json.Marshal(struct {
		Issued  int64  `json:"iat"`
		Expires int64  `json:"exp"`
		Issuer  string `json:"iss"`
	}{now.Add(-skew).Unix(), now.Add(life).Unix(), app.ID})
	if err != nil {
		return "", err
	}
	b64 := base64.RawURLEncoding
	text := b64.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + b64.EncodeToString(claims)
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, app.Key, crypto.SHA256, digest[:])
	if err != nil {
		return "", fmt.Errorf("sign as the app: %w", err)
	}
	return text + "." + b64.EncodeToString(signature), nil
}
