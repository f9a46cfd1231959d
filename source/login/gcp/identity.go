package gcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"golang.org/x/oauth2/google/externalaccount"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// The variables that say which identity the program has.
const (
	fileVariable     = "GOOGLE_APPLICATION_CREDENTIALS"
	providerVariable = "GOOGLE_WORKLOAD_IDENTITY_PROVIDER"
	accountVariable  = "GOOGLE_SERVICE_ACCOUNT"
	universeVariable = "GOOGLE_CLOUD_UNIVERSE_DOMAIN"
	metadataVariable = "GCE_METADATA_HOST"
)

// An identity is what the program can prove, and how it asks for tokens of a cloud.
type identity struct {
	env    exchange.Environment
	client *http.Client
	endpoint
}

// token gets a token by the first method whose variables and files exist.
func (i identity) token(ctx context.Context) (source.Credential, error) {
	name, issue := i.method()
	t, err := issue(ctx)
	if ctx.Err() != nil {
		return source.Credential{}, fmt.Errorf("%s: %w", name, context.Cause(ctx))
	}
	if err != nil {
		return source.Credential{}, explain(name, err)
	}
	return t, nil
}

func (i identity) method() (name string, issue func(context.Context) (source.Credential, error)) {
	if file := i.env.Value(fileVariable); file != "" {
		return fileVariable, func(ctx context.Context) (source.Credential, error) { return i.byFile(ctx, file) }
	}
	if i.env.Has(providerVariable) && i.env.Has(exchange.JobVariables...) {
		return providerVariable, i.byJob
	}
	if file := i.developer(); file != "" {
		return file, func(ctx context.Context) (source.Credential, error) { return i.byFile(ctx, file) }
	}
	return "metadata server", i.byMachine
}

// developer returns the file in which gcloud keeps what a developer logged in
// with, "" when there is none.
func (i identity) developer() string {
	variable, dir := "HOME", ".config"
	if runtime.GOOS == "windows" {
		variable, dir = "APPDATA", "."
	}
	home := i.env.Value(variable)
	file := filepath.Join(home, dir, "gcloud", "application_default_credentials.json")
	if _, err := os.Stat(file); home == "" || err != nil {
		return ""
	}
	return file
}

// explain says what to do about a failure, and tells those that will stay.
func explain(name string, err error) error {
	status, ok := errors.AsType[*exchange.StatusError](err)
	if ok && status.Final() {
		return fmt.Errorf("%w: %s: %w: check the identity and the GOOGLE_ variables that this program runs with", source.ErrProvider, name, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// wrong is an identity that cannot work until it is changed.
func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: %w", source.ErrProvider, fmt.Errorf(format, args...))
}

// ask gets a token from the source that open returns. The requests of the oauth2
// library go through the client in the context.
func (i identity) ask(ctx context.Context, open func(context.Context) (oauth2.TokenSource, error)) (source.Credential, error) {
	client, failed := exchange.Strict(i.client)
	from, err := open(context.WithValue(ctx, oauth2.HTTPClient, client))
	if err != nil {
		return source.Credential{}, wrong("%s", exchange.Said(err.Error()))
	}
	t, err := from.Token()
	if refused := failed(); err != nil && refused != nil {
		return source.Credential{}, refused // which says more, and less
	}
	if err != nil {
		return source.Credential{}, errors.New(exchange.Said(err.Error()))
	}
	return source.Credential{Token: t.AccessToken, Expires: t.Expiry}, nil
}

// What the variables of a job hold: they become parts of URLs.
var (
	providerForm = regexp.MustCompile(`^projects/[0-9]+/locations/global/workloadIdentityPools/[a-z0-9-]+/providers/[a-z0-9-]+$`)
	accountForm  = regexp.MustCompile(`^[a-zA-Z0-9._-]+@[a-zA-Z0-9.-]+$`)
)

// byJob exchanges the identity token of a job.
func (i identity) byJob(ctx context.Context) (source.Credential, error) {
	provider, account := i.env.Value(providerVariable), i.env.Value(accountVariable)
	if !providerForm.MatchString(provider) {
		return source.Credential{}, wrong("it should read projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/NAME")
	}
	if account != "" && !accountForm.MatchString(account) {
		return source.Credential{}, wrong("%s is not the e-mail address of a service account", accountVariable)
	}
	if err := i.belongs(i.env.Value(universeVariable)); err != nil {
		return source.Credential{}, err
	}
	subject, err := exchange.JobToken(ctx, i.client, i.env, "https://iam.googleapis.com/"+provider)
	if err != nil {
		return source.Credential{}, err
	}
	c := externalaccount.Config{
		Audience:             "//iam.googleapis.com/" + provider,
		SubjectTokenType:     "urn:ietf:params:oauth:token-type:jwt",
		SubjectTokenSupplier: identityToken(subject),
		Scopes:               []string{i.scope},
		UniverseDomain:       i.universe,
	}
	if account != "" {
		c.ServiceAccountImpersonationURL = "https://iamcredentials." + i.universe + "/v1/projects/-/serviceAccounts/" + account + ":generateAccessToken"
	}
	return i.ask(ctx, func(ctx context.Context) (oauth2.TokenSource, error) { return externalaccount.NewTokenSource(ctx, c) })
}

// An identityToken supplies a token that was issued already.
type identityToken string

// SubjectToken implements [externalaccount.SubjectTokenSupplier].
func (t identityToken) SubjectToken(context.Context, externalaccount.SupplierOptions) (string, error) {
	return string(t), nil
}

// belongs reports why an identity of a cloud, "" for Google's, may not be shown to the endpoint.
func (i identity) belongs(universe string) error {
	if universe == "" {
		universe = googleCloud
	}
	if universe != i.universe {
		return wrong("the identity is one of %s, and %s is of %s", exchange.Said(universe), i.endpoint, i.universe)
	}
	return nil
}

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
