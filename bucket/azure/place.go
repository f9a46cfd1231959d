package azure

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// A place is a container of a storage account.
type place struct {
	server    *url.URL // of the account, without query
	account   string
	container string
	query     url.Values // a shared access signature, nil for none
	proxied   bool       // what is sent leaves this machine, whatever the host
}

// containerForm is the form of names of containers.
var containerForm = regexp.MustCompile(`^(\$root|\$web|\$logs|[a-z0-9](-?[a-z0-9]){2,62})$`)

const maxContainer = 63 // bytes

// placeOf returns where the bucket of a is.
func placeOf(a *bucket.Access) (place, error) {
	server, query, err := a.Endpoint()
	if err != nil {
		return place{}, err
	}
	name := a.Spec.BucketName
	if !containerForm.MatchString(name) || len(name) > maxContainer {
		return place{}, refused("InvalidProviderConfiguration", fmt.Errorf("%w: spec.bucketName is not the name of a container: "+
			"it has 3 to 63 lower case letters, digits and single hyphens", source.ErrInvalid))
	}
	at := place{server: server, container: name, account: accountOf(server), proxied: a.Way.Proxied(server)}
	if query != "" {
		if err := at.merge(query, a.Vault); err != nil {
			return place{}, refused("URLInvalid", fmt.Errorf("%w: spec.endpoint: %w", source.ErrInvalid, err))
		}
	}
	return at, nil
}

// accountOf returns the name of the account at u: its path if it has one, as
// emulators have it, or the first label of the host.
func accountOf(u *url.URL) string {
	if name := strings.Trim(u.Path, "/"); name != "" {
		name, _, _ = strings.Cut(name, "/")
		return name
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return u.Hostname()
	}
	name, _, _ := strings.Cut(u.Hostname(), ".")
	return name
}

// parameterForm is the form of names of parameters.
var parameterForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// own are the parameters of requests, which are no part of a signature.
var own = map[string]bool{"comp": true, "restype": true, "prefix": true, "marker": true, "maxresults": true, "include": true,
	"delimiter": true, "snapshot": true, "versionid": true, "startfrom": true, "timeout": true, "showonly": true}

// merge adds the shared access signature in query; what it has wins. It keeps
// the signature out of texts. The error says nothing of what it found.
func (p *place) merge(query string, vault *transport.Vault) error {
	conceal(query, vault)
	more, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("the query cannot be parsed: copy the shared access signature as it is, from sv= to the end of sig=")
	}
	if p.query == nil {
		p.query = url.Values{}
	}
	for name, values := range more {
		switch {
		case own[strings.ToLower(name)]:
			return fmt.Errorf("the query has %s, which is no part of a shared access signature: remove it", name)
		case !parameterForm.MatchString(name):
			return errors.New("the query is no shared access signature: copy that as it is, from sv= to the end of sig=, without the URL before it")
		}
		p.query[name] = values
	}
	return nil
}

// conceal keeps a query out of texts: as a whole, and its signature in every spelling.
func conceal(query string, vault *transport.Vault) {
	vault.Conceal(query)
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.EqualFold(name, "sig") {
			continue
		}
		vault.Conceal(value)
		if plain, err := url.QueryUnescape(value); err == nil {
			vault.Conceal(plain, url.QueryEscape(plain), url.PathEscape(plain))
		}
	}
}

// url returns the URL of the container, the signature included.
func (p *place) url() string {
	u := *p.server
	u.Path = strings.TrimRight(u.Path, "/") + "/" + p.container
	u.RawPath, u.RawQuery = "", p.query.Encode()
	return u.String()
}

// login is what the identity of the program is asked for.
func (p *place) login() *url.URL {
	return &url.URL{Scheme: "azblob", Host: p.server.Host, Path: "/" + p.container}
}

// private reports whether what is sent to the account is seen by nobody else:
// over TLS, or not leaving this machine.
func (p *place) private() bool { return p.server.Scheme == "https" || p.near() }

// near reports whether the account is on this machine.
func (p *place) near() bool {
	ip, err := netip.ParseAddr(p.server.Hostname())
	return !p.proxied && (p.server.Hostname() == "localhost" || err == nil && ip.IsLoopback())
}

// ofAzure is the form of hosts of accounts that Microsoft and its partners run.
var ofAzure = regexp.MustCompile(`^[a-z0-9]{3,24}(?:-secondary)?\.(?:blob\.core\.(?:windows\.net|chinacloudapi\.cn|cloudapi\.de|usgovcloudapi\.net)|z[0-9]{1,2}\.blob\.storage\.azure\.net)$`)

// vouched reports whether the account may be shown what is the machine's, and
// not of whoever wrote the object: it is Azure's, says a certificate that the system
// trusts, or on this machine.
func (p *place) vouched(a *bucket.Access) bool {
	return p.near() || p.server.Scheme == "https" && a.Way.TLS == nil && ofAzure.MatchString(strings.ToLower(p.server.Hostname()))
}
