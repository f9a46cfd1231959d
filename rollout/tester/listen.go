package tester

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/internal/listen"
	"github.com/headgate-io/headgate/rollout/tester/access"
)

// An Endpoint is the address that a test runner listens at, and what is asked
// of those who come.
type Endpoint struct {
	Addr      string        // HOST:PORT; default 127.0.0.1:8080; port 0 takes a free one
	Cert, Key string        // PEM files for TLS, both or none; read again when they change
	ClientCA  string        // PEM file; clients have to show a certificate by it
	Optional  bool          // clients without a certificate have to have a token
	Insecure  bool          // an address that others can reach needs no authentication
	MaxConns  int           // connections at a time, those beyond wait; default 10000
	Grace     time.Duration // for runs and answers when it ends; default 30 s
}

const (
	defaultAddr  = "127.0.0.1:8080"
	defaultGrace = 30 * time.Second
)

// ErrExposed is an address that others can reach, of a test runner that asks nobody who it is.
var ErrExposed = listen.ErrExposed

// A Listener is where a test runner can be reached.
type Listener struct {
	URL string // as http://127.0.0.1:8080

	server   *Server
	listener *listen.Listener
	grace    time.Duration
	request  time.Duration // for a request to come, its head and its body
}

// Listen begins to listen. An address that is not of this machine alone is
// refused with [ErrExposed], unless callers have to say who they are or
// e.Insecure is set. Without authentication an address of this machine answers
// only requests for this machine, or for the host of BaseURL: pages of other
// sites can make a browser come here under a name of their own.
func (s *Server) Listen(ctx context.Context, e Endpoint) (*Listener, error) {
	l, err := listen.Open(ctx, listen.Config{
		Addr: cmp.Or(e.Addr, defaultAddr),
		TLS: access.TLS{Cert: e.Cert, Key: e.Key, ClientCA: e.ClientCA, Optional: e.Optional,
			Warn: func(err error) { s.logger().Error("certificates", "problem", err.Error()) }},
		Asks: s.Guard.Required(), Insecure: e.Insecure, BaseURL: s.BaseURL, MaxConns: e.MaxConns,
	})
	if err != nil {
		return nil, err
	}
	return &Listener{URL: l.URL, server: s, listener: l, grace: cmp.Or(e.Grace, defaultGrace), request: bodyTime}, nil
}

// Serve serves until ctx ends, and then ends gracefully: new work is refused,
// runs are stopped and recorded, and callers that wait get their answers. What
// takes longer than Grace is cut off, with an error.
func (l *Listener) Serve(ctx context.Context) error {
	return listen.Service{
		Handler: l.listener.Local(l.server.handler(0), l.server.refuseMisdirected),
		Request: l.request,
		Grace:   l.grace,
		Problem: func(text string) { l.server.logger().Warn("connection", "problem", text) },
		Stop:    l.server.Shutdown, // which has the callers that wait answered
	}.Serve(ctx, l.listener)
}

// Close ends the listening of one that does not serve.
func (l *Listener) Close() error { return l.listener.Close() }

// refuseMisdirected answers a request for a host that is not this machine.
func (s *Server) refuseMisdirected(w http.ResponseWriter, r *http.Request, host listen.Misdirected) {
	access.Take(r) // before its path is logged
	s.observeDenial(r, host)
	answer.Text(w, http.StatusForbidden, listen.MisdirectedText)
}
