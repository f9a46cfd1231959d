package git

import (
	"context"
	"fmt"
	"net/url"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// provided reports whether spec names a provider that issues credentials.
func provided(spec *source.GitRepositorySpec) bool {
	return spec.Provider != "" && spec.Provider != "generic"
}

// misprovided returns what is wrong with the choice of the provider.
func misprovided(spec *source.GitRepositorySpec, secret transport.Secret) error {
	switch {
	case spec.Provider != "github" && transport.IsApp(secret.Secret):
		return badProvider("secret %s is for provider github: set spec.provider", secret.Name)
	case provided(spec) && withUser(spec.URL):
		return badProvider("spec.provider %s goes with a URL without user information: remove it from spec.url", spec.Provider)
	case !provided(spec) && spec.ServiceAccountName != "":
		return badProvider("spec.serviceAccountName goes with spec.provider azure or aws: set that, or remove it")
	}
	return nil
}

func withUser(address string) bool {
	u, err := parseURL(address)
	return err == nil && u.Scheme != "ssh" && u.User != nil
}

// ownSecret is the field with the credentials of spec.url, which are those of
// the submodules on its origin as well, unless another field gives some.
const ownSecret = "spec.secretRef"

// lent reports whether the provider of the spec issues the credentials where
// field chose secret: for the origin of spec.url, and where else a GitHub App is given.
func lent(spec *source.GitRepositorySpec, field string, secret transport.Secret) bool {
	return provided(spec) && (field == ownSecret || transport.IsApp(secret.Secret))
}

// overLogin reaches u over http(s) with what the provider of the spec issues.
// User information in u is not used.
func (o *Origin) overLogin(ctx context.Context, u *url.URL, secret, proxySecret transport.Secret, fence *transport.Fence) (route, error) {
	provider := o.repo.Spec.Provider
	switch {
	case o.env.Login == nil:
		return route{}, badProvider("spec.provider: this program knows no provider %s", provider)
	case u.Scheme == "ssh":
		return route{}, badProvider("spec.provider %s goes with an https URL, not with ssh: change the URL, or remove spec.provider", provider)
	}
	c, err := o.httpConfig(u, secret, proxySecret, fence)
	if err != nil {
		return route{}, err
	}
	issued, err := o.vault.LogIn(ctx, o.env.Login, c, source.LoginRequest{
		Provider: provider, URL: c.Origin, Secret: secret.Secret, SecretName: secret.Name, ServiceAccount: o.repo.Spec.ServiceAccountName,
	})
	if err != nil {
		return route{}, err
	}
	c.Auth = transport.Auth{Username: issued.Username, Password: issued.Password, Bearer: issued.Token}
	c.Refused = issued.Refused
	return speak(c), nil
}

// badProvider is a login that cannot work until the spec changes.
func badProvider(format string, args ...any) error {
	return &source.StepError{Step: source.StepResolve, Reason: "InvalidProviderConfiguration", Err: invalid(fmt.Errorf(format, args...))}
}
