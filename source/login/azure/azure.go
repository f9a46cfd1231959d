// Package azure logs in to Azure DevOps (reference A9), to registries of Azure
// Container Registry (reference A11), and to accounts of Azure Blob Storage
// (reference A10).
//
// The identity of a service account is the application that its annotations
// azure.workload.identity/tenant-id and azure.workload.identity/client-id name; its proof
// is a token of the account for the audience api://AzureADTokenExchange. Without a service
// account, the provider uses the identity of the program: the first of these for which all
// variables are set:
//
//	AZURE_TENANT_ID, AZURE_CLIENT_ID and                 an application with
//	  AZURE_CLIENT_SECRET                                  a secret
//	  AZURE_CLIENT_CERTIFICATE_PATH                        a certificate and its key (and AZURE_CLIENT_CERTIFICATE_PASSWORD)
//	  AZURE_FEDERATED_TOKEN_FILE                           a workload identity of Kubernetes
//	  ACTIONS_ID_TOKEN_REQUEST_URL, ..._TOKEN              a job of GitHub or Forgejo Actions, audience api://AzureADTokenExchange
//	none                                                 the managed identity of the machine, AZURE_CLIENT_ID says which
//
// AZURE_AUTHORITY_HOST is the authority of the cloud that an application belongs to, by
// default the public cloud. No program is run, and logins of developers on their machine
// are not used.
//
//   - The URL must be https://dev.azure.com/..., https://NAME.visualstudio.com/... or
//     oci://NAME.azurecr.io/..., with .cn, .de or .us in place of .io in other clouds, or
//     azblob://ACCOUNT.blob.core.windows.net/..., with chinacloudapi.cn, cloudapi.de or
//     usgovcloudapi.net in other clouds. No other host receives a token: for azblob the
//     error satisfies [source.ErrNoIdentity] as well.
//   - For a registry or an account of a cloud other than the public one,
//     AZURE_AUTHORITY_HOST must be set: a cloud does not receive an application's
//     credentials merely because an object names a registry there.
//   - A registry receives a token that is valid for registries only, and exchanges it for
//     the password of the user 00000000-0000-0000-0000-000000000000.
//   - An account receives a token that is valid for all accounts that the identity may use.
//   - Without any of the variables, on a machine without a managed identity, the error
//     satisfies [source.ErrNoIdentity].
//   - A token is used for 80 % of its lifetime, at most an hour. A refused token of a
//     managed identity may be returned again until it expires: the SDK caches these tokens
//     for the whole process.
package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// A Provider logs in with the identity of the program, and keeps its tokens. The
// zero value is ready to use. For managed identities, the SDK reads the environment
// of the process itself.
type Provider struct {
	Now    func() time.Time                 // nil for time.Now
	Lookup func(name string) (string, bool) // environment lookup, nil for os.LookupEnv

	tokens    exchange.Credentials
	passwords exchange.Credentials
}

// Login is a [source.LoginFunc].
func (p *Provider) Login(ctx context.Context, r source.LoginRequest) (source.Credential, error) {
	at, account, client, err := exchange.Begin(ctx, r, endpointOf)
	if err != nil {
		return source.Credential{}, err
	}
	defer client.CloseIdleConnections()
	if at.registry != "" {
		return p.registryCredential(ctx, client, at, account)
	}
	return p.accessToken(ctx, client, at, account)
}

// accessToken returns a token of an account, or of the program, for an endpoint.
func (p *Provider) accessToken(ctx context.Context, client *http.Client, at endpoint, account *source.Account) (source.Credential, error) {
	return p.tokens.Get(ctx, p.Now, at.authority+" "+at.scope+exchange.AccountKey(account), func(ctx context.Context) (source.Credential, error) {
		t, err := identity{env: p.Lookup, account: account, client: client, authority: at.authority, at: at.String()}.token(ctx, at.scope)
		return source.Credential{Token: t.Token, Expires: t.ExpiresOn}, err
	})
}

func (i identity) token(ctx context.Context, scope string) (azcore.AccessToken, error) {
	method := i.method()
	if err := i.checkCloud(method); err != nil {
		return azcore.AccessToken{}, err
	}
	c, err := method.credential(i)
	if err != nil {
		return azcore.AccessToken{}, fmt.Errorf("%w: %s: %s", source.ErrProvider, method.name, exchange.CleanText(err.Error(), i.secrets()...))
	}
	t, err := c.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	if err != nil {
		err = i.explain(ctx, method.name, err)
		if m, ok := c.(*managedIdentity); ok && ctx.Err() == nil && m.probe != nil && m.probe.noAnswer {
			err = exchange.NoIdentity(err)
		}
	}
	return t, err
}

// user is the user name that goes with a registry's refresh token.
const user = "00000000-0000-0000-0000-000000000000"

// registryCredential exchanges a token of an account, or of the program, for a password of
// the registry at an endpoint. If the registry refuses the token, it is not used again.
func (p *Provider) registryCredential(ctx context.Context, client *http.Client, at endpoint, account *source.Account) (source.Credential, error) {
	return p.passwords.Get(ctx, p.Now, at.registry+exchange.AccountKey(account), func(ctx context.Context) (source.Credential, error) {
		token, err := p.accessToken(ctx, client, at, account)
		if err != nil {
			return source.Credential{}, err
		}
		password, err := exchangeToken(ctx, client, at.registry, token.Token)
		if refused, ok := errors.AsType[*exchange.StatusError](err); ok && refused.Final() {
			token.Refused()
			err = fmt.Errorf("%w: %w: check that the identity may use this registry", source.ErrProvider, err)
		}
		return source.Credential{Username: user, Password: password, Expires: token.Expires, Refused: token.Refused}, err // the password expires later
	})
}

// exchangeToken exchanges token for a refresh token of the registry at host, as in its
// documentation (AAD-OAuth, "Calling POST /oauth2/exchange to get an ACR refresh token").
// It follows no redirect.
func exchangeToken(ctx context.Context, client *http.Client, host, token string) (string, error) {
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

// audience is the audience of identity tokens.
const audience = "api://AzureADTokenExchange"

// authorityVariable names the authority of the cloud that the program belongs to.
const authorityVariable = "AZURE_AUTHORITY_HOST"

// An identity is that of an account or of the program, with the means to request tokens for
// it.
type identity struct {
	env       exchange.Environment
	account   *source.Account // nil for the program
	client    *http.Client
	authority string // of the cloud that the token is for, unless the environment names one
	at        string // endpoint of the token, for messages
	retries   int32  // retries of a request; 0 means 1
}

// A method is a way to prove the identity of the program.
type method struct {
	name       string
	variables  []string // must all be set
	credential func(identity) (azcore.TokenCredential, error)
}

// applicationVariables returns the variables that name the application of the program, and more.
func applicationVariables(more ...string) []string {
	return append([]string{"AZURE_TENANT_ID", "AZURE_CLIENT_ID"}, more...)
}

// methods lists the methods in order of precedence. The last one needs no variables.
var methods = []method{
	{"AZURE_CLIENT_SECRET", applicationVariables("AZURE_CLIENT_SECRET"), identity.bySecret},
	{"AZURE_CLIENT_CERTIFICATE_PATH", applicationVariables("AZURE_CLIENT_CERTIFICATE_PATH"), identity.byCertificate},
	{"AZURE_FEDERATED_TOKEN_FILE", applicationVariables("AZURE_FEDERATED_TOKEN_FILE"), identity.byWorkload},
	{"identity token of the job", applicationVariables(exchange.JobVariables...), identity.byJob},
	{"managed identity", nil, identity.byManagedIdentity},
}

// The annotations that name the application of a service account.
const (
	tenantAnnotation = "azure.workload.identity/tenant-id"
	clientAnnotation = "azure.workload.identity/client-id"
)

// idForm matches the ids of tenants, which become part of a URL, and of applications.
var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*$`)

// method returns the method of the account or, for the program, the first one whose
// variables are set.
func (i identity) method() (m method) {
	if i.account != nil {
		return method{"service account " + i.account.Namespace + "/" + i.account.Name, applicationVariables(), identity.byAccount}
	}
	for _, m = range methods {
		if i.env.Has(m.variables...) {
			break
		}
	}
	return m
}

// checkCloud returns an error if m must not be used for a token of the cloud of i, because an
// authority would receive credentials that are valid at another.
func (i identity) checkCloud(m method) error {
	for _, annotation := range [][2]string{{tenantAnnotation, "the id of a tenant"}, {clientAnnotation, "the id of an application"}} {
		if i.account == nil {
			break
		}
		if _, err := exchange.Annotation(i.account, annotation[0], true, idForm, annotation[1]); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if m.variables == nil || i.env.Has(authorityVariable) || i.authority == cloud.AzurePublic.ActiveDirectoryAuthorityHost {
		return nil
	}
	return fmt.Errorf("%w: %s: %s is of another cloud than the public one: set %s to %s if the identity of this program is of that cloud",
		source.ErrProvider, m.name, i.at, authorityVariable, i.authority)
}

func (i identity) tenant() string   { return i.value("AZURE_TENANT_ID", tenantAnnotation) }
func (i identity) clientID() string { return i.value("AZURE_CLIENT_ID", clientAnnotation) }

// value returns the value of a variable for the program, or of an annotation for an
// account.
func (i identity) value(variable, annotation string) string {
	if i.account != nil {
		return i.account.Annotations[annotation]
	}
	return i.env.Value(variable)
}

func (i identity) options() azcore.ClientOptions {
	authority := i.env.Value(authorityVariable)
	if authority == "" {
		authority = i.authority
	}
	return azcore.ClientOptions{
		Cloud:     cloud.Configuration{ActiveDirectoryAuthorityHost: authority},
		Retry:     policy.RetryOptions{MaxRetries: cmp.Or(i.retries, 1), RetryDelay: time.Second},
		Transport: i.client,
	}
}

func (i identity) bySecret() (azcore.TokenCredential, error) {
	return azidentity.NewClientSecretCredential(i.tenant(), i.clientID(), i.env.Value("AZURE_CLIENT_SECRET"),
		&azidentity.ClientSecretCredentialOptions{ClientOptions: i.options()})
}

func (i identity) byCertificate() (azcore.TokenCredential, error) {
	data, err := exchange.File(i.env.Value("AZURE_CLIENT_CERTIFICATE_PATH"))
	if err != nil {
		return nil, err
	}
	certs, key, err := azidentity.ParseCertificates(data, []byte(i.env.Value("AZURE_CLIENT_CERTIFICATE_PASSWORD")))
	if err != nil {
		return nil, err
	}
	return azidentity.NewClientCertificateCredential(i.tenant(), i.clientID(), certs, key,
		&azidentity.ClientCertificateCredentialOptions{ClientOptions: i.options()})
}

func (i identity) byWorkload() (azcore.TokenCredential, error) {
	return i.byAssertion(func(context.Context) (string, error) {
		token, err := exchange.File(i.env.Value("AZURE_FEDERATED_TOKEN_FILE"))
		return string(token), err
	})
}

func (i identity) byJob() (azcore.TokenCredential, error) {
	return i.byAssertion(func(ctx context.Context) (string, error) { return exchange.JobToken(ctx, i.client, i.env, audience) })
}

func (i identity) byAccount() (azcore.TokenCredential, error) {
	return i.byAssertion(func(ctx context.Context) (string, error) { return i.account.Token(ctx, audience) })
}

// byAssertion returns a credential for an application that trusts the issuer of the token.
func (i identity) byAssertion(token func(context.Context) (string, error)) (azcore.TokenCredential, error) {
	return azidentity.NewClientAssertionCredential(i.tenant(), i.clientID(), token,
		&azidentity.ClientAssertionCredentialOptions{ClientOptions: i.options()})
}

// secrets returns the values of the environment that must not appear in messages.
func (i identity) secrets() (values []string) {
	for _, name := range []string{"AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PASSWORD", "IDENTITY_HEADER", "MSI_SECRET"} {
		values = append(values, i.env.Value(name))
	}
	return values
}

// explain turns an error of the SDK, which contains whole responses, into one line.
func (i identity) explain(ctx context.Context, how string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", how, context.Cause(ctx))
	}
	hint := exchange.Advice(i.account, "AZURE")
	failed, ok := errors.AsType[*azidentity.AuthenticationFailedError](err)
	if !ok || failed.RawResponse == nil {
		return fmt.Errorf("%s: %s: %s", how, exchange.CleanText(err.Error(), i.secrets()...), hint)
	}
	status := failed.RawResponse.StatusCode
	text := fmt.Sprintf("%s: status %d%s: %s", how, status, i.errorDescription(failed.RawResponse), hint)
	if exchange.Final(status) {
		return fmt.Errorf("%w: %s", source.ErrProvider, text)
	}
	return errors.New(text)
}

// errorDescription returns the explanation of a failure in a response (RFC 6749 section 5.2).
func (i identity) errorDescription(resp *http.Response) (text string) {
	var answer struct {
		Code        string `json:"error"`
		Description string `json:"error_description"`
	}
	body, err := runtime.Payload(resp) // the SDK has read it already
	if err != nil || json.Unmarshal(body, &answer) != nil {
		return ""
	}
	for _, part := range []string{answer.Code, answer.Description} {
		if part != "" {
			text += ": " + exchange.CleanText(part, i.secrets()...)
		}
	}
	return text
}

// A managedIdentity is the managed identity of the machine. The SDK reports a missing identity only
// in the text of its errors.
type managedIdentity struct {
	azcore.TokenCredential
	probe *metadataProbe // nil if AZURE_CLIENT_ID selects one of several identities
}

func (i identity) byManagedIdentity() (azcore.TokenCredential, error) {
	m, o := &managedIdentity{}, &azidentity.ManagedIdentityCredentialOptions{}
	if i.clientID() != "" {
		o.ID = azidentity.ClientID(i.clientID())
	} else {
		client := *i.client
		m.probe = &metadataProbe{next: client.Transport}
		client.Transport, i.client = m.probe, &client
	}
	o.ClientOptions = i.options()
	c, err := azidentity.NewManagedIdentityCredential(o)
	m.TokenCredential = c
	return m, err
}

// metadataHost is the address of the metadata server on the machines of every cloud. Azure's
// other services for identities have other addresses, and exist only if an identity exists.
const metadataHost = "169.254.169.254"

// A metadataProbe records that no metadata server of Azure answered. It is for one request
// at a time.
type metadataProbe struct {
	next     http.RoundTripper
	noAnswer bool
}

// noIdentityStatuses holds the statuses of responses from other clouds, and from Azure if a machine
// has no identity.
var noIdentityStatuses = map[int]bool{http.StatusBadRequest: true, http.StatusUnauthorized: true, http.StatusForbidden: true,
	http.StatusNotFound: true, http.StatusMethodNotAllowed: true}

// RoundTrip implements [http.RoundTripper].
func (l *metadataProbe) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if req.URL.Host != metadataHost {
		return resp, err
	}
	op, ok := errors.AsType[*net.OpError](err)
	if l.noAnswer = ok && op.Op == "dial" || err == nil && noIdentityStatuses[resp.StatusCode]; l.noAnswer && err != nil {
		return nil, finalError{err}
	}
	return resp, err
}

// A finalError error is not retried by the SDK.
type finalError struct{ error }

// NonRetriable marks the error for the SDK.
func (finalError) NonRetriable() {}

// Unwrap returns the cause.
func (f finalError) Unwrap() error { return f.error }

// The scopes of tokens.
const (
	devOps     = "499b84ac-1321-427f-aa17-267ca6975798/.default" // the id of its application
	registries = "https://containerregistry.azure.net/.default"  // of every cloud
	accounts   = "https://storage.azure.com/.default"            // of every cloud
)

// An endpoint is a registry, a storage account or Azure DevOps.
type endpoint struct {
	scope     string // of the token
	authority string // that issues it
	registry  string // host that exchanges it for a password; "" if the endpoint is not a registry
}

func (e endpoint) String() string {
	switch e.scope {
	case registries:
		return "the registry"
	case accounts:
		return "the storage account"
	}
	return "the repository"
}

// authorities holds the authorities of registries and accounts, by the end of their host.
var authorities = map[string]string{
	"io": cloud.AzurePublic.ActiveDirectoryAuthorityHost,
	"cn": cloud.AzureChina.ActiveDirectoryAuthorityHost,
	"de": "https://login.microsoftonline.de/",
	"us": cloud.AzureGovernment.ActiveDirectoryAuthorityHost,

	"windows.net":       cloud.AzurePublic.ActiveDirectoryAuthorityHost,
	"storage.azure.net": cloud.AzurePublic.ActiveDirectoryAuthorityHost,
	"chinacloudapi.cn":  cloud.AzureChina.ActiveDirectoryAuthorityHost,
	"cloudapi.de":       "https://login.microsoftonline.de/",
	"usgovcloudapi.net": cloud.AzureGovernment.ActiveDirectoryAuthorityHost,
}

// Patterns of hosts, anchored at both ends.
var (
	oldDevOps    = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.visualstudio\.com$`)
	registryForm = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.azurecr\.(io|cn|de|us)$`)
	accountForm  = regexp.MustCompile(`^[a-z0-9]{3,24}(?:-secondary)?\.(?:blob\.core\.(windows\.net|chinacloudapi\.cn|cloudapi\.de|usgovcloudapi\.net)|z[0-9]{1,2}\.blob\.(storage\.azure\.net))$`)
)

var (
	errNoEndpoint = errors.New("provider azure is for https://dev.azure.com/ORGANISATION/PROJECT/_git/REPOSITORY and oci://NAME.azurecr.io/REPOSITORY")
	errNoStore    = errors.New("the identity of this program is shown to ACCOUNT.blob.core.windows.net, and its like in other clouds, only: for other endpoints set spec.secretRef")
)

// endpointOf returns the endpoint at u.
func endpointOf(u *url.URL) (endpoint, error) {
	host := exchange.Host(u)
	if m := registryForm.FindStringSubmatch(host); m != nil && u.Scheme == "oci" {
		return endpoint{registries, authorities[m[1]], host}, nil
	}
	if m := accountForm.FindStringSubmatch(host); m != nil && u.Scheme == "azblob" {
		return endpoint{accounts, authorities[m[1]+m[2]], ""}, nil
	}
	if u.Scheme == "azblob" {
		return endpoint{}, exchange.NoIdentity(errNoStore)
	}
	if u.Scheme == "https" && (host == "dev.azure.com" || oldDevOps.MatchString(host)) {
		return endpoint{devOps, cloud.AzurePublic.ActiveDirectoryAuthorityHost, ""}, nil
	}
	return endpoint{}, errNoEndpoint
}
