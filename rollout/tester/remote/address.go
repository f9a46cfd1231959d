package remote

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/headgate-io/headgate/internal/origin"
	"github.com/headgate-io/headgate/internal/zone"
)

// A server is one that may be asked.
type server struct {
	url *url.URL // base; its path has no slash at the end

	// How the host was allowed tells which of its addresses may be connected to.
	literal bool // by its address
	pattern bool // by a pattern alone
}

// at returns the URL of a path, which is escaped, below the base.
func (s server) at(path string) *url.URL { return s.url.JoinPath(path) }

// parse reads the URL of a server.
func parse(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("it cannot be read") // the cause holds the text, and with it a password
	case u.User != nil:
		return nil, fmt.Errorf("it has user information: use the keys for credentials")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("it must begin with http:// or https://")
	case u.Hostname() == "":
		return nil, fmt.Errorf("it has no host")
	case strings.Contains(u.Hostname(), "%"):
		return nil, fmt.Errorf("it has an address with a zone")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return nil, fmt.Errorf("it has a query or a fragment")
	}
	return u, nil
}

// server returns the one that metadata names, or else the configured one, if it
// may be asked.
func (s *Servers) server(text, configured string) (server, error) {
	u, err := parse(cmp.Or(text, configured))
	if err != nil {
		return server{}, err
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	_, err = netip.ParseAddr(host)
	to := server{url: u, literal: err == nil}
	if own, err := parse(configured); err == nil && origin.Of(own) == origin.Of(u) {
		return to, nil
	}
	for _, entry := range s.Hosts {
		name, port := splitHost(entry)
		if port != "" && port != portOf(u) {
			continue
		}
		if isHost(name, host) {
			to.pattern = false
			return to, nil
		}
		below, ok := strings.CutPrefix(name, "*.")
		to.pattern = to.pattern || ok && !to.literal && strings.HasSuffix(host, "."+below)
	}
	if !to.pattern {
		return server{}, fmt.Errorf("host %s is not one that may be asked: see --hosts", bounded(u.Host, nil))
	}
	return to, nil
}

// isHost reports whether two spellings of a host mean the same one.
func isHost(a, b string) bool {
	one, err := netip.ParseAddr(a)
	other, wrong := netip.ParseAddr(b)
	return a == b || err == nil && wrong == nil && one == other
}

// splitHost returns host and port of an entry of Hosts, as they are compared.
func splitHost(entry string) (host, port string) {
	host = entry
	if h, p, err := net.SplitHostPort(entry); err == nil {
		host, port = h, p
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.TrimSuffix(strings.ToLower(host), "."), port
}

func portOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return port
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

// judge returns an error when an address of the server must not be connected to.
func (s server) judge(ip netip.Addr) error {
	if s.literal || zone.Of(ip) != zone.Link || ip.Unmap().IsLoopback() && !s.pattern {
		return nil
	}
	return fmt.Errorf("address %s: %s has %s: allow that address itself if it is meant", ip, s.url.Hostname(), zone.Link)
}
