package gcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/headgate-io/headgate/login/internal/exchange"
)

// types are those of the files that say who the program is.
var types = []google.CredentialsType{
	google.ServiceAccount,
	google.AuthorizedUser,
	google.ExternalAccount,
	google.ExternalAccountAuthorizedUser,
	google.ImpersonatedServiceAccount,
}

// A credentials file, as far as it is judged here.
type credentials struct {
	Type          google.CredentialsType `json:"type"`
	Universe      string                 `json:"universe_domain"`
	TokenURI      string                 `json:"token_uri"`
	TokenURL      string                 `json:"token_url"`
	Impersonation string                 `json:"service_account_impersonation_url"`
	From          struct {
		Executable any `json:"executable"`
	} `json:"credential_source"`
	Source *credentials `json:"source_credentials"`
}

// byFile gets a token with what a file holds.
func (i identity) byFile(ctx context.Context, name string) (token, error) {
	data, err := exchange.File(name)
	if err != nil {
		return token{}, wrong("%w", err)
	}
	var c credentials
	if err := json.Unmarshal(data, &c); err != nil {
		return token{}, wrong("%s: %s", name, exchange.Said(err.Error()))
	}
	if err := c.check(); err != nil {
		return token{}, wrong("%s: %w", name, err)
	}
	if err := i.belongs(c.Universe); err != nil {
		return token{}, err
	}
	return i.ask(ctx, func(ctx context.Context) (oauth2.TokenSource, error) {
		found, err := google.CredentialsFromJSONWithType(ctx, data, c.Type, scope)
		if err != nil {
			return nil, err
		}
		return found.TokenSource, nil
	})
}

// check reports what in c must not be used.
func (c *credentials) check() error {
	if !slices.Contains(types, c.Type) {
		return fmt.Errorf("type %q is none of %q", exchange.Said(string(c.Type)), types)
	}
	if c.From.Executable != nil {
		return fmt.Errorf("credential_source.executable: headgate runs no programs: use a file or a url")
	}
	for name, value := range map[string]string{"token_uri": c.TokenURI, "token_url": c.TokenURL, "service_account_impersonation_url": c.Impersonation} {
		if u, err := url.Parse(value); value != "" && (err != nil || !exchange.Safe(u)) {
			return fmt.Errorf("%s is not an https URL", name)
		}
	}
	if c.Source != nil {
		return c.Source.check()
	}
	return nil
}
