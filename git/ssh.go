package git

import (
	"context"
	"fmt"
	"net"
	"net/url"

	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/internal/tunnel"
	"github.com/headgate-io/headgate/source"
)

func (o *Origin) overSSH(u *url.URL, secret, proxySecret transport.Secret, fence *transport.Fence) (route, error) {
	if secret.Name == "" {
		return route{}, &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed",
			Err: invalid(fmt.Errorf("spec.secretRef: an ssh URL needs a Secret with identity and known_hosts"))}
	}
	keys, err := transport.GitSSH(secret.Name, secret.Secret)
	if err != nil {
		return route{}, err
	}
	c := wire.SSHConfig{Identity: keys.Identity, Passphrase: keys.Passphrase, KnownHosts: keys.KnownHosts}
	web := transport.Outside(o.env)
	web.Fence = fence
	if web.TLS, err = transport.GitTLS(secret.Name, secret.Secret); err != nil {
		return route{}, err
	}
	if proxySecret.Name != "" {
		p, err := transport.ProxyFromSecret(proxySecret.Name, proxySecret.Secret, web.TLS)
		if err != nil {
			return route{}, err
		}
		web.Proxy = p.For
		c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return tunnel.Dial(ctx, p, network, addr)
		}
	}
	return route{wire.SSH(c, u), web, func() {}}, nil
}
