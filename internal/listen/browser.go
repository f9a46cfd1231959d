package listen

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// A Misdirected request is for a host that is not this machine.
type Misdirected string // the host

func (m Misdirected) Error() string { return fmt.Sprintf("the request is for the host %q", string(m)) }

// MisdirectedText is what callers are told of requests for other hosts, with 403.
const MisdirectedText = "Forbidden: callers need not say who they are here, so this answers requests for this machine alone: " +
	"call it by its IP address or as localhost, or name the host in the base URL"

// Local refuses requests for hosts that are not this machine, where that
// matters; refuse answers them. Those of a socket are for this machine.
func (l *Listener) Local(next http.Handler, refuse func(http.ResponseWriter, *http.Request, Misdirected)) http.Handler {
	if l.hosts == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if Trusted(r) || l.here(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		refuse(w, r, Misdirected(r.Host))
	})
}

// here reports whether a host that a request names is this machine.
func (l *Listener) here(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.Unmap().IsLoopback()
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") || slices.ContainsFunc(l.hosts, func(own string) bool {
		return strings.EqualFold(own, name)
	})
}
