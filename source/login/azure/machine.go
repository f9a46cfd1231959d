package azure

import (
	"errors"
	"net"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// A machine is the managed identity of the machine. The SDK does not tell
// whether there is any, but in texts.
type machine struct {
	azcore.TokenCredential
	probe *metadataProbe // nil when one of several was asked for
}

func (i identity) byMachine() (azcore.TokenCredential, error) {
	m, o := &machine{}, &azidentity.ManagedIdentityCredentialOptions{}
	if i.id() != "" {
		o.ID = azidentity.ClientID(i.id())
	} else {
		client := *i.client
		m.probe = &metadataProbe{next: client.Transport}
		client.Transport, i.client = m.probe, &client
	}
	o.ClientOptions = i.options()
	c, err := azidentity.NewManagedIdentityCredential(o)
	m.TokenCredential = c
	return m, err
}

// knowsNone reports whether the machine has no managed identity, after a request for a token failed.
func (m *machine) knowsNone() bool { return m.probe != nil && m.probe.none }

// metadata is the address of the metadata server on the machines of every cloud.
// Azure's other services for identities have other addresses, and exist only where
// an identity exists.
const metadata = "169.254.169.254"

// A metadataProbe notes whether there is a metadata server of Azure. It is for one request at a time.
type metadataProbe struct {
	next http.RoundTripper
	none bool
}

// noIdentity are the answers of other clouds, and of Azure to a machine without an identity.
var noIdentity = map[int]bool{http.StatusBadRequest: true, http.StatusUnauthorized: true, http.StatusForbidden: true,
	http.StatusNotFound: true, http.StatusMethodNotAllowed: true}

// RoundTrip implements [http.RoundTripper].
func (l *metadataProbe) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if req.URL.Host != metadata {
		return resp, err
	}
	op, ok := errors.AsType[*net.OpError](err)
	if l.none = ok && op.Op == "dial" || err == nil && noIdentity[resp.StatusCode]; l.none && err != nil {
		return nil, final{err}
	}
	return resp, err
}

// A final error is not retried by the SDK.
type final struct{ error }

// NonRetriable is what the SDK looks for.
func (final) NonRetriable() {}

// Unwrap returns the cause.
func (f final) Unwrap() error { return f.error }
