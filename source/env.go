package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/zone"
)

// ErrProvider marks a login that cannot work as it is configured: keys are
// missing from the Secret, the URL is none of the provider's, or this program
// has no identity there. Other errors of a login may pass.
var ErrProvider = errors.New("invalid provider configuration")

// ErrNoIdentity marks a login that nothing was found for: this program has no
// identity with the provider, so that it can send anonymous requests only.
var ErrNoIdentity = errors.New("no identity")

// A LoginFunc gets credentials from the provider that a spec names, for
// example a cloud's token service. It may keep them until they expire, and is
// safe for concurrent use.
//
// Errors wrap [ErrProvider] when the configuration is at fault, and
// [ErrInvalid] as well when that is the spec alone; [ErrNoIdentity] when there
// is nothing to log in with. They hold neither
// credentials nor the URL and provider they are about.
type LoginFunc func(ctx context.Context, request LoginRequest) (Credential, error)

// A LoginRequest names a server and the identity that is to reach it.
type LoginRequest struct {
	Provider       string   // spec.provider: azure, github, aws or gcp
	URL            *url.URL // what is to be reached, without user information; oci://HOST/PATH for a registry, s3://, gs:// or azblob://HOST/BUCKET for a bucket
	Secret         Secret   // spec.secretRef
	SecretName     string   // NAMESPACE/NAME of it, "" when there is none
	Namespace      string   // of the object
	ServiceAccount string   // spec.serviceAccountName, "" for the identity of the program itself

	// Account returns the service account whose identity is used, see [AccountFunc]. It is
	// nil where nothing issues tokens of service accounts.
	Account func(context.Context) (*Account, error)

	// Client is for the provider's own requests: it goes through
	// spec.proxySecretRef, trusts the CA of the Secret, and has no credentials.
	Client *http.Client
	// OwnTrust tells that a Secret says which servers Client, and what will
	// reach URL, trust. The author of the Secret could read along, so the
	// identity of the program itself must not be used.
	OwnTrust bool
}

// An Account is a service account of a cluster. Providers exchange its tokens for credentials.
type Account struct {
	Namespace, Name, UID string
	Annotations          map[string]string // say who the account is with the provider
	// Token returns a new identity token of the account for an audience. Errors do not hold it.
	Token func(ctx context.Context, audience string) (string, error)
}

// An AccountFunc returns a service account by its name, which is that of spec.serviceAccountName.
// For the name "" it returns the account of objects that name none, nil for the
// identity of the program itself. Errors are as those of a [LoginFunc], or a *[StepError].
type AccountFunc func(ctx context.Context, namespace, name string) (*Account, error)

// A Credential is what a provider issued: a bearer token, or a user name and a
// password. All of them are to be kept out of texts.
type Credential struct {
	Username, Password string
	Token              string
	Refresh            string    // a token that is exchanged for others, docker's identity token
	Expires            time.Time // zero when it is not known
	Refused            func()    // to be called when the credential was refused: it is not issued again; may be nil
}

// A KeychainFunc returns the credentials that the user of the program keeps for
// a registry, HOST[:PORT], such as those of docker login; the zero Credential
// when there are none.
type KeychainFunc func(ctx context.Context, host string) (Credential, error)

// maxTransports bounds the kinds of connections that are kept: what differs in
// trust, client certificate or proxy has its own.
const maxTransports = 64

// Connections let origins use the connections to upstreams that others have
// opened. The zero value is ready to use; with a nil one each origin opens its
// own, and closes them. It is safe for concurrent use.
type Connections struct {
	mu    sync.Mutex
	known map[string]*http.Transport
}

// Transport returns the transport that is kept under key, or else that of make,
// which is kept then. The key says all that tells its connections from others,
// credentials that a request carries aside. If there are 64 others, one of them is
// given up; the bounds on idle connections of a transport, in number and time, are its own.
func (c *Connections) Transport(key string, make func() *http.Transport) *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.known[key]; t != nil {
		return t
	}
	if len(c.known) == maxTransports {
		for other, t := range c.known {
			t.CloseIdleConnections()
			delete(c.known, other)
			break
		}
	}
	t := make()
	put(&c.known, key, t)
	return t
}

// Close ends idle connections. Those in use end with what they are used for.
func (c *Connections) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.known {
		t.CloseIdleConnections()
	}
	c.known = nil
}

// Networks are the hosts and networks that any server may lead to, by a redirect
// or in what it serves, though they are in a narrower network than the server
// itself. Metadata services of clouds are in none of them. A nil one is empty.
type Networks struct {
	names    []string
	networks []netip.Prefix
}

// ParseNetworks reads names of hosts (without a port; a name stands for all its
// addresses), addresses, and networks as 10.0.0.0/8. Errors name the text that
// is none, or that stands for nothing but a metadata service.
func ParseNetworks(texts ...string) (*Networks, error) {
	n := new(Networks)
	for _, text := range texts {
		text = strings.TrimSpace(text)
		network, err := netip.ParsePrefix(text)
		if ip, literal := zone.Literal(strings.Trim(text, "[]")); literal {
			ip = zone.Plain(ip)
			network, err = netip.PrefixFrom(ip, ip.BitLen()), nil
		}
		switch {
		case err == nil && zone.Metadata(network.Addr()) && network.IsSingleIP(), err != nil && zone.MetadataHost(text):
			return nil, fmt.Errorf("%q is a metadata service, which nothing opens", text)
		case err == nil && network.Addr().Is4In6():
			return nil, fmt.Errorf("%q: write networks of IPv4 as 10.0.0.0/8", text)
		case err == nil:
			n.networks = append(n.networks, network.Masked())
		case text == "" || strings.ContainsAny(text, "/:@*? ,"):
			return nil, fmt.Errorf("%q: want the name of a host without scheme and port, an address, or a network as 10.0.0.0/8", text)
		default:
			n.names = append(n.names, zone.Name(text))
		}
	}
	return n, nil
}

// Allow reports whether the host, which is reached at ip, is one of n; the zero
// ip is for an address that is not known.
func (n *Networks) Allow(host string, ip netip.Addr) bool {
	if n == nil || zone.MetadataHost(host) || ip.IsValid() && zone.Metadata(ip) {
		return false
	}
	return slices.Contains(n.names, zone.Name(host)) || ip.IsValid() && slices.ContainsFunc(n.networks, func(network netip.Prefix) bool {
		return network.Contains(zone.Plain(ip)) || network.Contains(ip.WithZone(""))
	})
}
