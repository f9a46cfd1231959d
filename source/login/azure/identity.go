package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
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

// secrets are the values of the environment that must not show.
func (i identity) secrets() (values []string) {
	for _, name := range []string{"AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PASSWORD", "IDENTITY_HEADER", "MSI_SECRET"} {
		values = append(values, i.env.Value(name))
	}
	return values
}

// explain makes one line of an error of the SDK, which prints whole answers.
func (i identity) explain(ctx context.Context, how string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", how, context.Cause(ctx))
	}
	const hint = "check the identity and the AZURE_ variables that this program runs with"
	failed, ok := errors.AsType[*azidentity.AuthenticationFailedError](err)
	if !ok || failed.RawResponse == nil {
		return fmt.Errorf("%s: %s: %s", how, exchange.Said(err.Error(), i.secrets()...), hint)
	}
	status := failed.RawResponse.StatusCode
	text := fmt.Sprintf("%s: status %d%s: %s", how, status, i.said(failed.RawResponse), hint)
	if exchange.Final(status) {
		return fmt.Errorf("%w: %s", source.ErrProvider, text)
	}
	return errors.New(text)
}

// said returns what an answer says about a failure (RFC 6749 section 5.2).
func (i identity) said(resp *http.Response) (text string) {
	var answer struct {
		Code        string `json:"error"`
		Description string `json:"error_description"`
	}
	body, err := runtime.Payload(resp) // which the SDK has read already
	if err != nil || json.Unmarshal(body, &answer) != nil {
		return ""
	}
	for _, part := range []string{answer.Code, answer.Description} {
		if part != "" {
			text += ": " + exchange.Said(part, i.secrets()...)
		}
	}
	return text
}

// A machine is the managed identity of the machine. The SDK does not tell
// whether there is any, but in texts.
type machine struct {
	azcore.TokenCredential
	probe *metadataProbe // nil when one of several was asked for
}

func (i identity) byMachine() (azcore.TokenCredential, error) {
	m, o := &machine{}, &azidentity.ManagedIdentityCredentialOptions{}
	if i.id() != "" {
		o.ID = azidentity.ClientID(i.id())
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

// metadata is the address of the metadata server on the machines of every cloud.
// Azure's other services for identities have other addresses, and exist only where
// an identity exists.
const metadata = "169.254.169.254"

// A metadataProbe notes whether there is a metadata server of Azure. It is for one request at a time.
type metadataProbe struct {
	next http.RoundTripper
	none bool
}

// noIdentity are the answers of other clouds, and of Azure to a machine without an identity.
var noIdentity = map[int]bool{http.StatusBadRequest: true, http.StatusUnauthorized: true, http.StatusForbidden: true,
	http.StatusNotFound: true, http.StatusMethodNotAllowed: true}

// RoundTrip implements [http.RoundTripper].
func (l *metadataProbe) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if req.URL.Host != metadata {
		return resp, err
	}
	op, ok := errors.AsType[*net.OpError](err)
	if l.none = ok && op.Op == "dial" || err == nil && noIdentity[resp.StatusCode]; l.none && err != nil {
		return nil, final{err}
	}
	return resp, err
}

// A final error is not retried by the SDK.
type final struct{ error }

// NonRetriable is what the SDK looks for.
func (final) NonRetriable() {}

// Unwrap returns the cause.
func (f final) Unwrap() error { return f.error }
