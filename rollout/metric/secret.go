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
	if q.Secrets == nil {
		return nil, fmt.Errorf("spec.provider.secretRef names Secret %s, but there are no Secrets here", e.SecretRef.Name)
	}
	name := e.namespace + "/" + e.SecretRef.Name
	held, err := q.Secrets(ctx, e.namespace, e.SecretRef.Name)
	if err != nil {
		return nil, fmt.Errorf("spec.provider.secretRef: %w", secret.Unreadable("secret "+name, err))
	}
	return c, c.read(secret.Reader{Name: name, Data: held})
}

var keyToken = []string{"token", "bearerToken"}

// read takes what a Secret holds.
func (c *credentials) read(r secret.Reader) error {
	token, err := r.Text(keyToken)
	if err != nil {
		return err
	}
	basic, err := r.Basic()
	switch {
	case err != nil:
		return err
	case token != "" && basic != (secret.Auth{}):
		return r.Problem("token", "and username exclude each other: remove one")
	case token != "" || basic != (secret.Auth{}):
		c.auth = basic
		c.auth.Bearer = token
	}
	c.secrets = append(c.secrets, token, basic.Password)
	headers, err := r.Headers()
	if err != nil {
		return err
	}
	if headers.Get("Authorization") != "" && (token != "" || basic != (secret.Auth{})) {
		return r.Problem("headers", "has Authorization, and so have token or username: remove one")
	}
	for name, values := range headers {
		c.headers[name] = values
		c.secrets = append(c.secrets, values...)
	}
	return nil
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
