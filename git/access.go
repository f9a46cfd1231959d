package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/internal/tunnel"
	"github.com/headgate-io/headgate/source"
)

// secretRefField is the field with the credentials of spec.url. They are used for
// submodules on the same origin too, unless another field has credentials for them.
const secretRefField = "spec.secretRef"

// openUpstream returns the upstream of spec.url with the credentials that the spec
// names. It sends nothing.
func (o *Origin) openUpstream(ctx context.Context) (upstream, error) {
	if path, ok := o.env.Local[o.repo.Spec.URL]; ok {
		return openLocal(path, o.env.Limits)
	}
	u, err := parseURL(o.repo.Spec.URL)
	if err != nil {
		return nil, &source.StepError{Step: source.StepResolve, Reason: "URLInvalid", Err: specError(fmt.Errorf("spec.url: %w", err))}
	}
	return o.openUpstreamAt(ctx, u, o.repo.Spec.SecretRef, secretRefField, transport.NewNetworkGuard(u, nil))
}

// openUpstreamAt returns the upstream at u, which is spec.url or that of a submodule,
// with the credentials in the Secret that field names.
func (o *Origin) openUpstreamAt(ctx context.Context, u *url.URL, ref *source.LocalReference, field string, guard *transport.NetworkGuard) (upstream, error) {
	spec := &o.repo.Spec
	if path, ok := o.env.Local[u.String()]; ok {
		return openLocal(path, o.env.Limits)
	}
	secret, err := o.secretReader.Read(ctx, ref, field)
	if err != nil {
		return nil, err
	}
	proxySecret, err := o.secretReader.Read(ctx, spec.ProxySecretRef, "spec.proxySecretRef")
	if err != nil {
		return nil, err
	}
	name, err := source.Address(o.repo)
	if err != nil {
		return nil, err
	}
	provided := spec.Provider != "" && spec.Provider != "generic"
	// The provider issues credentials for the origin of spec.url, and elsewhere if
	// the Secret is that of a GitHub App.
	login := provided && (field == secretRefField || transport.IsApp(secret.Secret))
	top, _ := parseURL(spec.URL)
	switch {
	case secret.Name != "" && spec.Provider != "github" && transport.IsApp(secret.Secret):
		return nil, badProvider("secret %s is for provider github: set spec.provider", secret.Name)
	case provided && top != nil && top.Scheme != "ssh" && top.User != nil:
		return nil, badProvider("spec.provider %s requires a URL without user information: remove it from spec.url", spec.Provider)
	case !provided && spec.ServiceAccountName != "":
		return nil, badProvider("spec.serviceAccountName requires spec.provider azure or aws: set that, or remove it")
	case login && o.env.Login == nil:
		return nil, badProvider("spec.provider: this program knows no provider %s", spec.Provider)
	case login && u.Scheme == "ssh":
		return nil, badProvider("spec.provider %s requires an https URL, not ssh: change the URL, or remove spec.provider", spec.Provider)
	case u.Scheme == "ssh" && secret.Name == "":
		return nil, &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed",
			Err: specError(fmt.Errorf("spec.secretRef: an ssh URL needs a Secret with identity and known_hosts"))}
	}
	n := &remoteUpstream{url: u, env: o.env, objectName: name, providerIssued: login, httpConfig: transport.ConfigFromEnv(o.env), closeTransport: func() {}}
	n.httpConfig.Guard = guard
	if o.env.Cache != nil || o.env.Share != nil {
		perAccount := spec.ServiceAccountName != "" || o.env.Accounts != nil // Accounts may know an account for objects that name none
		n.scope = cacheScope(u, spec, o.repo.Metadata.Namespace, login, perAccount, secret, proxySecret)
	}
	if secret.Name != "" {
		if n.httpConfig.TLS, err = transport.GitTLS(secret.Name, secret.Secret); err != nil {
			return nil, err
		}
	}
	ssh := wire.SSHConfig{}
	if u.Scheme == "ssh" {
		keys, err := transport.GitSSH(secret.Name, secret.Secret)
		if err != nil {
			return nil, err
		}
		ssh.Identity, ssh.Passphrase, ssh.KnownHosts = keys.Identity, keys.Passphrase, keys.KnownHosts
	}
	if proxySecret.Name != "" {
		p, err := transport.ProxyFromSecret(proxySecret.Name, proxySecret.Secret, n.httpConfig.TLS)
		if err != nil {
			return nil, err
		}
		n.httpConfig.Proxy = p.For
		ssh.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return tunnel.Dial(ctx, p, network, addr)
		}
	}
	if u.Scheme == "ssh" {
		n.transport = wire.SSH(ssh, u)
	} else {
		n.httpConfig.Origin, n.httpConfig.Auth = transport.SplitUser(u)
		if n.httpConfig.Reuse != nil {
			n.httpConfig.Settings = transport.Settings("git", secret, proxySecret)
		}
		if login || secret.Name != "" {
			if err := o.authenticate(ctx, n, secret); err != nil {
				return nil, err
			}
		}
		client := transport.Client(n.httpConfig)
		n.transport, n.closeTransport = wire.HTTP(client, n.httpConfig.Origin), client.CloseIdleConnections
	}
	o.mu.Lock()
	if o.server.URL == redact.URL(u) {
		n.server = o.server
	}
	o.mu.Unlock()
	n.remote = wire.New(n.transport, n.server.Capabilities)
	return n, nil
}

// authenticate sets the credentials of n for HTTP: those that the provider issues,
// those of the Secret, or else those of the URL.
func (o *Origin) authenticate(ctx context.Context, n *remoteUpstream, secret transport.Secret) error {
	if !n.providerIssued {
		given, err := transport.GitAuth(secret.Name, secret.Secret)
		if given != (transport.Auth{}) {
			n.httpConfig.Auth = given
		}
		if n.httpConfig.Auth == (transport.Auth{}) {
			n.secretWithoutAuth = secret.Name
		}
		return err
	}
	issued, err := o.secretReader.LogIn(ctx, o.env.Login, n.httpConfig, source.LoginRequest{
		Provider: o.repo.Spec.Provider, URL: n.httpConfig.Origin, Secret: secret.Secret, SecretName: secret.Name, ServiceAccount: o.repo.Spec.ServiceAccountName,
	})
	n.httpConfig.Auth = transport.Auth{Username: issued.Username, Password: issued.Password, Bearer: issued.Token}
	n.httpConfig.Refused = issued.Refused
	return err
}

// badProvider returns the error for a provider that cannot work until the spec
// changes.
func badProvider(format string, args ...any) error {
	return &source.StepError{Step: source.StepResolve, Reason: "InvalidProviderConfiguration", Err: specError(fmt.Errorf(format, args...))}
}

// Secrets returns all credentials that the origin has read so far. The
// [source.Reconciler] keeps them out of conditions, events and errors.
func (o *Origin) Secrets() []string { return o.secretReader.Values() }

// parseURL parses the URL of a repository: http, https or ssh, with a host.
func parseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, err
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "ssh":
		return nil, fmt.Errorf("scheme %q: want http, https or ssh (write git@host:path as ssh://git@host/path)", u.Scheme)
	case u.Hostname() == "":
		return nil, fmt.Errorf("no host")
	}
	return u, nil
}

// cacheScope hashes the URL and the credentials, so that objects share cached data
// only if both are equal. The credentials are the Secrets and, with usesProvider, the
// provider that issues some; with perAccount, what it issues may depend on the service
// account and the namespace too.
func cacheScope(u *url.URL, spec *source.GitRepositorySpec, namespace string, usesProvider, perAccount bool, secrets ...transport.Secret) string {
	h := sha256.New()
	transport.HashInto(h, u.String())
	switch {
	case !usesProvider:
		transport.HashInto(h, "")
	case !perAccount:
		transport.HashInto(h, spec.Provider, "")
	default:
		transport.HashInto(h, spec.Provider, spec.ServiceAccountName, namespace)
	}
	for _, s := range secrets {
		s.HashInto(h)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// packLimits returns the limits of a pack for the limits of a fetch. With one, the
// pack holds one commit: the entries of its tree, the tree, the commit and its tags.
// A history may have any number of objects.
func packLimits(l artifact.Limits, one bool) packfile.Limits {
	limits := packfile.Limits{PackBytes: l.Bytes, ObjectBytes: l.FileBytes, InflatedBytes: l.Bytes}
	if one && l.Entries != 0 {
		limits.Objects = int64(l.Entries)
	}
	if one && l.Entries > 0 {
		limits.Objects += object.MaxTags + 2
	}
	return limits
}
