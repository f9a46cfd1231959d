package source

import (
	"container/list"
	"net/http"
	"sync"
)

// maxTransports bounds the kinds of connections that are kept: what differs in
// trust, client certificate or proxy has its own.
const maxTransports = 64

// Connections let origins use the connections to upstreams that others have
// opened. The zero value is ready to use; with a nil one each origin opens its
// own, and closes them. It is safe for concurrent use.
type Connections struct {
	mu     sync.Mutex
	known  map[string]*list.Element // of transports, by key
	latest list.List                // transports, the one used last first
}

// A transport makes connections of one kind.
type transport struct {
	key string
	*http.Transport
}

// Transport returns the transport that is kept under key, or else that of make,
// which is kept then. The key says all that tells its connections from others,
// credentials that a request carries aside. Of more than 64 transports the one
// whose last use is the longest ago is given up; its bounds on idle connections,
// in number and time, are its own.
func (c *Connections) Transport(key string, make func() *http.Transport) *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, found := c.known[key]; found {
		c.latest.MoveToFront(e)
		return e.Value.(transport).Transport
	}
	if c.known == nil {
		c.known = map[string]*list.Element{}
	}
	t := transport{key, make()}
	c.known[key] = c.latest.PushFront(t)
	if c.latest.Len() > maxTransports {
		c.drop(c.latest.Back())
	}
	return t.Transport
}

// Close ends idle connections. Those in use end with what they are used for.
func (c *Connections) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.latest.Len() > 0 {
		c.drop(c.latest.Front())
	}
}

func (c *Connections) drop(e *list.Element) {
	t := c.latest.Remove(e).(transport)
	delete(c.known, t.key)
	t.CloseIdleConnections()
}
