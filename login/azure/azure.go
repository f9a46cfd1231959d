// Package azure logs in to Azure DevOps (reference A9).
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
// AZURE_AUTHORITY_HOST is the authority of another cloud. No program is run, and
// what developers logged in with on their machine is not used.
//
//   - The URL must be https://dev.azure.com/... or https://NAME.visualstudio.com/...
//     No other host is shown a token.
//   - A token is used for 80 % of its life, an hour at most. One of a managed
//     identity that was refused may be issued again until it expires: the SDK
//     keeps those for the whole process.
package azure

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/headgate-io/headgate/login/internal/exchange"
	"github.com/headgate-io/headgate/login/internal/keep"
	"github.com/headgate-io/headgate/source"
)

// devOps is what a token for Azure DevOps is for: the id of its application.
const devOps = "499b84ac-1321-427f-aa17-267ca6975798/.default"

// A Provider logs in with the identity of the program, and keeps its tokens.
type Provider struct {
	env    exchange.Environment
	tokens keep.Keep[azcore.AccessToken]
}

// New returns a provider that tells the time by now, and looks variables of the
// environment up with lookup; nil means [time.Now] and [os.LookupEnv]. For
// managed identities, the SDK reads the environment of the process itself.
func New(now func() time.Time, lookup func(string) (string, bool)) *Provider {
	return &Provider{env: exchange.NewEnvironment(lookup), tokens: keep.Keep[azcore.AccessToken]{Now: now}}
}

// Login is a [source.LoginFunc].
func (p *Provider) Login(ctx context.Context, r source.LoginRequest) (source.Credential, error) {
	scope, err := scopeOf(r.URL)
	if err != nil {
		return source.Credential{}, fmt.Errorf("%w: %w: spec.url: %w", source.ErrInvalid, source.ErrProvider, err)
	}
	if err := exchange.Own(r); err != nil {
		return source.Credential{}, err
	}
	client := exchange.Client(r.Client)
	defer client.CloseIdleConnections()
	token, forget, err := p.tokens.Get(ctx, scope, func(ctx context.Context) (azcore.AccessToken, time.Time, error) {
		t, err := identity{p.env, client}.token(ctx, scope)
		return t, t.ExpiresOn, err
	})
	if err != nil {
		return source.Credential{}, err
	}
	return source.Credential{Token: token.Token, Expires: token.ExpiresOn, Refused: forget}, nil
}

func (i identity) token(ctx context.Context, scope string) (azcore.AccessToken, error) {
	method := i.method()
	c, err := method.credential(i)
	if err != nil {
		return azcore.AccessToken{}, fmt.Errorf("%w: %s: %s", source.ErrProvider, method.name, exchange.Said(err.Error(), i.secrets()...))
	}
	t, err := c.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	if err != nil {
		return t, i.explain(ctx, method.name, err)
	}
	if t.Token == "" || strings.ContainsFunc(t.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return t, fmt.Errorf("%s: the answer holds no token that can be sent", method.name)
	}
	return t, nil
}

// oldHostForm matches the older hosts of Azure DevOps, from their first to their last byte.
var oldHostForm = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.visualstudio\.com$`)

// scopeOf returns the scope of a token for the repository at u.
func scopeOf(u *url.URL) (string, error) {
	host := strings.ToLower(u.Hostname())
	if u.Scheme != "https" || u.Port() != "" && u.Port() != "443" || host != "dev.azure.com" && !oldHostForm.MatchString(host) {
		return "", errors.New("provider azure is for https://dev.azure.com/ORGANISATION/PROJECT/_git/REPOSITORY")
	}
	return devOps, nil
}
