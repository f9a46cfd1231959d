package gcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
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
	Web           any                    `json:"web"`
	Installed     any                    `json:"installed"`
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
func (i identity) byFile(ctx context.Context, name string) (source.Credential, error) {
	data, err := exchange.File(name)
	if err != nil {
		return source.Credential{}, wrong("%w", err)
	}
	var c credentials
	if err := json.Unmarshal(data, &c); err != nil {
		return source.Credential{}, wrong("%s: %s", name, exchange.Said(err.Error()))
	}
	for part := &c; part != nil; part = part.Source {
		if err := part.check(); err != nil {
			return source.Credential{}, wrong("%s: %w", name, err)
		}
	}
	for _, universe := range c.universes() {
		if err := i.belongs(universe); err != nil {
			return source.Credential{}, err
		}
	}
	if c.Type == google.ExternalAccount && c.TokenURL == "" && i.universe != googleCloud { // the library would take Google's
		return source.Credential{}, wrong("%s: token_url is missing: it says where %s exchanges tokens", name, i.universe)
	}
	return i.ask(ctx, func(ctx context.Context) (oauth2.TokenSource, error) {
		found, err := google.CredentialsFromJSONWithType(ctx, data, c.Type, i.scope)
		if err != nil {
			return nil, err
		}
		return found.TokenSource, nil
	})
}

// universes returns the clouds that c and the parts in it are of: where none
// says which, Google's.
func (c *credentials) universes() (all []string) {
	for ; c != nil; c = c.Source {
		if c.Universe != "" {
			all = append(all, c.Universe)
		}
	}
	if len(all) == 0 {
		return []string{googleCloud}
	}
	return all
}

// check reports what in c, but for the parts in it, must not be used.
func (c *credentials) check() error {
	if !slices.Contains(types, c.Type) {
		return fmt.Errorf("type %q is none of %q", exchange.Said(string(c.Type)), types)
	}
	if c.From.Executable != nil {
		return fmt.Errorf("credential_source.executable: headgate runs no programs: use a file or a url")
	}
	if c.Web != nil || c.Installed != nil { // the library would want to show somebody a page
		return fmt.Errorf("web and installed are of an OAuth client, not of an identity: use a file of type %q", types)
	}
	for _, field := range []struct{ name, url string }{
		{"token_uri", c.TokenURI}, {"token_url", c.TokenURL}, {"service_account_impersonation_url", c.Impersonation},
	} {
		if u, err := url.Parse(field.url); field.url != "" && (err != nil || !exchange.Safe(u)) {
			return fmt.Errorf("%s is not an https URL", field.name)
		}
	}
	return nil
}
