package tester

import (
	"context"
	"errors"
	"net"
	"time"
)

// An Endpoint is the address that a test runner listens at, and what is asked
// of those who come.
type Endpoint struct {
	Addr      string        // HOST:PORT; default 127.0.0.1:8080; port 0 takes a free one
	Cert, Key string        // PEM files for TLS, both or none; read again when they change
	ClientCA  string        // PEM file; clients have to show a certificate by it
	Optional  bool          // clients without a certificate have to have a token
	Insecure  bool          // an address that others can reach needs no authentication
	MaxConns  int           // connections at a time; default 10000
	Grace     time.Duration // for requests that are under way when it ends; default 30 s
}

var errTODO = errors.New("not built yet")

// Listen begins to listen. An address that is not of this machine alone is
// refused unless callers have to say who they are, or e.Insecure.
func (s *Server) Listen(ctx context.Context, e Endpoint) (*Listener, error) { return nil, errTODO }

// A Listener is where a test runner can be reached.
type Listener struct {
	URL string // as http://127.0.0.1:8080

	listener net.Listener
}

// Serve serves until ctx ends, and then ends gracefully: new work is refused,
// runs are stopped and recorded, and callers that wait get their answers.
func (l *Listener) Serve(ctx context.Context) error { return errTODO }
