package git

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
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
	return o.reach(ctx, u, spec.SecretRef, ownSecret)
}

// reach returns the upstream at u, which is spec.url or that of a submodule,
// with the credentials in the Secret that field names.
func (o *Origin) reach(ctx context.Context, u *url.URL, ref *source.LocalReference, field string) (upstream, error) {
	spec := &o.repo.Spec
	if path, ok := o.env.Local[u.String()]; ok {
		return openLocal(path, o.env.Limits)
	}
	secret, err := o.secret(ctx, ref, field)
	if err != nil {
		return nil, err
	}
	proxySecret, err := o.secret(ctx, spec.ProxySecretRef, "spec.proxySecretRef")
	if err != nil {
		return nil, err
	}
	name, err := source.Address(o.repo)
	if err != nil {
		return nil, err
	}
	login := lent(spec, field, secret)
	n := &network{url: u, env: o.env, object: name, lent: login, scope: scope(u, spec, o.repo.Metadata.Namespace, login, secret, proxySecret)}
	if o.env.Cache != nil {
		n.pool = pool.New(o.env.Cache, n.scope)
	}
	if err := misprovided(spec, secret); err != nil {
		return nil, err
	}
	switch {
	case login:
		n.route, err = o.overLogin(ctx, u, secret, proxySecret)
	case u.Scheme == "ssh":
		n.route, err = overSSH(u, secret, proxySecret)
	default:
		n.route, err = overHTTP(u, secret, proxySecret, o.mayDial(field))
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

// A namedSecret is a Secret and how to call it in messages.
type namedSecret struct {
	name string // NAMESPACE/NAME, "" when the spec names none
	source.Secret
}

func (o *Origin) secret(ctx context.Context, ref *source.LocalReference, field string) (namedSecret, error) {
	if ref == nil {
		return namedSecret{}, nil
	}
	namespace := o.repo.Metadata.Namespace
	name := namespace + "/" + ref.Name
	fail := func(err error) (namedSecret, error) {
		return namedSecret{}, &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed",
			Err: fmt.Errorf("%s: secret %s: %w", field, name, err)}
	}
	if o.env.Secrets == nil {
		return fail(errNoSecrets)
	}
	s, err := o.env.Secrets.Secret(ctx, namespace, ref.Name)
	if err != nil {
		return fail(err)
	}
	o.remember(s)
	return namedSecret{name, s}, nil
}

// public are the keys of Secrets whose values anybody may see.
var public = map[string]bool{"username": true, "known_hosts": true, "identity.pub": true, "ca.crt": true, "caFile": true, "tls.crt": true, "address": true,
	"githubAppID": true, "githubAppInstallationID": true, "githubAppInstallationOwner": true, "githubAppBaseURL": true}

// remember notes the values of a Secret that must not show.
func (o *Origin) remember(s source.Secret) {
	for key, value := range s.Data {
		if !public[key] {
			o.conceal(string(value))
		}
	}
}

// conceal notes values that must not show.
func (o *Origin) conceal(values ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, v := range values {
		if len(v) > 3 && !slices.Contains(o.secrets, v) {
			o.secrets = append(o.secrets, v)
		}
	}
}

// Secrets returns the credentials that were given to the origin so far, which
// the [source.Reconciler] keeps out of conditions, events and errors.
func (o *Origin) Secrets() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.secrets)
}

func overHTTP(u *url.URL, secret, proxySecret namedSecret, mayDial func(host string, ip netip.Addr) error) (route, error) {
	c, err := httpConfig(u, secret, proxySecret)
	if err != nil {
		return route{}, err
	}
	c.MayDial = mayDial
	given, err := transport.GitAuth(secret.name, secret.Secret)
	if err != nil {
		return route{}, err
	}
	if given != (transport.Auth{}) {
		c.Auth = given
	}
	return speak(c), nil
}

// httpConfig returns how u is reached, with the credentials in it but not those of the Secret.
func httpConfig(u *url.URL, secret, proxySecret namedSecret) (c transport.Config, err error) {
	c.Origin, c.Auth = transport.SplitUser(u)
	if c.TLS, err = transport.GitTLS(secret.name, secret.Secret); err != nil {
		return c, err
	}
	if proxySecret.name != "" {
		p, err := transport.ProxyFromSecret(proxySecret.name, proxySecret.Secret, c.TLS)
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
