package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

const (
	maxIssued = 1 << 20 // bytes of an answer of a token service
	logIn     = "log in to the token service"
)

// An exchange is one of the ways to get keys from a token service.
type exchange func(endpoint string, s bucket.Secret) (func(*credentials.CredContext) (credentials.Value, error), error)

var exchanges = map[string]exchange{
	source.STSLDAP: func(endpoint string, s bucket.Secret) (func(*credentials.CredContext) (credentials.Value, error), error) {
		username, password, err := transport.LDAP(s.Name, s.Secret)
		p := &credentials.LDAPIdentity{STSEndpoint: endpoint, LDAPUsername: username, LDAPPassword: password}
		return p.RetrieveWithCredContext, err
	},
	source.STSWebIdentity: func(endpoint string, s bucket.Secret) (func(*credentials.CredContext) (credentials.Value, error), error) {
		token, role, err := transport.WebIdentity(s.Name, s.Secret)
		p := &credentials.STSWebIdentity{STSEndpoint: endpoint, RoleARN: role, GetWebIDTokenExpiry: func() (*credentials.WebIdentityToken, error) {
			return &credentials.WebIdentityToken{Token: token}, nil
		}}
		return p.RetrieveWithCredContext, err
	},
}

// exchangeAt has keys issued by the token service of spec.sts. Errors are *[source.StepError].
func exchangeAt(a *bucket.Access) (issuer, error) {
	sts := a.Spec.STS
	way := exchanges[sts.Provider]
	if way == nil {
		return nil, invalidSTS(fmt.Errorf("%w: spec.sts.provider %q is not known here", source.ErrInvalid, sts.Provider))
	}
	if sts.SecretRef == nil {
		return nil, invalidSTS(fmt.Errorf("%w: spec.sts.secretRef is required with provider %s", source.ErrInvalid, sts.Provider))
	}
	endpoint, err := a.STSEndpoint()
	if err != nil {
		return nil, err
	}
	if endpoint.Scheme == "http" && !a.Spec.Insecure && transport.ZoneOfHost(endpoint) != transport.Link {
		return nil, invalidSTS(fmt.Errorf("%w: spec.sts.endpoint would be shown credentials in the clear: use https, or set spec.insecure to allow that", source.ErrInvalid))
	}
	retrieve, err := way(endpoint.String(), a.STS)
	if err != nil {
		return nil, &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed", Err: fmt.Errorf("spec.sts.secretRef: %w", err)}
	}
	client := *a.Client(endpoint, a.STSWay)
	client.Transport = &strict{client.Transport, a.Vault}
	return func(ctx context.Context) (source.Credential, error) {
		v, err := retrieve(&credentials.CredContext{Client: &client, Context: ctx})
		a.Vault.Conceal(v.AccessKeyID, v.SecretAccessKey, v.SessionToken)
		if err != nil {
			return source.Credential{}, &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed", Err: unissued(ctx, endpoint, err, a.Vault)}
		}
		return source.Credential{Username: v.AccessKeyID, Password: v.SecretAccessKey, Token: v.SessionToken, Expires: v.Expiration}, nil
	}, nil
}

func invalidSTS(err error) error {
	return &source.StepError{Step: source.StepResolve, Reason: "InvalidSTSConfiguration", Err: err}
}

// unissued says why there are no keys, without what was sent for them.
func unissued(ctx context.Context, endpoint *url.URL, err error, vault *bucket.Vault) error {
	if e, ok := errors.AsType[*bucket.StatusError](err); ok {
		return e
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%s %s: %w", logIn, redact.URL(endpoint), bare(err, tlsOfService, vault.Values()...))
}

// A strict round tripper makes an error of an answer other than 200, and bounds the others.
type strict struct {
	next  http.RoundTripper
	vault *bucket.Vault
}

// RoundTrip implements [http.RoundTripper].
func (s *strict) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refusalOf(resp, logIn, s.vault.Values()...).status(hintsOfService)
	}
	resp.Body = bucket.Bounded(resp.Body, maxIssued)
	return resp, nil
}
