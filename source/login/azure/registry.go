package azure

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// user is whose password a registry's refresh token is.
const user = "00000000-0000-0000-0000-000000000000"

// registryCredential exchanges a token of the program for a password of the
// registry at an endpoint. A token that is refused is not used again.
func (p *Provider) registryCredential(ctx context.Context, client *http.Client, at endpoint) (source.Credential, error) {
	return p.passwords.Get(ctx, at.registry, func(ctx context.Context) (source.Credential, error) {
		token, err := p.identify(ctx, client, at)
		if err != nil {
			return source.Credential{}, err
		}
		password, err := trade(ctx, client, at.registry, token.Token)
		if refused, ok := errors.AsType[*exchange.StatusError](err); ok && refused.Final() {
			token.Refused()
			err = fmt.Errorf("%w: %w: check that the identity of this program may use this registry", source.ErrProvider, err)
		}
		c := source.Credential{Username: user, Password: password, Expires: expiry(password), Refused: token.Refused}
		if c.Expires.IsZero() {
			c.Expires = token.Expires
		}
		return c, err
	})
}

// trade exchanges token for a refresh token of the registry at host, as its
// documentation has it (AAD-OAuth, "Calling POST /oauth2/exchange to get an ACR
// refresh token"). It follows no redirect.
func trade(ctx context.Context, client *http.Client, host, token string) (string, error) {
	form := url.Values{"grant_type": {"access_token"}, "service": {host}, "access_token": {token}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+host+"/oauth2/exchange", strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "headgate")
	var answer struct {
		RefreshToken string `json:"refresh_token"`
	}
	straight := *client
	straight.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	err = exchange.JSON(&straight, req, &answer)
	return answer.RefreshToken, err
}

// expiry returns when a JSON web token expires by its own word (RFC 7519
// section 4.1.4), zero when it does not say. That it is true is up to who issued it.
func expiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	var claims struct {
		Expires int64 `json:"exp"`
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(text, &claims) != nil || claims.Expires <= 0 {
		return time.Time{}
	}
	return time.Unix(claims.Expires, 0)
}
