package git

import (
	"fmt"
	"net/url"

	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

func overSSH(u *url.URL, secret, proxySecret namedSecret) (wire.Transport, func(), error) {
	if secret.name == "" {
		return nil, nil, &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed",
			Err: invalid(fmt.Errorf("spec.secretRef: an ssh URL needs a Secret with identity and known_hosts"))}
	}
	keys, err := transport.GitSSH(secret.name, secret.Secret)
	if err != nil {
		return nil, nil, err
	}
	c := wire.SSHConfig{Identity: keys.Identity, Passphrase: keys.Passphrase, KnownHosts: keys.KnownHosts}
	if proxySecret.name != "" {
		authorities, err := transport.GitTLS(secret.name, secret.Secret)
		if err != nil {
			return nil, nil, err
		}
		p, err := transport.ProxyFromSecret(proxySecret.name, proxySecret.Secret, authorities)
		if err != nil {
			return nil, nil, err
		}
		c.Dial = p.Dial
	}
	return wire.SSH(c, u), func() {}, nil
}
