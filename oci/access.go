package oci

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// An Access says where a repository is and how it is reached.
//
// # Entries
//
// A Secret holds entries as docker login writes them, at most 1000 in 1 MiB,
// with auth, username and password, identitytoken or registrytoken; helpers it
// names are not run. The name of an entry is [https://]HOST[:PORT][/PATH], where
// v1 and v2 at the beginning of the path are the API's. Host and port must be
// those of the repository, and PATH its name or a folder it is in. The labels of
// HOST may be patterns with *, ? and [a-z], each for one label. Docker Hub is
// docker.io, index.docker.io and registry-1.docker.io. The longest path counts,
// then the host with fewer patterns, then the first of a.Secret and the pull secrets.
//
// # Rules
//
//   - Credentials and tokens are shown to the registry's origin (scheme, host and
//     port) and to its token service, and to no host that either redirects to.
//   - A token service is reached over TLS, or on the host of a registry without TLS.
//     Credentials are for one on the registry's host, of its registrable domain,
//     or with an entry of its own ([RealmError]); without credentials any may be asked.
//   - No host that the registry leads to is in a narrower network than the registry
//     (public, private, of this machine or link): by their addresses, or by their
//     names where a proxy looks these up. An entry for the host says that it may be,
//     and so does env.Networks.
//   - Requests that a busy registry refuses are sent again, at most 5 times in
//     all and within the context; what changes something only after status 429.
type Access struct {
	URL            string                 // oci://HOST[:PORT]/PATH
	Provider       string                 // the issuer of credentials: "" or generic for none
	ServiceAccount string                 // pull secrets of this account count
	Secret         *source.LocalReference // a Secret of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg; see UserSecret
	Cert           *source.LocalReference // CA and client certificate
	Proxy          *source.LocalReference
	Insecure       bool // plain HTTP; certificates are checked where there is TLS all the same

	// UserSecret allows Secret to hold username and password instead, which are
	// for the registry in URL.
	UserSecret bool
	// From is the fence of the server that names the registry; nil: the user names it.
	From *Fence
}

// A Vault reads the Secrets of one namespace, and remembers what in them must
// not show in texts. Its zero value works, with no Secrets. Its fields are
//
//	Namespace string         // of the object
//	From      source.Secrets // nil: there are none
//
// and its method Values() []string returns what must not show.
type Vault = transport.Vault

// A Fence keeps a server, and hosts that it names, from sending us into a narrower network than its own.
type Fence = transport.Fence

// A Secret is a [source.Secret] and, in its field Name, NAMESPACE/NAME.
type Secret = transport.Secret

// Connect returns the repository that a names, with the Secrets of v. It reads
// Secrets and logs in with the provider, and sends nothing else.
//
// Where env.Local has a directory for a.URL, an image layout, that is the
// repository, and nothing else of a counts.
//
// The credentials are those of the first that has some for the repository:
// a.Secret and the pull secrets of a.ServiceAccount together (the most specific
// entry counts), a.Provider, env.Keychain when a names none of these.
//
// Errors are *[source.StepError] with the reason URLInvalid, AuthenticationFailed
// or InvalidProviderConfiguration, and those of a layout that cannot be read.
func Connect(ctx context.Context, a Access, env source.Env, v *Vault) (*Repository, error) {
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
	network, err := a.network(ctx, env, v)
	if err != nil {
		return nil, failed(err)
	}
	web := transport.Client(transport.Config{Proxy: network.Proxy, Networks: network.Networks})
	registry := at.origin(a.Insecure)
	keys, err := a.keys(ctx, at, network, env, v)
	if err != nil {
		return nil, failed(err)
	}
	r := &Repository{address: at, from: newServer(at, newAuthTransport(registry, network, keys, a.From, v.Conceal)), web: web}
	if env.Share != nil && a.From == nil {
		r.from = &sharedAnswers{r.from, env, shareScope(registry, at, network.Settings, keys), v}
	}
	return r, nil
}

// failed gives an error the reason AuthenticationFailed unless it has one.
func failed(err error) error {
	if _, ok := errors.AsType[*source.StepError](err); ok {
		return err
	}
	return &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed", Err: err}
}

// network returns the TLS settings and the proxy of the spec.
func (a Access) network(ctx context.Context, env source.Env, v *transport.Vault) (c transport.Config, err error) {
	c = transport.Outside(env)
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
	c.Settings = transport.Settings("cert", cert, proxy)
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
