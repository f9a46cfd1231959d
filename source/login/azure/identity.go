package azure

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// audience is whom the identity token of a job is for.
const audience = "api://AzureADTokenExchange"

// authorityVariable names the authority of the cloud that the program is of.
const authorityVariable = "AZURE_AUTHORITY_HOST"

// An identity is what the program can prove, and how it asks for tokens.
type identity struct {
	env       exchange.Environment
	client    *http.Client
	authority string // of the cloud that the token is for, unless the environment names one
	at        string // what that is, for messages
	retries   int32  // of a request; 0 is 1
}

// A method is a way to prove who the program is.
type method struct {
	name       string
	variables  []string // must all be set
	credential func(identity) (azcore.TokenCredential, error)
}

// with returns the variables that say which application the program proves to be, and more.
func with(more ...string) []string {
	return append([]string{"AZURE_TENANT_ID", "AZURE_CLIENT_ID"}, more...)
}

// methods in order of precedence. The last needs nothing.
var methods = []method{
	{"AZURE_CLIENT_SECRET", with("AZURE_CLIENT_SECRET"), identity.bySecret},
	{"AZURE_CLIENT_CERTIFICATE_PATH", with("AZURE_CLIENT_CERTIFICATE_PATH"), identity.byCertificate},
	{"AZURE_FEDERATED_TOKEN_FILE", with("AZURE_FEDERATED_TOKEN_FILE"), identity.byWorkload},
	{"identity token of the job", with(exchange.JobVariables...), identity.byJob},
	{"managed identity", nil, identity.byMachine},
}

// method returns the first that has what it needs.
func (i identity) method() (m method) {
	for _, m = range methods {
		if i.env.Has(m.variables...) {
			break
		}
	}
	return m
}

// belongs reports why m must not be used for a token of the cloud of i: it shows
// an authority what would be good at another.
func (i identity) belongs(m method) error {
	if m.variables == nil || i.env.Has(authorityVariable) || i.authority == cloud.AzurePublic.ActiveDirectoryAuthorityHost {
		return nil
	}
	return fmt.Errorf("%w: %s: %s is of another cloud than the public one: set %s to %s if the identity of this program is of that cloud",
		source.ErrProvider, m.name, i.at, authorityVariable, i.authority)
}

func (i identity) tenant() string { return i.env.Value("AZURE_TENANT_ID") }
func (i identity) id() string     { return i.env.Value("AZURE_CLIENT_ID") }

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
	return azidentity.NewClientSecretCredential(i.tenant(), i.id(), i.env.Value("AZURE_CLIENT_SECRET"),
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
	return azidentity.NewClientCertificateCredential(i.tenant(), i.id(), certs, key,
		&azidentity.ClientCertificateCredentialOptions{ClientOptions: i.options()})
}

func (i identity) byWorkload() (azcore.TokenCredential, error) {
	return i.asserted(func(context.Context) (string, error) {
		token, err := exchange.File(i.env.Value("AZURE_FEDERATED_TOKEN_FILE"))
		return string(token), err
	})
}

func (i identity) byJob() (azcore.TokenCredential, error) {
	return i.asserted(func(ctx context.Context) (string, error) { return exchange.JobToken(ctx, i.client, i.env, audience) })
}

// asserted is a credential for an application that trusts who issued the token.
func (i identity) asserted(token func(context.Context) (string, error)) (azcore.TokenCredential, error) {
	return azidentity.NewClientAssertionCredential(i.tenant(), i.id(), token,
		&azidentity.ClientAssertionCredentialOptions{ClientOptions: i.options()})
}
