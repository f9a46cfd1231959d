// Package github logs in as a GitHub App (reference A9): it exchanges the app's
// private key for an installation token, which is the password of the user
// x-access-token.
//
// The Secret holds githubAppID, one of githubAppInstallationID and
// githubAppInstallationOwner, githubAppPrivateKey, and where the API is not at
// its usual place githubAppBaseURL.
//
//   - A token is for one host: that of the API without a leading "api.", which
//     must be the host of the repository (github.com and api.github.com,
//     HOST and HOST/api/v3), with the same port. Both are reached over https;
//     http is accepted on loopback only.
//   - It can only read, and only the repository in the URL. Where GitHub does
//     not let the installation name that repository (it belongs to somebody
//     else, was renamed, or is a wiki), the token can read the contents of all
//     repositories of the installation.
//   - It is used for 80 % of its life, by everybody who logs in with the same
//     key, installation, API and repository.
package github

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// User is the user name that goes with an installation token.
const User = "x-access-token"

// A Provider logs in as GitHub Apps, and keeps their tokens.
type Provider struct {
	now    func() time.Time
	tokens exchange.Credentials
}

// New returns a provider that tells the time by now, by [time.Now] when that is nil.
func New(now func() time.Time) *Provider {
	if now == nil {
		now = time.Now
	}
	return &Provider{now: now, tokens: exchange.Credentials{Now: now}}
}

// Login is a [source.LoginFunc].
func (p *Provider) Login(ctx context.Context, r source.LoginRequest) (source.Credential, error) {
	if r.SecretName == "" {
		return source.Credential{}, fmt.Errorf("%w: %w: spec.secretRef: a Secret with githubAppID, githubAppInstallationID and githubAppPrivateKey is needed",
			source.ErrInvalid, source.ErrProvider)
	}
	if r.ServiceAccount != "" {
		return source.Credential{}, fmt.Errorf("%w: %w: spec.serviceAccountName goes with provider azure or aws: remove it", source.ErrInvalid, source.ErrProvider)
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
	s := &session{app: app, base: base, client: client, now: p.now}
	repository := repositoryOf(r.URL)
	return p.tokens.Get(ctx, key(app, base, repository), func(ctx context.Context) (source.Credential, error) {
		t, err := s.token(ctx, repository)
		return source.Credential{Username: User, Password: t.Value, Expires: t.Expires}, err
	})
}

// key names everything that decides which token is issued.
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

// baseURL returns where the API is, which decides where the token may go.
func baseURL(given string, repository *url.URL) (*url.URL, error) {
	if given == "" {
		if !strings.EqualFold(repository.Hostname(), "github.com") {
			return nil, fmt.Errorf("githubAppBaseURL is missing: it is the URL of the API of %s, such as https://%[1]s/api/v3", repository.Host)
		}
		given = "https://api.github.com"
	}
	base, err := url.Parse(given)
	if err != nil || !exchange.Safe(base) || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("githubAppBaseURL is not the URL of an API: it should read https://HOST/api/v3")
	}
	home := *base
	home.Host = strings.ToLower(home.Host)
	if !transport.SameOrigin(&home, repository) {
		home.Host = strings.TrimPrefix(home.Host, "api.")
	}
	if !transport.SameOrigin(&home, repository) {
		return nil, fmt.Errorf("the app's token is for %s://%s, not for %s://%s: correct githubAppBaseURL or spec.url",
			home.Scheme, home.Host, repository.Scheme, repository.Host)
	}
	return base, nil
}
