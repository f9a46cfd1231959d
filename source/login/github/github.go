// Package github logs in as a GitHub App (reference A9): it exchanges the app's
// private key for an installation token, which is the password of the user
// x-access-token.
//
// The Secret holds githubAppID, one of githubAppInstallationID and
// githubAppInstallationOwner, githubAppPrivateKey and, if the API is not at its usual URL,
// githubAppBaseURL.
//
//   - A token is for one host: that of the API without a leading "api.", which must be the
//     host of the repository (github.com and api.github.com, HOST and HOST/api/v3), with
//     the same port. Both must use https; http is accepted on loopback only.
//   - A token can only read, and only the repository in the URL. If GitHub does not let the
//     installation name that repository (it belongs to another owner, was renamed, or is a
//     wiki), the token can read the contents of all repositories of the installation.
//   - A token is used for 80 % of its lifetime, by all logins with the same key,
//     installation, API and repository.
package github

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// User is the user name that goes with an installation token.
const User = "x-access-token"

// A Provider logs in as GitHub Apps, and keeps their tokens. The zero value is
// ready to use.
type Provider struct {
	Now func() time.Time // nil for time.Now

	tokens exchange.Credentials
}

// Login is a [source.LoginFunc].
func (p *Provider) Login(ctx context.Context, r source.LoginRequest) (source.Credential, error) {
	if r.SecretName == "" {
		return source.Credential{}, fmt.Errorf("%w: %w: spec.secretRef: a Secret with githubAppID, githubAppInstallationID and githubAppPrivateKey is needed",
			source.ErrInvalid, source.ErrProvider)
	}
	if r.ServiceAccount != "" {
		return source.Credential{}, fmt.Errorf("%w: %w: spec.serviceAccountName requires provider azure or aws: remove it", source.ErrInvalid, source.ErrProvider)
	}
	app, err := transport.GitHubApp(r.SecretName, r.Secret)
	if err != nil {
		return source.Credential{}, fmt.Errorf("%w: %w", source.ErrProvider, err)
	}
	base, err := baseURL(app.BaseURL, r.URL)
	if err != nil {
		return source.Credential{}, fmt.Errorf("%w: secret %s: %w", source.ErrProvider, r.SecretName, err)
	}
	client := exchange.Client(r.Client)
	defer client.CloseIdleConnections()
	s := &session{app: app, base: base, client: client, now: p.Now}
	repository := repositoryOf(r.URL)
	return p.tokens.Get(ctx, p.Now, key(app, base, repository), func(ctx context.Context) (source.Credential, error) {
		t, err := s.token(ctx, repository)
		return source.Credential{Username: User, Password: t.Value, Expires: t.Expires}, err
	})
}

// key returns the cache key of a token: everything that decides which token is issued.
func key(app transport.App, base *url.URL, repository string) string {
	fingerprint := sha256.Sum256(x509.MarshalPKCS1PrivateKey(app.Key))
	return strings.Join([]string{app.ID, app.Installation, app.Owner, base.String(), repository, hex.EncodeToString(fingerprint[:])}, "\n")
}

// repositoryOf returns the name of the repository at u, without its owner, ""
// when u is not OWNER/NAME.
func repositoryOf(u *url.URL) string {
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	if len(parts) != 2 {
		return ""
	}
	return strings.TrimSuffix(parts[1], ".git")
}

// baseURL returns the URL of the API, which decides where the token may be sent.
func baseURL(given string, repository *url.URL) (*url.URL, error) {
	if given == "" {
		if !strings.EqualFold(repository.Hostname(), "github.com") {
			return nil, fmt.Errorf("githubAppBaseURL is missing: it is the URL of the API of %s, such as https://%[1]s/api/v3", repository.Host)
		}
		given = "https://api.github.com"
	}
	base, err := url.Parse(given)
	if err != nil || !exchange.IsConfidential(base) || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("githubAppBaseURL is not the URL of an API: it should read https://HOST/api/v3")
	}
	webURL := *base
	webURL.Host = strings.ToLower(webURL.Host)
	if !transport.SameOrigin(&webURL, repository) {
		webURL.Host = strings.TrimPrefix(webURL.Host, "api.")
	}
	if !transport.SameOrigin(&webURL, repository) {
		return nil, fmt.Errorf("the app's token is for %s://%s, not for %s://%s: correct githubAppBaseURL or spec.url",
			webURL.Scheme, webURL.Host, repository.Scheme, repository.Host)
	}
	return base, nil
}

// A token is an installation token.
type token struct {
	Value   string    `json:"token"`
	Expires time.Time `json:"expires_at"`
}

// A session requests one token from the API.
type session struct {
	app    transport.App
	base   *url.URL
	client *http.Client
	now    func() time.Time
}

// scope limits a token to repositories and permissions.
type scope struct {
	Repositories []string          `json:"repositories,omitempty"`
	Permissions  map[string]string `json:"permissions"`
}

// token gets a token that can read repository.
func (s *session) token(ctx context.Context, repository string) (token, error) {
	id := s.app.Installation
	if id == "" {
		var err error
		if id, err = s.installation(ctx); err != nil {
			return token{}, err
		}
	}
	wanted := scope{Permissions: map[string]string{"contents": "read"}}
	if repository != "" {
		wanted.Repositories = []string{repository}
	}
	path := "/app/installations/" + id + "/access_tokens"
	var t token
	err := s.request(ctx, http.MethodPost, path, wanted, &t)
	if repository != "" && isStatus(err, http.StatusUnprocessableEntity) {
		wanted.Repositories = nil
		err = s.request(ctx, http.MethodPost, path, wanted, &t)
	}
	return t, err
}

// installation looks the installation up by the owner of the repositories.
func (s *session) installation(ctx context.Context) (string, error) {
	var found struct {
		ID json.Number `json:"id"`
	}
	err := s.request(ctx, http.MethodGet, "/orgs/"+s.app.Owner+"/installation", nil, &found)
	if isStatus(err, http.StatusNotFound) {
		err = s.request(ctx, http.MethodGet, "/users/"+s.app.Owner+"/installation", nil, &found)
	}
	switch {
	case isStatus(err, http.StatusNotFound):
		return "", fmt.Errorf("%w: the app is not installed for %s: correct githubAppInstallationOwner, or install it", source.ErrProvider, s.app.Owner)
	case err != nil:
		return "", err
	}
	if id, err := found.ID.Int64(); err != nil || id <= 0 {
		return "", fmt.Errorf("the API tells no id of the installation for %s", s.app.Owner)
	}
	return found.ID.String(), nil
}

// request sends one request to the API.
func (s *session) request(ctx context.Context, method, path string, in, out any) error {
	now := exchange.Time(s.now) // a token that proves the identity of the app (RFC 7519)
	proof, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{"iat": now.Add(-skew).Unix(), "exp": now.Add(life).Unix(), "iss": s.app.ID}).SignedString(s.app.Key)
	if err != nil {
		return fmt.Errorf("sign as the app: %w", err)
	}
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(s.base.String(), "/")+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+proof)
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	req.Header.Set("User-Agent", "headgate")
	if err := exchange.JSON(s.client, req, out); err != nil {
		return explain(err)
	}
	return nil
}

// hints are advice on a status. A refusal of an app, its installation or its key does not
// pass by waiting.
var hints = map[int]string{
	http.StatusUnauthorized:        "check githubAppID, githubAppPrivateKey and the clock of this machine",
	http.StatusForbidden:           "check that the installation is not suspended",
	http.StatusNotFound:            "check githubAppInstallationID and githubAppBaseURL, and that the app is still installed",
	http.StatusUnprocessableEntity: "check that the app may read the contents of repositories",
}

func explain(err error) error {
	e, ok := errors.AsType[*exchange.StatusError](err)
	if !ok || e.RateLimited() || hints[e.Status] == "" {
		return err
	}
	return fmt.Errorf("%w: %w: %s", source.ErrProvider, err, hints[e.Status])
}

func isStatus(err error, status int) bool {
	e, ok := errors.AsType[*exchange.StatusError](err)
	return ok && e.Status == status
}

const (
	skew = 30 * time.Second // how far the clocks may be apart
	life = 2 * time.Minute  // of a proof; GitHub accepts ten minutes
)
