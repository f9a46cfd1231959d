package azure

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// scope is what tokens are for: storage accounts of every cloud.
const scope = "https://storage.azure.com/.default"

// identify returns the tokens for at, nil when there is no identity, or what
// at has is enough.
func identify(ctx context.Context, a *bucket.Access, at container, keys transport.Azure) (*bucket.Issued, error) {
	switch {
	case keys.Application != nil || keys.Managed != "":
		if !at.private() {
			return nil, stepError("InvalidProviderConfiguration",
				errors.New("spec.secretRef: a token is shown to servers with TLS only: use https in spec.endpoint, or accountKey or sasKey in the Secret"))
		}
		if keys.Managed != "" && !at.vouched(a) {
			return nil, stepError("InvalidProviderConfiguration",
				errors.New("spec.secretRef: a managed identity is this machine's: it is shown to ACCOUNT.blob.core.windows.net, and its like in other clouds, "+
					"without spec.certSecretRef: use accountKey or sasKey in the Secret for other endpoints"))
		}
		i, err := newIssuer(a, keys)
		if err != nil {
			return nil, stepError("AuthenticationFailed", err)
		}
		return bucket.NewIssued(ctx, i.issue)
	case a.Secret.Name != "" || at.query != nil || !at.private() && a.Spec.ServiceAccountName == "":
		return nil, nil
	case !at.private():
		return nil, stepError("InvalidProviderConfiguration",
			errors.New("spec.serviceAccountName: a token is shown to servers with TLS only: use https in spec.endpoint"))
	}
	tokens, err := bucket.NewIssued(ctx, func(ctx context.Context) (source.Credential, error) { return a.LogIn(ctx, at.login()) })
	if a.Spec.ServiceAccountName == "" && (errors.Is(err, source.ErrNoIdentity) || errors.Is(err, errors.ErrUnsupported)) {
		return nil, nil // this program has no identity to show
	}
	if err != nil {
		return nil, stepError("AuthenticationFailed", err)
	}
	return tokens, nil
}

// An issuer issues tokens to what a Secret describes.
type issuer struct {
	keys   transport.Azure
	access *bucket.Access
	client *http.Client
}

// newIssuer checks the certificate of an application; the authority is not asked yet.
func newIssuer(a *bucket.Access, keys transport.Azure) (*issuer, error) {
	way := transport.Config{Proxy: a.Way.Proxy}
	if a.Way.TLS != nil { // the client certificate is for the endpoint
		way.TLS = &tls.Config{RootCAs: a.Way.TLS.RootCAs, MinVersion: a.Way.TLS.MinVersion}
	}
	far := a.Client(nil, way) // it is shown no credentials of the bucket
	client := *far
	carry := &carrier{far: far.Transport}
	if keys.Application == nil {
		carry.near = a.Client(nil, transport.Config{DialTimeout: nearTimeout}).Transport
	}
	client.Transport = carry
	i := &issuer{keys: keys, access: a, client: &client}
	_, err := i.credential()
	return i, err
}

// issue returns a new token. The SDK keeps tokens by credential, so that each time has its own.
func (i *issuer) issue(ctx context.Context) (source.Credential, error) {
	c, err := i.credential()
	if err != nil {
		return source.Credential{}, stepError("AuthenticationFailed", err)
	}
	t, err := c.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	if err != nil {
		return source.Credential{}, stepError("AuthenticationFailed", fmt.Errorf("spec.secretRef: %w", i.explain(ctx, err)))
	}
	i.access.Vault.Conceal(t.Token)
	return source.Credential{Token: t.Token, Expires: t.ExpiresOn}, nil
}

func (i *issuer) options() azcore.ClientOptions {
	o := azcore.ClientOptions{Transport: i.client, Retry: policy.RetryOptions{MaxRetries: -1}, Telemetry: policy.TelemetryOptions{Disabled: true}, Cloud: cloud.AzurePublic}
	if i.keys.Authority != nil {
		o.Cloud = cloud.Configuration{ActiveDirectoryAuthorityHost: i.keys.Authority.String()}
	}
	return o
}

// credential returns what asks for tokens. The error shows no secrets.
func (i *issuer) credential() (c azcore.TokenCredential, err error) {
	app := i.keys.Application
	switch {
	case app == nil:
		o := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: i.options(), ID: azidentity.ClientID(i.keys.Managed)}
		o.Retry = policy.RetryOptions{MaxRetries: 1, RetryDelay: time.Second} // the service of a machine asks for it
		c, err = azidentity.NewManagedIdentityCredential(o)
	case app.Secret != "":
		c, err = azidentity.NewClientSecretCredential(app.Tenant, app.Client, app.Secret,
			&azidentity.ClientSecretCredentialOptions{ClientOptions: i.options(), DisableInstanceDiscovery: i.keys.Authority != nil})
	default:
		certs, key, bad := azidentity.ParseCertificates(app.Certificate, []byte(app.Password))
		if bad != nil {
			return nil, fmt.Errorf("spec.secretRef: %w", i.keys.BadCertificate(i.access.Said(bad.Error())))
		}
		c, err = azidentity.NewClientCertificateCredential(app.Tenant, app.Client, certs, key, &azidentity.ClientCertificateCredentialOptions{
			ClientOptions: i.options(), SendCertificateChain: app.Chain, DisableInstanceDiscovery: i.keys.Authority != nil})
	}
	if err != nil {
		return nil, fmt.Errorf("spec.secretRef: %s", i.access.Said(err.Error()))
	}
	return c, nil
}

// explain makes one line of an error of the SDK, which prints whole answers.
func (i *issuer) explain(ctx context.Context, err error) error {
	const doing = "get a token"
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	failed, ok := errors.AsType[*azidentity.AuthenticationFailedError](err)
	if !ok || failed.RawResponse == nil {
		return fmt.Errorf("%s: %s", doing, i.access.Said(err.Error()))
	}
	body, err := runtime.Payload(failed.RawResponse) // which the SDK has read already
	if err != nil {
		body = nil
	}
	resp := *failed.RawResponse
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return i.access.RefusedToken(&resp, doing, "check the identity in the Secret, and authorityHost")
}

// nearTimeout is for a connection to a service of the machine, which is there or is not.
const nearTimeout = 2 * time.Second

// A carrier takes what goes over TLS to authorities, by the way of the object,
// and what goes in the clear to the machine's own service: directly. An authority
// may name another server for tokens, but none without TLS.
type carrier struct {
	far  http.RoundTripper
	near http.RoundTripper // nil for an application, which has no business with the machine
}

// RoundTrip implements [http.RoundTripper].
func (c *carrier) RoundTrip(req *http.Request) (*http.Response, error) {
	way := c.far
	if req.URL.Scheme != "https" {
		way = c.near
	}
	if way == nil {
		return nil, errors.New("the authority names a server for tokens without TLS")
	}
	resp, err := way.RoundTrip(req)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}
