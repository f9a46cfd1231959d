package transport

import (
	"net/url"
	"strings"
	"sync/atomic"
)

// A Fence remembers the zone in which a server was found, beyond which it may
// not send us. It is safe for concurrent use.
type Fence struct {
	host string
	zone atomic.Int64
}

// notFoundYet is no zone: it is wider than each.
const notFoundYet = -1

// NewFence returns the fence of the server at u, which was not found yet.
func NewFence(u *url.URL) *Fence {
	f := &Fence{host: u.Hostname()}
	f.zone.Store(notFoundYet)
	return f
}

// Is reports whether host is that of the server.
func (f *Fence) Is(host string) bool { return strings.EqualFold(host, f.host) }

// Found notes the zone of an address of the server. The widest counts: what
// sends us elsewhere may come from any of its addresses, and a name can have
// one on this machine for nothing but to let the others pass.
func (f *Fence) Found(zone Zone) {
	for {
		now := f.zone.Load()
		if now != notFoundYet && now <= int64(zone) || f.zone.CompareAndSwap(now, int64(zone)) {
			return
		}
	}
}

// Zone returns the zone of the server; known is false before it was found.
func (f *Fence) Zone() (zone Zone, known bool) {
	zone = Zone(f.zone.Load())
	return max(zone, Public), zone != notFoundYet
}
