package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// listening returns a front before h.
func listening(t *testing.T, h http.HandlerFunc, warn func(error)) *front {
	t.Helper()
	f := &frontFlags{listen: "127.0.0.1:0", drain: time.Minute}
	s, err := f.serve(h, func(err error) { t.Error(err) }, warn)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestProxyParting loses no request of clients that keep their connections open.
func TestProxyParting(t *testing.T) {
	const clients, rounds = 8, 20
	for range rounds {
		s := listening(t, func(http.ResponseWriter, *http.Request) {}, func(err error) { t.Error(err) })
		var begun, all sync.WaitGroup
		var lost atomic.Int64
		begun.Add(clients)
		for range clients {
			all.Go(func() {
				begin := sync.OnceFunc(begun.Done)
				defer begin()
				c, err := net.Dial("tcp", s.listener.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				for answers := bufio.NewReader(c); ; begin() {
					if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"); err != nil {
						lost.Add(1)
						return
					}
					resp, err := http.ReadResponse(answers, nil)
					if err != nil {
						lost.Add(1)
						return
					}
					if resp.Close {
						return
					}
				}
			})
		}
		begun.Wait()
		if err := s.close(t.Context()); err != nil {
			t.Error(err)
		}
		all.Wait()
		if n := lost.Load(); n > 0 {
			t.Fatalf("%d of %d clients lost a request", n, clients)
		}
	}
}

// TestProxyServerErrors: what the server says goes where warnings go, a line at a time.
func TestProxyServerErrors(t *testing.T) {
	told := make(chan error, 10)
	s := listening(t, func(http.ResponseWriter, *http.Request) { panic("boom") }, func(err error) { told <- err })
	if resp, err := http.Get("http://" + s.listener.Addr().String()); err == nil {
		resp.Body.Close()
		t.Error("answered")
	}
	if err := <-told; !strings.HasPrefix(err.Error(), "--proxy: panic serving 127.0.0.1:") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%q", err)
	}
	if err := s.close(t.Context()); err != nil {
		t.Error(err)
	}
}
