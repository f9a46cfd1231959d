// Package actions gets identity tokens (OpenID Connect) for the job of GitHub
// Actions or Forgejo Actions that the program runs in. The job must be allowed
// to ask for them: permission id-token: write on GitHub, enable-openid-connect
// on Forgejo.
package actions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// What a runner tells its jobs.
const (
	requestURL   = "ACTIONS_ID_TOKEN_REQUEST_URL"
	requestToken = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
)

// Variables are those that are set in a job that may ask for tokens.
var Variables = []string{requestURL, requestToken}

// Token returns an identity token for audience. The request for it is made over
// https only, or on loopback.
func Token(ctx context.Context, client *http.Client, env exchange.Environment, audience string) (string, error) {
	u, err := url.Parse(env.Value(requestURL))
	if err != nil || !exchange.Safe(u) || u.User != nil {
		return "", errors.New(requestURL + " is not an https URL")
	}
	q := u.Query()
	q.Set("audience", audience)
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", errors.New(requestURL + " is not an https URL")
	}
	req.Header.Set("Authorization", "Bearer "+env.Value(requestToken))
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "headgate")
	var answer struct {
		Value string `json:"value"`
	}
	if err := exchange.JSON(client, req, &answer); err != nil {
		return "", fmt.Errorf("identity token of the job: %w", err)
	}
	if answer.Value == "" {
		return "", errors.New("identity token of the job: the answer holds none")
	}
	return answer.Value, nil
}
