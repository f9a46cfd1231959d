// Package azure logs in to Azure DevOps (reference A9), to registries of Azure
// Container Registry (reference A11), and to accounts of Azure Blob Storage
// (reference A10).
//
// The identity is that of the program. The first of these decides whose
// variables are all set:
//
//	AZURE_TENANT_ID, AZURE_CLIENT_ID and                 an application with
//	  AZURE_CLIENT_SECRET                                  a secret
//	  AZURE_CLIENT_CERTIFICATE_PATH                        a certificate and its key (and AZURE_CLIENT_CERTIFICATE_PASSWORD)
//	  AZURE_FEDERATED_TOKEN_FILE                           a workload identity of Kubernetes
//	  ACTIONS_ID_TOKEN_REQUEST_URL, ..._TOKEN              a job of GitHub or Forgejo Actions, audience api://AzureADTokenExchange
//	none                                                 the managed identity of the machine, AZURE_CLIENT_ID says which
//
// AZURE_AUTHORITY_HOST is the authority of the cloud that an application is of,
// without it the public one. No program is run, and what developers logged in
// with on their machine is not used.
//
//   - The URL must be https://dev.azure.com/..., https://NAME.visualstudio.com/...
//     or oci://NAME.azurecr.io/..., with .cn, .de or .us in place of .io in other
//     clouds, or azblob://ACCOUNT.blob.core.windows.net/..., with chinacloudapi.cn,
//     cloudapi.de or usgovcloudapi.net in other clouds. No other host is shown a
//     token: for azblob the error satisfies [source.ErrNoIdentity] as well.
//   - For a registry or an account of another cloud than the public one, AZURE_AUTHORITY_HOST
//     must be set: what an application proves itself with is not shown to a
//     cloud because an object names a registry there.
//   - A registry is shown a token that is good for registries alone, and makes
//     of it the password of the user 00000000-0000-0000-0000-000000000000.
//   - An account is shown a token that is good for all accounts that the identity may use.
//   - Without any of the variables, on a machine that knows no managed identity,
//     the error satisfies [source.ErrNoIdentity].
//   - A token is used for 80 % of its life, an hour at most. One of a managed
//     identity that was refused may be issued again until it expires: the SDK
//     keeps those for the whole process.
package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// A Provider logs in with the identity of the program, and keeps its tokens.
type Provider struct {
	env       exchange.Environment
	tokens    exchange.Credentials
	passwords exchange.Credentials
}

// New returns a provider that tells the time by now, and looks variables of the
// environment up with lookup; nil means [time.Now] and [os.LookupEnv]. For
// managed identities, the SDK reads the environment of the process itself.
func New(now func() time.Time, lookup func(string) (string, bool)) *Provider {
	return &Provider{env: exchange.NewEnvironment(lookup),
		tokens: exchange.Credentials{Now: now}, passwords: exchange.Credentials{Now: now}}
}

// Login is a [source.LoginFunc].
func (p *Provider) Login(ctx context.Context, r source.LoginRequest) (source.Credential, error) {
	at, client, err := exchange.Begin(r, endpointOf)
	if err != nil {
		return source.Credential{}, err
	}
	defer client.CloseIdleConnections()
	if at.registry != "" {
		return p.registryCredential(ctx, client, at)
	}
	return p.identify(ctx, client, at)
}

// identify returns a token of the program for an endpoint.
func (p *Provider) identify(ctx context.Context, client *http.Client, at endpoint) (source.Credential, error) {
	return p.tokens.Get(ctx, at.authority+" "+at.scope, func(ctx context.Context) (source.Credential, error) {
		t, err := identity{env: p.env, client: client, authority: at.authority, at: at.String()}.token(ctx, at.scope)
		return source.Credential{Token: t.Token, Expires: t.ExpiresOn}, err
	})
}

func (i identity) token(ctx context.Context, scope string) (azcore.AccessToken, error) {
	method := i.method()
	if err := i.belongs(method); err != nil {
		return azcore.AccessToken{}, err
	}
	c, err := method.credential(i)
	if err != nil {
		return azcore.AccessToken{}, fmt.Errorf("%w: %s: %s", source.ErrProvider, method.name, exchange.Said(err.Error(), i.secrets()...))
	}
	t, err := c.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	if err != nil {
		err = i.explain(ctx, method.name, err)
		if m, ok := c.(*machine); ok && ctx.Err() == nil && m.probe != nil && m.probe.none {
			err = exchange.NoIdentity(err)
		}
	}
	return t, err
}

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
		return source.Credential{Username: user, Password: password, Expires: token.Expires, Refused: token.Refused}, err // the password lives longer
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
