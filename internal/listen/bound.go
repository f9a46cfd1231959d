package listen

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// bounds are those of the connections of a listener.
type bounds struct {
	conns      int
	perAddress int // 0 for no limit
	patience   time.Duration
	trusted    bool                // it is a socket
	admits     func(net.Conn) bool // nil for everybody
}

// A bounded listener has a bounded number of connections at a time. Those beyond
// wait, in the backlog of the system; those beyond what one address may have are
// closed at once.
type bounded struct {
	net.Listener
	bounds
	places chan struct{} // one element for each connection
	ends   func()
	ended  chan struct{}

	mu    sync.Mutex
	count map[netip.Prefix]int // connections of an address, with perAddress
}

func bound(l net.Listener, b bounds) *bounded {
	ended := make(chan struct{})
	return &bounded{
		Listener: l, bounds: b, places: make(chan struct{}, b.conns), count: make(map[netip.Prefix]int),
		ends: sync.OnceFunc(func() { close(ended) }), ended: ended,
	}
}

func (b *bounded) Close() error {
	b.ends()
	return b.Listener.Close()
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		select {
		case b.places <- struct{}{}:
		case <-b.ended:
			return nil, net.ErrClosed
		}
		raw, err := b.Listener.Accept()
		if err != nil {
			<-b.places
			return nil, err
		}
		from := Network(raw.RemoteAddr().String())
		if b.admits != nil && !b.admits(raw) || !b.enter(from) {
			raw.Close()
			<-b.places
			continue
		}
		release := sync.OnceFunc(func() {
			b.leave(from)
			<-b.places
		})
		return &conn{Conn: raw, patience: b.patience, trusted: b.trusted, release: release}, nil
	}
}

// enter counts a connection, unless its address has as many as it may.
func (b *bounded) enter(from netip.Prefix) bool {
	if b.perAddress <= 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count[from] >= b.perAddress {
		return false
	}
	b.count[from]++
	return true
}

func (b *bounded) leave(from netip.Prefix) {
	if b.perAddress <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count[from]--; b.count[from] == 0 {
		delete(b.count, from)
	}
}

// Network returns by what the client at an address, HOST:PORT, is known when
// clients are counted: its address, or for IPv6 the /64, which is the smallest
// that is given to one. It is the zero Prefix for what is no address.
func Network(addr string) netip.Prefix {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	network, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return network
}
