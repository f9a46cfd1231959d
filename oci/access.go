package oci

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// An Access says where a repository is and how it is reached.
type Access struct {
	URL            string                 // oci://HOST[:PORT]/PATH
	Provider       string                 // who issues credentials: "" or generic for nobody
	ServiceAccount string                 // whose pull secrets count
	Secret         *source.LocalReference // a Secret of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg
	Cert           *source.LocalReference // CA and client certificate
	Proxy          *source.LocalReference
	Insecure       bool // plain HTTP; certificates are checked where there is TLS all the same
}

// Connect returns the repository that a names, with the Secrets of v. It reads
// Secrets and logs in with the provider, and sends nothing else.
//
// Where env.Local has a directory for a.URL, an image layout, that is the
// repository, and nothing else of a counts.
//
// The credentials are those of the first that has some for the repository:
// a.Secret and the pull secrets of a.ServiceAccount together (the most specific
// entry counts), a.Provider, env.Keychain when a names none of these, nobody.
//
// Errors are *[source.StepError] with the reason URLInvalid, AuthenticationFailed
// or InvalidProviderConfiguration.
func Connect(ctx context.Context, a Access, env source.Env, v *transport.Vault) (*Repository, error) {
	at, err := parseAddress(a.URL)
	if err != nil {
		return nil, &source.StepError{Step: source.StepResolve, Reason: "URLInvalid",
			Err: fmt.Errorf("%w: spec.url: %w", source.ErrInvalid, err)}
	}
	if dir, ok := env.Local[a.URL]; ok {
		l, err := openLayout(dir)
		if err != nil {
			return nil, fmt.Errorf("stand-in for %s: %w", a.URL, err)
		}
		return &Repository{address: at, from: l, web: transport.Client(transport.Config{})}, nil
	}
	way, err := a.way(ctx, v)
	if err != nil {
		return nil, failed(err)
	}
	web := transport.Client(transport.Config{Proxy: way.Proxy})
	registry := at.origin(a.Insecure)
	keys, err := a.keys(ctx, at, way, env, v)
	if err != nil {
		return nil, failed(err)
	}
	return &Repository{address: at, from: newServer(at, newGate(registry, way, keys, v.Conceal)), web: web}, nil
}

// failed gives an error the reason AuthenticationFailed unless it has one.
func failed(err error) error {
	if _, ok := errors.AsType[*source.StepError](err); ok {
		return err
	}
	return &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed", Err: err}
}

// way returns how servers are reached.
func (a Access) way(ctx context.Context, v *transport.Vault) (c transport.Config, err error) {
	cert, err := v.Read(ctx, a.Cert, "spec.certSecretRef")
	if err != nil {
		return c, err
	}
	if cert.Name != "" {
		if c.TLS, err = transport.CertTLS(cert.Name, cert.Secret); err != nil {
			return c, err
		}
	}
	proxy, err := v.Read(ctx, a.Proxy, "spec.proxySecretRef")
	if err != nil || proxy.Name == "" {
		return c, err
	}
	p, err := transport.ProxyFromSecret(proxy.Name, proxy.Secret, c.TLS)
	if err != nil {
		return c, err
	}
	c.Proxy = p.For
	return c, nil
}
