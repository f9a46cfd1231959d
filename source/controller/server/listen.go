package server

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"time"

	credentials "github.com/headgate-io/headgate/internal/access"
	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/internal/listen"
)

// An Endpoint is where a server listens, and what is asked of those who come.
type Endpoint struct {
	Addr       string        // HOST:PORT; default 127.0.0.1:9090; port 0 takes a free one
	Socket     string        // path of a socket of mode 0600, whose callers may do everything; "" for none
	Cert, Key  string        // PEM files for TLS, both or none; read again when they change
	ClientCA   string        // PEM file; clients have to show a certificate by it
	Optional   bool          // clients without a certificate have to have a token
	Insecure   bool          // an address that others can reach needs no authentication
	MaxConns   int           // connections at a time, those beyond wait; default 10000
	PerAddress int           // connections of one address at a time, those beyond are refused; default no limit
	Grace      time.Duration // for answers when it ends; default 30 s
}

const (
	defaultAddr  = "127.0.0.1:9090"
	defaultGrace = 30 * time.Second
	requestTime  = 30 * time.Second // for a request to come, its head and its body
)

// Errors of Listen.
var (
	ErrExposed = listen.ErrExposed // others can reach the address, and nobody has to say who it is
	ErrRunning = listen.ErrRunning // another server listens at the socket
)

// A Listener is where a server can be reached.
//
// The ResponseWriter of its requests sends files by sendfile: between it and
// the store there may only be wrappers that keep io.ReaderFrom, as that of
// package answer does. A client that takes nothing for 30 seconds is dropped, one
// that is slow and lives is not, however long its download takes.
type Listener struct {
	URL string // as http://127.0.0.1:9090

	server *Server
	tcp    *listen.Listener
	socket net.Listener // nil for none
	grace  time.Duration
}

// Listen begins to listen. It needs no more of the server than Guard, BaseURL
// and Log, so that the URL is known before there is a store.
//
// An address that is not of this machine alone is refused with [ErrExposed],
// unless callers have to say who they are or e.Insecure is set. Without
// authentication an address of this machine answers only requests for this
// machine, or for the host of BaseURL: pages of other sites can make a browser
// come here under a name of their own.
//
// A socket that a killed server left is replaced; when its server runs the error
// wraps [ErrRunning].
func (s *Server) Listen(ctx context.Context, e Endpoint) (*Listener, error) {
	l := &Listener{server: s, grace: cmp.Or(e.Grace, defaultGrace)}
	if e.Socket != "" {
		socket, err := listen.Socket(e.Socket)
		if err != nil {
			return nil, err
		}
		l.socket = socket
	}
	tcp, err := listen.Open(ctx, listen.Config{
		Addr: cmp.Or(e.Addr, defaultAddr),
		TLS: listen.TLS{Cert: e.Cert, Key: e.Key, ClientCA: e.ClientCA, Optional: e.Optional,
			Warn: func(err error) { s.logger().Error("certificates", "problem", err.Error()) }},
		Asks: s.Guard.Required(), Insecure: e.Insecure, BaseURL: s.BaseURL, MaxConns: e.MaxConns, PerAddress: e.PerAddress,
	})
	if err != nil {
		l.Close()
		return nil, err
	}
	l.tcp, l.URL = tcp, tcp.URL
	return l, nil
}

// Serve serves until ctx ends, and then ends gracefully: nobody new is let in,
// streams end, and callers that wait get their answers. What takes longer than
// Grace is cut off, with an error. The socket is removed.
func (l *Listener) Serve(ctx context.Context) error {
	at := []net.Listener{l.tcp}
	if l.socket != nil {
		at = append(at, l.socket)
	}
	return listen.Service{
		Handler: l.tcp.Local(l.server.Handler(), l.server.refuseMisdirected),
		Request: requestTime,
		Grace:   l.grace,
		Stop:    l.server.Shutdown,
		Problem: func(text string) { l.server.logger().Warn("connection", "problem", text) },
	}.Serve(ctx, at...)
}

// Close ends the listening of one that does not serve.
func (l *Listener) Close() error {
	var err error
	if l.tcp != nil {
		err = l.tcp.Close()
	}
	if l.socket != nil {
		err = cmp.Or(err, l.socket.Close())
	}
	return err
}

// refuseMisdirected answers a request for a host that is not this machine.
func (s *Server) refuseMisdirected(w http.ResponseWriter, r *http.Request, host listen.Misdirected) {
	credentials.Take(r) // before its path is logged
	s.observeDenial(r, host)
	answer.Text(w, http.StatusForbidden, listen.MisdirectedText)
}
