package azure

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
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

// identify returns the bearer of tokens for at, nil when there is nobody to be
// or what at has is enough.
func identify(ctx context.Context, a *bucket.Access, at place, keys transport.Azure) (*bucket.Bearer, error) {
	switch {
	case keys.Application != nil || keys.Managed != "":
		if !at.private() {
			return nil, refused("InvalidProviderConfiguration",
				errors.New("spec.secretRef: a token is shown to servers with TLS only: use https in spec.endpoint, or accountKey or sasKey in the Secret"))
		}
		if keys.Managed != "" && !at.vouched(a) {
			return nil, refused("InvalidProviderConfiguration",
				errors.New("spec.secretRef: a managed identity is this machine's: it is shown to ACCOUNT.blob.core.windows.net, and its like in other clouds, "+
					"without spec.certSecretRef: use accountKey or sasKey in the Secret for other endpoints"))
		}
		i, err := newIssuer(a, keys)
		if err != nil {
			return nil, refused("AuthenticationFailed", err)
		}
		return bucket.NewBearer(ctx, i.issue)
	case a.Secret.Name != "" || at.query != nil || !at.private() && a.Spec.ServiceAccountName == "":
		return nil, nil
	case !at.private():
		return nil, refused("InvalidProviderConfiguration",
			errors.New("spec.serviceAccountName: a token is shown to servers with TLS only: use https in spec.endpoint"))
	}
	who, err := bucket.NewBearer(ctx, func(ctx context.Context) (source.Credential, error) { return a.LogIn(ctx, at.login()) })
	if nobody(err) && a.Spec.ServiceAccountName == "" {
		return nil, nil // nobody to be there
	}
	if err != nil {
		return nil, refused("AuthenticationFailed", err)
	}
	return who, nil
}

// nobody reports whether a login failed because this program has no identity to show.
func nobody(err error) bool {
	return errors.Is(err, source.ErrNoIdentity) || errors.Is(err, errors.ErrUnsupported)
}

// An issuer issues tokens to what a Secret describes.
type issuer struct {
	keys   transport.Azure
	access *bucket.Access
	client *http.Client
}

// newIssuer checks the certificate of an application; the authority is not asked yet.
func newIssuer(a *bucket.Access, keys transport.Azure) (*issuer, error) {
	way := bucket.Config{Proxy: a.Way.Proxy}
	if a.Way.TLS != nil { // the client certificate is for the endpoint
		way.TLS = &tls.Config{RootCAs: a.Way.TLS.RootCAs, MinVersion: a.Way.TLS.MinVersion}
	}
	far := a.Client(nil, way) // it is shown no credentials of the bucket
	client := *far
	carry := &carrier{far: far.Transport}
	if keys.Application == nil {
		carry.near = a.Client(nil, bucket.Config{DialTimeout: nearTimeout}).Transport
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
		return source.Credential{}, refused("AuthenticationFailed", err)
	}
	t, err := c.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	if err != nil {
		return source.Credential{}, refused("AuthenticationFailed", fmt.Errorf("spec.secretRef: %w", i.explain(ctx, err)))
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

func (i *issuer) credential() (azcore.TokenCredential, error) {
	app := i.keys.Application
	switch {
	case app == nil:
		o := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: i.options(), ID: azidentity.ClientID(i.keys.Managed)}
		o.Retry = policy.RetryOptions{MaxRetries: 1, RetryDelay: time.Second} // the service of a machine asks for it
		return result(azidentity.NewManagedIdentityCredential(o))(i)
	case app.Secret != "":
		return result(azidentity.NewClientSecretCredential(app.Tenant, app.Client, app.Secret,
			&azidentity.ClientSecretCredentialOptions{ClientOptions: i.options(), DisableInstanceDiscovery: i.keys.Authority != nil}))(i)
	}
	certs, key, err := azidentity.ParseCertificates(app.Certificate, []byte(app.Password))
	if err != nil {
		return nil, fmt.Errorf("spec.secretRef: %w", i.keys.BadCertificate(said(err.Error(), i.access)))
	}
	return result(azidentity.NewClientCertificateCredential(app.Tenant, app.Client, certs, key, &azidentity.ClientCertificateCredentialOptions{
		ClientOptions: i.options(), SendCertificateChain: app.Chain, DisableInstanceDiscovery: i.keys.Authority != nil}))(i)
}

// result makes an interface of what a constructor returns, and one line of its error.
func result[C azcore.TokenCredential](c C, err error) func(*issuer) (azcore.TokenCredential, error) {
	return func(i *issuer) (azcore.TokenCredential, error) {
		if err != nil {
			return nil, fmt.Errorf("spec.secretRef: %s", said(err.Error(), i.access))
		}
		return c, nil
	}
}

// explain makes one line of an error of the SDK, which prints whole answers.
func (i *issuer) explain(ctx context.Context, err error) error {
	const doing = "get a token"
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	failed, ok := errors.AsType[*azidentity.AuthenticationFailedError](err)
	if !ok || failed.RawResponse == nil {
		return fmt.Errorf("%s: %s", doing, said(err.Error(), i.access))
	}
	e := &bucket.StatusError{Doing: doing, Status: failed.RawResponse.StatusCode, Hint: "check the identity in the Secret, and authorityHost"}
	e.After, _ = transport.RetryAfter(failed.RawResponse.Header, time.Now())
	var answer struct {
		Code        string `json:"error"`
		Description string `json:"error_description"`
	}
	if body, err := runtime.Payload(failed.RawResponse); err == nil && json.Unmarshal(body, &answer) == nil { // which the SDK has read already
		e.Code, e.Message = i.access.Code(answer.Code), said(answer.Description, i.access)
	}
	return e
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
		resp.Body = bucket.Bounded(resp.Body, maxAnswer)
	}
	return resp, err
}
