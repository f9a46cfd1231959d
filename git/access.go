package git

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
	"github.com/headgate-io/headgate/git/internal/pool"
	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// connect returns the upstream of spec.url with the credentials that the spec
// names. It sends nothing.
func (o *Origin) connect(ctx context.Context) (upstream, error) {
	spec := &o.repo.Spec
	if path, ok := o.env.Local[spec.URL]; ok {
		return openLocal(path, o.env.Limits)
	}
	u, err := parseURL(spec.URL)
	if err != nil {
		return nil, &source.StepError{Step: source.StepResolve, Reason: "URLInvalid", Err: invalid(fmt.Errorf("spec.url: %w", err))}
	}
	return o.reach(ctx, u, spec.SecretRef, ownSecret, transport.NewFence(u, nil))
}

// reach returns the upstream at u, which is spec.url or that of a submodule,
// with the credentials in the Secret that field names.
func (o *Origin) reach(ctx context.Context, u *url.URL, ref *source.LocalReference, field string, fence *transport.Fence) (upstream, error) {
	spec := &o.repo.Spec
	if path, ok := o.env.Local[u.String()]; ok {
		return openLocal(path, o.env.Limits)
	}
	secret, err := o.vault.Read(ctx, ref, field)
	if err != nil {
		return nil, err
	}
	proxySecret, err := o.vault.Read(ctx, spec.ProxySecretRef, "spec.proxySecretRef")
	if err != nil {
		return nil, err
	}
	name, err := source.Address(o.repo)
	if err != nil {
		return nil, err
	}
	login := lent(spec, field, secret)
	n := &network{url: u, env: o.env, object: name, lent: login, scope: cacheScope(u, spec, o.repo.Metadata.Namespace, login, secret, proxySecret)}
	if o.env.Cache != nil {
		n.pool = pool.New(o.env.Cache, n.scope)
	}
	if err := misprovided(spec, secret); err != nil {
		return nil, err
	}
	switch {
	case login:
		n.route, err = o.overLogin(ctx, u, secret, proxySecret, fence)
	case u.Scheme == "ssh":
		n.route, err = o.overSSH(u, secret, proxySecret, fence)
	default:
		n.route, err = o.overHTTP(u, secret, proxySecret, fence)
		if n.web.Auth == (transport.Auth{}) {
			n.keyless = secret.Name
		}
	}
	if err != nil {
		return nil, err
	}
	return n, nil
}

// A route is a way to a repository.
type route struct {
	transport wire.Transport
	web       transport.Config // reaches HTTP servers the same way; its Origin is that of a repository over HTTP
	end       func()           // closes what transport holds
}

// parseURL accepts what the URL of a repository may be: http, https or ssh, with a host.
func parseURL(s string) (*url.URL, error) {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return nil, fmt.Errorf("it holds a control character")
	}
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

// Secrets returns the credentials that were given to the origin so far, which
// the [source.Reconciler] keeps out of conditions, events and errors.
func (o *Origin) Secrets() []string { return o.vault.Values() }

func (o *Origin) overHTTP(u *url.URL, secret, proxySecret transport.Secret, fence *transport.Fence) (route, error) {
	c, err := o.httpConfig(u, secret, proxySecret, fence)
	if err != nil {
		return route{}, err
	}
	given, err := transport.GitAuth(secret.Name, secret.Secret)
	if err != nil {
		return route{}, err
	}
	if given != (transport.Auth{}) {
		c.Auth = given
	}
	return speak(c), nil
}

// httpConfig returns how u is reached, with the credentials in it but not those of the Secret.
func (o *Origin) httpConfig(u *url.URL, secret, proxySecret transport.Secret, fence *transport.Fence) (c transport.Config, err error) {
	c = transport.Outside(o.env)
	c.Fence = fence
	c.Origin, c.Auth = transport.SplitUser(u)
	c.Settings = transport.Settings("git", secret, proxySecret)
	if c.TLS, err = transport.GitTLS(secret.Name, secret.Secret); err != nil {
		return c, err
	}
	if proxySecret.Name != "" {
		p, err := transport.ProxyFromSecret(proxySecret.Name, proxySecret.Secret, c.TLS)
		if err != nil {
			return c, err
		}
		c.Proxy = p.For
	}
	return c, nil
}

func speak(c transport.Config) route {
	client := transport.Client(c)
	return route{wire.HTTP(client, c.Origin), c, client.CloseIdleConnections}
}

// packLimits translates the bounds of a fetch into those of a pack. The objects
// of one commit are the entries of its tree, the tree, the commit and its tags;
// of a history there may be any number.
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
