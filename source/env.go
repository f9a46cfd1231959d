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

// ErrProvider marks a login that cannot work as configured: keys are missing from the Secret, the
// URL does not belong to the provider, or this program has no identity with it. Other errors of a
// login may be temporary.
var ErrProvider = errors.New("invalid provider configuration")

// ErrNoIdentity marks a login without any credentials: this program has no identity with the
// provider, so it can only send anonymous requests.
var ErrNoIdentity = errors.New("no identity")

// A LoginFunc gets credentials from the provider in a spec, for example from a cloud's token
// service. It may cache them until they expire, and must be safe for concurrent use.
//
// Errors wrap [ErrProvider] if the configuration is at fault, and also [ErrInvalid] if only the
// spec is at fault; they wrap [ErrNoIdentity] if there are no credentials to log in with. They
// include neither credentials nor the URL and provider of the request.
type LoginFunc func(ctx context.Context, request LoginRequest) (Credential, error)

// A LoginRequest names a server and the identity for it.
type LoginRequest struct {
	Provider       string   // spec.provider: azure, github, aws or gcp
	URL            *url.URL // server to contact, without user information; oci://HOST/PATH for a registry, s3://, gs:// or azblob://HOST/BUCKET for a bucket
	Secret         Secret   // spec.secretRef
	SecretName     string   // its NAMESPACE/NAME, "" if there is none
	Namespace      string   // of the object
	ServiceAccount string   // spec.serviceAccountName, "" for the identity of the program itself

	// Account returns the service account whose identity is used, see [AccountFunc]. It is nil if
	// nothing issues tokens for service accounts.
	Account func(context.Context) (*Account, error)

	// Client is for the provider's own requests: it uses spec.proxySecretRef, trusts the CA of the
	// Secret, and has no credentials.
	Client *http.Client
	// OwnTrust is true if a Secret defines which servers are trusted by Client and by the requests
	// to URL. The author of the Secret could then intercept the traffic, so the identity of the
	// program itself must not be used.
	OwnTrust bool
}

// An Account is a service account of a cluster. Providers exchange its tokens for credentials.
type Account struct {
	Namespace, Name, UID string
	Annotations          map[string]string // identify the account to the provider
	// Token returns a new identity token of the account for an audience. Errors do not include it.
	Token func(ctx context.Context, audience string) (string, error)
}

// An AccountFunc returns a service account by its name, the spec.serviceAccountName of an object.
// For the name "" it returns the account of objects without that field, or nil for the identity of
// the program itself. Errors are those of a [LoginFunc], or a *[StepError].
type AccountFunc func(ctx context.Context, namespace, name string) (*Account, error)

// A Credential is issued by a provider: a bearer token, or a user name and a password. None of them
// may appear in output.
type Credential struct {
	Username, Password string
	Token              string
	Refresh            string    // a token that is exchanged for others: docker's identity token
	Expires            time.Time // zero if unknown
	Refused            func()    // the caller calls it if the credential was refused, so that it is not issued again; may be nil
}

// A KeychainFunc returns the credentials that the user of the program stores for a registry,
// HOST[:PORT], such as those of docker login, or the zero Credential if there are none.
type KeychainFunc func(ctx context.Context, host string) (Credential, error)

// maxTransports bounds the number of transports that are kept, one for each combination of trust,
// client certificate and proxy.
const maxTransports = 64

// Connections shares connections to upstreams between origins. The zero value is ready to use. With
// nil Connections, each origin opens its own connections and closes them. It is safe for concurrent
// use.
type Connections struct {
	mu         sync.Mutex
	transports map[string]*http.Transport
}

// Transport returns the transport kept under key; if there is none, it keeps the result of make.
// The key must identify everything that distinguishes its connections from others, except
// credentials in requests. If 64 others are kept already, one of them is dropped. A transport
// limits the number and time of its idle connections itself.
func (c *Connections) Transport(key string, make func() *http.Transport) *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.transports[key]; t != nil {
		return t
	}
	if len(c.transports) == maxTransports {
		for other, t := range c.transports {
			t.CloseIdleConnections()
			delete(c.transports, other)
			break
		}
	}
	t := make()
	put(&c.transports, key, t)
	return t
}

// Close closes idle connections. Connections in use are closed after use.
func (c *Connections) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.transports {
		t.CloseIdleConnections()
	}
	c.transports = nil
}

// Networks are hosts and networks that any server may refer to, by a redirect or in its content,
// even if they are in a narrower network than the server itself. They never include the metadata
// services of clouds. A nil value is empty.
type Networks struct {
	names    []string
	networks []netip.Prefix
}

// ParseNetworks parses host names (without a port; a name covers all its addresses), addresses, and
// networks such as 10.0.0.0/8. Errors name a text that is none of these, or that is only a metadata
// service.
func ParseNetworks(texts ...string) (*Networks, error) {
	n := new(Networks)
	for _, text := range texts {
		text = strings.TrimSpace(text)
		network, err := netip.ParsePrefix(text)
		if ip, literal := zone.Literal(strings.Trim(text, "[]")); literal {
			ip = zone.NormalizeAddr(ip)
			network, err = netip.PrefixFrom(ip, ip.BitLen()), nil
		}
		switch {
		case err == nil && zone.IsMetadata(network.Addr()) && network.IsSingleIP(), err != nil && zone.IsMetadataHost(text):
			return nil, fmt.Errorf("%q is a metadata service, which nothing opens", text)
		case err == nil && network.Addr().Is4In6():
			return nil, fmt.Errorf("%q: write networks of IPv4 as 10.0.0.0/8", text)
		case err == nil:
			n.networks = append(n.networks, network.Masked())
		case text == "" || strings.ContainsAny(text, "/:@*? ,"):
			return nil, fmt.Errorf("%q: want the name of a host without scheme and port, an address, or a network as 10.0.0.0/8", text)
		default:
			n.names = append(n.names, zone.NormalizeHost(text))
		}
	}
	return n, nil
}

// Allow reports whether n has the host, whose address is ip; the zero ip means that the address is
// unknown.
func (n *Networks) Allow(host string, ip netip.Addr) bool {
	if n == nil || zone.IsMetadataHost(host) || ip.IsValid() && zone.IsMetadata(ip) {
		return false
	}
	return slices.Contains(n.names, zone.NormalizeHost(host)) || ip.IsValid() && slices.ContainsFunc(n.networks, func(network netip.Prefix) bool {
		return network.Contains(zone.NormalizeAddr(ip)) || network.Contains(ip.WithZone(""))
	})
}
