package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
)

// A server answers webhooks and counts its connections.
type server struct {
	url     string // of the webhook
	tallies string // the URL that tells the numbers of connections

	mu           sync.Mutex
	opened, open int
	stop         []func()
}

// serve runs a server, with TLS or without, until its close.
func serve(secure bool) *server {
	s := &server{}
	hooks := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "passed")
	}))
	hooks.Config.ConnState = s.count
	if secure {
		hooks.StartTLS()
	} else {
		hooks.Start()
	}
	tallies := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprintln(w, s.opened, s.open)
	}))
	s.url, s.tallies = hooks.URL, tallies.URL
	s.stop = []func(){hooks.Close, tallies.Close}
	return s
}

func (s *server) count(_ net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.opened++
		s.open++
	case http.StateClosed:
		s.open--
	}
}

// reset begins to count anew, when the connections of the contestant before have ended.
func (s *server) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = s.open
}

func (s *server) close() {
	for _, stop := range s.stop {
		stop()
	}
}
