package azure

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// scope is the scope of tokens: storage accounts of every cloud.
const scope = "https://storage.azure.com/.default"

// identify returns the tokens for at. It returns nil if there is no identity, or if
// other credentials are used: a key, or the shared access signature of at.
func identify(ctx context.Context, a *bucket.Access, at container, keys transport.Azure) (*bucket.CredentialCache, error) {
	switch {
	case keys.Application != nil || keys.Managed != "":
		if !at.private() {
			return nil, bucket.Failed("InvalidProviderConfiguration",
				errors.New("spec.secretRef: a token is shown to servers with TLS only: use https in spec.endpoint, or accountKey or sasKey in the Secret"))
		}
		if keys.Managed != "" && !at.mayReceiveToken(a) {
			return nil, bucket.Failed("InvalidProviderConfiguration",
				errors.New("spec.secretRef: a managed identity is this machine's: it is shown to ACCOUNT.blob.core.windows.net, and its like in other clouds, "+
					"without spec.certSecretRef: use accountKey or sasKey in the Secret for other endpoints"))
		}
		i, err := newIssuer(a, keys)
		if err != nil {
			return nil, bucket.Failed("AuthenticationFailed", err)
		}
		return bucket.NewCredentialCache(ctx, i.issue)
	case a.Secret.Name != "" || at.query != nil || !at.private() && a.Spec.ServiceAccountName == "":
		return nil, nil
	case !at.private():
		return nil, bucket.Failed("InvalidProviderConfiguration",
			errors.New("spec.serviceAccountName: a token is shown to servers with TLS only: use https in spec.endpoint"))
	}
	return a.Identity(ctx, &url.URL{Scheme: "azblob", Host: at.server.Host, Path: "/" + at.name})
}

// An issuer issues tokens to the application or managed identity of a Secret.
type issuer struct {
	keys   transport.Azure
	access *bucket.Access
	client *http.Client // for the authority, or for the machine's token service
}

// newIssuer checks the certificate of an application; it makes no request.
func newIssuer(a *bucket.Access, keys transport.Azure) (*issuer, error) {
	config := transport.Config{Proxy: a.Transport.Proxy}
	if a.Transport.TLS != nil { // the client certificate is for the endpoint
		config.TLS = &tls.Config{RootCAs: a.Transport.TLS.RootCAs, MinVersion: a.Transport.TLS.MinVersion}
	}
	if keys.Application == nil {
		config = transport.Config{DialTimeout: localTimeout}
	}
	i := &issuer{keys: keys, access: a, client: a.Client(nil, config)} // this client sends no credentials of the bucket
	if keys.Application != nil {
		i.client.Transport = tlsOnly{i.client.Transport}
	}
	_, err := i.credential(i.client)
	return i, err
}

// localTimeout is the timeout for connecting to the machine's token service, which is local.
const localTimeout = 2 * time.Second

// A tlsOnly round tripper refuses requests without TLS, because an authority may name
// another server for tokens.
type tlsOnly struct{ http.RoundTripper }

func (p tlsOnly) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" {
		return nil, errors.New("the authority names a server for tokens without TLS")
	}
	return p.RoundTripper.RoundTrip(req)
}

// issue returns a new token. It makes a new credential for each call, because the SDK
// caches tokens in the credential.
func (i *issuer) issue(ctx context.Context) (source.Credential, error) {
	s := i.access.TokenService(ctx, i.client, "check the identity in the Secret, and authorityHost")
	c, err := i.credential(s.Client())
	if err != nil {
		return source.Credential{}, bucket.Failed("AuthenticationFailed", err)
	}
	t, err := c.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	if err != nil {
		return source.Credential{}, s.Failed("spec.secretRef: get a token", err)
	}
	i.access.SecretReader.Conceal(t.Token)
	return source.Credential{Token: t.Token, Expires: t.ExpiresOn}, nil
}

// credential returns the SDK's credential, which requests tokens through client. The error
// contains no secrets.
func (i *issuer) credential(client *http.Client) (c azcore.TokenCredential, err error) {
	o := azcore.ClientOptions{Transport: client, Retry: policy.RetryOptions{MaxRetries: -1}, Telemetry: policy.TelemetryOptions{Disabled: true}, Cloud: cloud.AzurePublic}
	if i.keys.Authority != nil {
		o.Cloud = cloud.Configuration{ActiveDirectoryAuthorityHost: i.keys.Authority.String()}
	}
	customAuthority := i.keys.Authority != nil
	switch app := i.keys.Application; {
	case app == nil:
		o.Retry = policy.RetryOptions{MaxRetries: 1, RetryDelay: time.Second} // the token service of a machine requires retries
		c, err = azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{ClientOptions: o, ID: azidentity.ClientID(i.keys.Managed)})
	case app.Secret != "":
		c, err = azidentity.NewClientSecretCredential(app.Tenant, app.Client, app.Secret, &azidentity.ClientSecretCredentialOptions{ClientOptions: o, DisableInstanceDiscovery: customAuthority})
	default:
		certs, key, parseErr := azidentity.ParseCertificates(app.Certificate, []byte(app.Password))
		if parseErr != nil {
			return nil, fmt.Errorf("spec.secretRef: %w", i.keys.BadCertificate(i.access.CleanText(parseErr.Error())))
		}
		c, err = azidentity.NewClientCertificateCredential(app.Tenant, app.Client, certs, key,
			&azidentity.ClientCertificateCredentialOptions{ClientOptions: o, SendCertificateChain: app.Chain, DisableInstanceDiscovery: customAuthority})
	}
	if err != nil {
		return nil, fmt.Errorf("spec.secretRef: %s", i.access.CleanText(err.Error()))
	}
	return c, nil
}
