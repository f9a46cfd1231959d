package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
)

// A server answers webhooks and counts its connections. It does as little work as
// possible, because the benchmark measures clients.
type server struct {
	url       string // of the webhook
	countsURL string // URL of the numbers of connections

	mu           sync.Mutex
	ended        *sync.Cond // signals the end of a connection
	opened, open int
	stop         []func()
}

// serve starts a server, with TLS if secure is set. It runs until close.
func serve(secure bool) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{url: "http://" + l.Addr().String() + "/"}
	s.ended = sync.NewCond(&s.mu)
	tallies := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprintln(w, s.opened, s.open)
	}))
	s.stop = []func(){tallies.Close, func() { l.Close() }}
	if secure {
		tallies.StartTLS() // creates the certificate
		l = tls.NewListener(l, &tls.Config{Certificates: tallies.TLS.Certificates})
		s.url = "https" + s.url[len("http"):]
	} else {
		tallies.Start()
	}
	s.countsURL = tallies.URL
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.count(1)
			go s.answer(conn)
		}
	}()
	return s, nil
}

var passed = []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 6\r\n\r\npassed")

// answer answers requests with a Content-Length until the client closes the
// connection.
func (s *server) answer(conn net.Conn) {
	defer s.count(-1)
	defer conn.Close()
	in := bufio.NewReader(conn)
	length := 0
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		if value, found := bytes.CutPrefix(line, []byte("Content-Length: ")); found {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return
			}
		}
		if len(bytes.TrimSpace(line)) > 0 {
			continue
		}
		if _, err := io.CopyN(io.Discard, in, int64(length)); err != nil {
			return
		}
		if _, err := conn.Write(passed); err != nil {
			return
		}
	}
}

func (s *server) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open += n
	s.opened += max(n, 0)
	s.ended.Broadcast()
}

// reset waits until all connections have ended and resets the counters.
func (s *server) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.open > 0 {
		s.ended.Wait()
	}
	s.opened = 0
}

func (s *server) close() {
	for _, stop := range s.stop {
		stop()
	}
}
