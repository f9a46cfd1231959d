package exchange

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// What a runner tells its jobs.
const (
	requestURL   = "ACTIONS_ID_TOKEN_REQUEST_URL"
	requestToken = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
)

// JobVariables are those that are set in a job that may ask for tokens.
var JobVariables = []string{requestURL, requestToken}

// JobToken returns an identity token (OpenID Connect) for audience, of the job of
// GitHub Actions or Forgejo Actions that the program runs in. The job must be
// allowed to ask for one: permission id-token: write on GitHub,
// enable-openid-connect on Forgejo. The request goes over https only, or to loopback.
func JobToken(ctx context.Context, client *http.Client, env Environment, audience string) (string, error) {
	u, err := url.Parse(env.Value(requestURL))
	if err != nil || !Safe(u) || u.User != nil {
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
	if err := JSON(client, req, &answer); err != nil {
		return "", fmt.Errorf("identity token of the job: %w", err)
	}
	if answer.Value == "" {
		return "", errors.New("identity token of the job: the answer holds none")
	}
	return answer.Value, nil
}
