package github

import (
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate-io/headgate/internal/transport"
)

const (
	skew = 30 * time.Second // how far the clocks may be apart
	life = 2 * time.Minute  // of a proof; GitHub accepts ten minutes
)

// sign returns the proof that its bearer is app: a JSON web token (RFC 7519).
func sign(app transport.App, now time.Time) (string, error) {
	claims := jwt.MapClaims{"iat": now.Add(-skew).Unix(), "exp": now.Add(life).Unix(), "iss": app.ID}
	text, err := jwt.NewWithClaims(jwt.SigningMethodRS256, claims).SignedString(app.Key)
	if err != nil {
		return "", fmt.Errorf("sign as the app: %w", err)
	}
	return text, nil
}
