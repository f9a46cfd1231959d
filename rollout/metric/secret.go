package metric

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/headgate-io/headgate/internal/secret"
)

// credentials are what a server is shown.
type credentials struct {
	auth    secret.Auth
	headers http.Header
	secrets []string // that errors must not show
}

// credentials returns those of an endpoint: its Secret, or else the user
// information of its address, and its headers.
func (q *Querier) credentials(ctx context.Context, e endpoint, user *url.Userinfo) (*credentials, error) {
	c := &credentials{headers: http.Header{}}
	for name, of := range e.Headers {
		c.headers[http.CanonicalHeaderKey(name)] = of
		c.secrets = append(c.secrets, of...)
	}
	if user != nil {
		c.auth.Username = user.Username()
		c.auth.Password, _ = user.Password()
		c.secrets = append(c.secrets, c.auth.Username, c.auth.Password) // the user name may be a token
	}
	if e.SecretRef == nil {
		return c, nil
	}
	r, err := secret.Get(ctx, q.Secrets, e.namespace, e.SecretRef.Name)
	if err != nil {
		return nil, fmt.Errorf("spec.provider.secretRef: %w", err)
	}
	headers, auth, err := r.Credentials([]string{"token", "bearerToken"})
	if auth != (secret.Auth{}) {
		c.auth = auth
	}
	c.secrets = append(c.secrets, auth.Bearer, auth.Password)
	for name, values := range headers {
		c.headers[name] = values
		c.secrets = append(c.secrets, values...)
	}
	return c, err
}

// sign puts the credentials on a request.
func (c *credentials) sign(req *http.Request) {
	req.Header = c.headers.Clone()
	if auth := c.auth.Header(); auth != "" {
		req.Header.Set("Authorization", auth)
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json")
	}
}
