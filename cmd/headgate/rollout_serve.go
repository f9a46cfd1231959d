package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A front is a proxy that listens.
type front struct {
	server   *http.Server
	listener net.Listener
	drain    time.Duration
	ended    chan struct{} // closed when it listens no more

	mu      sync.Mutex
	open    int           // connections
	leaving bool          // it ends
	empty   chan struct{} // closed when it has no connection; nil while it may get one
}

// parting is how long clients that keep their connections open are waited for:
// the answer to their next request tells them that the connection ends. One
// that is sent while the connection is closed is lost. It is a number of turns,
// so that on a machine that stood still they have theirs.
const (
	partingTurns = 20
	partingTurn  = 50 * time.Millisecond
)

// serve begins to listen. When that fails later, broken is told; warn is told
// what the server has to say about its connections.
func (f *frontFlags) serve(proxy http.Handler, broken, warn func(error)) (*front, error) {
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return nil, fmt.Errorf("--proxy: %w", err)
	}
	s := &front{listener: l, drain: f.drain, ended: make(chan struct{})}
	s.server = &http.Server{
		Handler: s.farewell(proxy), ConnState: s.count, ErrorLog: log.New(warner(warn), "", 0),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 256 << 10,
	}
	go func() {
		defer close(s.ended)
		if err := s.server.Serve(l); !s.ends() {
			broken(&brokenError{fmt.Errorf("--proxy: %w", err)})
		}
	}()
	return s, nil
}

// A warner is told what is written to it, a line or more at a time.
type warner func(error)

func (warn warner) Write(text []byte) (int, error) {
	line, _, _ := strings.Cut(string(text), "\n") // a panic has a stack below
	warn(fmt.Errorf("--proxy: %s", strings.TrimPrefix(line, "http: ")))
	return len(text), nil
}

// farewell lets the answers to requests that come while it ends tell that the
// connection does, too. One that becomes another protocol's ends by itself.
func (s *front) farewell(proxy http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if s.ends() && req.Header.Get("Upgrade") == "" {
			w.Header().Set("Connection", "close")
		}
		proxy.ServeHTTP(w, req)
	})
}

// part waits for clients until there is no connection, or no time.
func part(ctx context.Context, empty <-chan struct{}) {
	for range partingTurns {
		select {
		case <-empty:
			return
		case <-ctx.Done():
			return
		case <-time.After(partingTurn):
		}
	}
}

func (s *front) ends() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaving
}

// count counts connections.
func (s *front) count(_ net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.open++
	case http.StateClosed, http.StateHijacked:
		if s.open--; s.open == 0 && s.empty != nil {
			close(s.empty)
		}
	}
}

// leave ends what listens. The channel is closed when all connections are.
func (s *front) leave() (empty <-chan struct{}, err error) {
	s.mu.Lock()
	s.leaving = true
	s.mu.Unlock()
	err = s.listener.Close()
	<-s.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	s.empty = make(chan struct{})
	if s.open == 0 {
		close(s.empty)
	}
	return s.empty, err
}

// close ends it when the requests that it has are answered.
func (s *front) close(ctx context.Context) error {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drain)
	defer cancel()
	empty, closed := s.leave()
	part(grace, empty)
	if err := s.server.Shutdown(grace); err != nil {
		return errors.Join(closed, fmt.Errorf("--proxy: requests that took longer than %s were cut off", s.drain), s.server.Close())
	}
	return closed
}
