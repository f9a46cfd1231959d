package s3

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

func stepError(reason string, err error) error {
	return &source.StepError{Step: source.StepResolve, Reason: reason, Err: err}
}

func invalid(reason, text string) error {
	return stepError(reason, fmt.Errorf("%w: %s", source.ErrInvalid, text))
}

// authenticate finds the keys of the driver. Errors are *[source.StepError].
func (d *driver) authenticate(ctx context.Context) (err error) {
	a, issue := d.access, d.exchangeKeys
	switch sts := a.Spec.STS; {
	case a.Spec.SecretRef != nil:
		if d.fixed.Username, d.fixed.Password, err = transport.S3Keys(a.Secret.Name, a.Secret.Secret); err != nil {
			return stepError("AuthenticationFailed", fmt.Errorf("spec.secretRef: %w", err))
		}
		return nil
	case sts != nil && sts.Provider != source.STSAWS:
	case a.Spec.Provider == "aws":
		issue = d.ownIdentity
	default:
		return nil
	}
	var service *url.URL
	if a.Spec.STS != nil {
		if service, err = a.Spec.STS.EndpointURL(); err != nil {
			return stepError("URLInvalid", err)
		}
	}
	get, err := issue(service)
	if err == nil {
		d.issued, err = bucket.NewIssued(ctx, get)
	}
	return err
}

// An issuer has keys issued.
type issuer func(context.Context) (source.Credential, error)

// ownIdentity has keys issued to the identity of this program, by service unless that is nil.
func (d *driver) ownIdentity(service *url.URL) (issuer, error) {
	a := d.access
	if d.at.base.Scheme == "http" && transport.ZoneOfHost(d.at.base) != transport.Link {
		return nil, invalid("InvalidProviderConfiguration", "spec.insecure: the identity of this program is not shown in the clear: remove it, or set spec.secretRef")
	}
	u := &url.URL{Scheme: "s3", Host: d.at.server, Path: "/" + a.Spec.BucketName}
	if service != nil {
		u.RawQuery = url.Values{"sts": {a.Spec.STS.Endpoint}}.Encode()
	}
	return func(ctx context.Context) (source.Credential, error) {
		issued, err := a.LogIn(ctx, u)
		if errors.Is(err, errors.ErrUnsupported) {
			err = invalid("InvalidProviderConfiguration", "spec.provider: this program cannot log in with provider aws: set spec.secretRef")
		}
		return issued, err
	}, nil
}

// exchangeKeys has keys issued by the token service of spec.sts.
func (d *driver) exchangeKeys(service *url.URL) (issuer, error) {
	a, sts := d.access, d.access.Spec.STS
	switch {
	case sts.SecretRef == nil:
		return nil, invalid("InvalidSTSConfiguration", "spec.sts.secretRef is required with provider "+sts.Provider)
	case service.Scheme == "http" && !a.Spec.Insecure && transport.ZoneOfHost(service) != transport.Link:
		return nil, invalid("InvalidSTSConfiguration", "spec.sts.endpoint would be shown credentials in the clear: use https, or set spec.insecure to allow that")
	}
	var err error
	var retrieve func(*credentials.CredContext) (credentials.Value, error)
	switch sts.Provider {
	case source.STSLDAP:
		p := &credentials.LDAPIdentity{STSEndpoint: service.String()}
		p.LDAPUsername, p.LDAPPassword, err = transport.LDAP(a.STS.Name, a.STS.Secret)
		retrieve = p.RetrieveWithCredContext
	case source.STSWebIdentity:
		var token string
		p := &credentials.STSWebIdentity{STSEndpoint: service.String(), GetWebIDTokenExpiry: func() (*credentials.WebIdentityToken, error) {
			return &credentials.WebIdentityToken{Token: token}, nil
		}}
		token, p.RoleARN, err = transport.WebIdentity(a.STS.Name, a.STS.Secret)
		retrieve = p.RetrieveWithCredContext
	default:
		return nil, invalid("InvalidSTSConfiguration", fmt.Sprintf("spec.sts.provider %q is not known here", sts.Provider))
	}
	if err != nil {
		return nil, stepError("AuthenticationFailed", fmt.Errorf("spec.sts.secretRef: %w", err))
	}
	client := a.Client(service, a.STSWay)
	return func(ctx context.Context) (source.Credential, error) {
		s := a.TokenService(ctx, client, "check spec.sts.endpoint, and the Secret of spec.sts.secretRef")
		v, err := retrieve(&credentials.CredContext{Client: s.Client(), Context: ctx})
		a.Vault.Conceal(v.AccessKeyID, v.SecretAccessKey, v.SessionToken)
		if err != nil {
			return source.Credential{}, s.Failed("log in to the token service "+redact.URL(service), err)
		}
		return source.Credential{Username: v.AccessKeyID, Password: v.SecretAccessKey, Token: v.SessionToken, Expires: v.Expiration}, nil
	}, nil
}
