package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/rollout"
)

// A census counts the connections of a server.
type census struct {
	mu           sync.Mutex
	opened, open int
	changed      *sync.Cond
}

func (c *census) watch(srv *httptest.Server) {
	c.changed = sync.NewCond(&c.mu)
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch state {
		case http.StateNew:
			c.opened++
			c.open++
		case http.StateClosed, http.StateHijacked:
			c.open--
		}
		c.changed.Broadcast()
	}
}

// wait returns when n connections are open.
func (c *census) wait(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.open != n {
		c.changed.Wait()
	}
}

func (c *census) seen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened
}

func count(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *census) {
	srv := httptest.NewUnstartedServer(handler)
	c := &census{}
	c.watch(srv)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv, c
}

// waitGone returns when no goroutine of a client is left.
func waitGone(t *testing.T) {
	t.Helper()
	measure.WaitGone(t, "net/http.(*persistConn)", "net/http.(*http2ClientConn)", "rollout.(*Caller)")
}

func TestCallsShareConnections(t *testing.T) {
	srv, conns := count(t, func(w http.ResponseWriter, r *http.Request) {
		var code int
		fmt.Sscanf(r.URL.Path, "/%d", &code)
		w.WriteHeader(code)
		if code != http.StatusNoContent && code != http.StatusNotModified {
			w.Write(make([]byte, 40<<10))
		}
	})
	var c rollout.Caller
	for round := range 20 {
		for _, code := range []int{200, 202, 204, 301, 304, 403, 429, 500, 503} {
			hook := rollout.Hook{Name: fmt.Sprint(round), URL: fmt.Sprintf("%s/%d", srv.URL, code), DisableTLS: round%2 == 0}
			if answer, err := c.Call(t.Context(), hook, small); answer.Status != code {
				t.Fatal(err)
			}
		}
	}
	if n := conns.seen(); n != 2 { // one for each setting
		t.Errorf("%d connections", n)
	}
	c.Close()
	conns.wait(0)
	waitGone(t)
}

// A Caller that was closed can be used, and connections in use at that time are ended after it.
func TestCloseDuringCall(t *testing.T) {
	arrived, goOn := make(chan struct{}, 1), make(chan struct{})
	srv, conns := count(t, func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-goOn })
	var c rollout.Caller
	done := make(chan error)
	go func() {
		_, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: srv.URL}, small)
		done <- err
	}()
	<-arrived
	c.Close()
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
	conns.wait(0)
	if _, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: srv.URL}, small); err != nil {
		t.Error(err)
	}
	c.Close()
	c.Close()
	conns.wait(0)
	waitGone(t)
}

// Connections are shared by the content of Secrets, not by their names, and a
// changed certificate does not use those of the one before.
func TestConnectionsByContentOfSecrets(t *testing.T) {
	ca := testenv.NewCA(t)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(r.TLS.PeerCertificates[0].Subject.CommonName))
	}))
	conns := &census{}
	conns.watch(srv)
	srv.TLS = ca.ServerConfig(true)
	srv.StartTLS()
	defer srv.Close()
	users := map[string]map[string][]byte{}
	for i := range 20 {
		cert, key := ca.Client(fmt.Sprintf("client-%d", i))
		users[fmt.Sprint(i)] = map[string][]byte{"ca.crt": ca.PEM(), "tls.crt": cert, "tls.key": key}
	}
	users["copy"] = users["0"]
	c := rollout.Caller{Secrets: func(_ context.Context, _, name string) (map[string][]byte, error) {
		if s, ok := users[name]; ok {
			return s, nil
		}
		return nil, errors.New("none")
	}}
	ask := func(name, want string) {
		t.Helper()
		answer, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: srv.URL, CertSecretRef: &rollout.SecretRef{Name: name}}, small)
		if err != nil || string(answer.Body) != want {
			t.Fatalf("got %s, %v", answer.Body, err)
		}
	}
	for _, name := range []string{"0", "copy", "0"} {
		ask(name, "client-0")
	}
	if n := conns.seen(); n != 1 {
		t.Errorf("%d connections", n)
	}
	for i := range 20 {
		ask(fmt.Sprint(i), fmt.Sprintf("client-%d", i))
	}
	conns.wait(16) // of the settings that are kept
	users["0"] = users["1"]
	ask("0", "client-1")
	c.Close()
	conns.wait(0)
	waitGone(t)
}

// The cut body of an answer costs its connection, and nothing else.
func TestCutBodyEndsConnection(t *testing.T) {
	srv, conns := count(t, func(w http.ResponseWriter, r *http.Request) { endless(w, r) })
	var c rollout.Caller
	for range 3 {
		if answer, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: srv.URL}, small); err != nil || !answer.Truncated {
			t.Fatalf("%v, %v", answer.Truncated, err)
		}
		conns.wait(0)
	}
	waitGone(t)
}

func TestConcurrentCalls(t *testing.T) {
	srv, conns := count(t, func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(r.URL.Path)) })
	var c rollout.Caller
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			path := fmt.Sprintf("/%d", i)
			hook := rollout.Hook{Name: "a", URL: srv.URL + path, DisableTLS: i%2 == 0}
			if answer, err := c.Call(t.Context(), hook, small); err != nil || string(answer.Body) != path {
				t.Errorf("got %s, %v", answer.Body, err)
			}
			if i%8 == 0 {
				c.Close()
			}
		})
	}
	all.Wait()
	c.Close()
	conns.wait(0)
	waitGone(t)
}
