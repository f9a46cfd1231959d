package notify_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/notify"
)

// TestHandshakeHangs: a server, or a proxy, that takes connections and says nothing has none left soon after the
// post, whereas net/http goes on to connect when a request has ended.
func TestHandshakeHangs(t *testing.T) {
	for _, test := range []struct{ address, proxy string }{{"https://SILENT", ""}, {"http://chat.invalid", "https://SILENT"}} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if c, err := listener.Accept(); err == nil {
				cancel()
				io.Copy(io.Discard, c)
			}
		}()
		p := provider(notify.Slack, strings.Replace(test.address, "SILENT", listener.Addr().String(), 1))
		p.Spec.Proxy = strings.Replace(test.proxy, "SILENT", listener.Addr().String(), 1)
		n := &notify.Notifier{Provider: p}
		if err := n.Post(ctx, message()); err == nil {
			t.Errorf("%+v: no error", test)
		}
		defer n.Close()
		<-ended // or the test does not end
	}
}

// TestNoConnectionLeft ends the connections of posts that were answered, also those of a server that speaks HTTP/2.
func TestNoConnectionLeft(t *testing.T) {
	var open sync.WaitGroup
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.EnableHTTP2 = true
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Done()
		}
	}
	server.StartTLS()
	defer server.Close()
	p := provider(notify.Slack, server.URL)
	p.Spec.CertSecretRef = &rollout.SecretRef{Name: "tls"}
	secrets := vault(map[string]map[string]string{"tls": {"ca.crt": pair(t, server)["ca.crt"]}})
	for range 100 {
		n := &notify.Notifier{Timeout: time.Hour, Provider: p, Secrets: secrets}
		if err := n.Post(t.Context(), message()); err != nil {
			t.Fatal(err)
		}
		n.Close()
	}
	open.Wait()
}
