package rollout_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
)

// authority hands out Secrets with as many settings as are asked for: all have the
// CA and none the same bytes.
func authority(ca *testenv.CA) rollout.Secrets {
	return func(_ context.Context, _, name string) (map[string][]byte, error) {
		return map[string][]byte{"ca.crt": append(ca.PEM(), "# "+name...)}, nil
	}
}

// busyOnce answers the first request with 503.
func busyOnce(t *testing.T, ca *testenv.CA, http2 bool) (*httptest.Server, *census) {
	asked := 0
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprint(w, "said")
	}))
	conns := &census{}
	conns.watch(srv)
	srv.TLS, srv.EnableHTTP2 = ca.ServerConfig(false), http2
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv, conns
}

// The connections of a call ended by Close, or forgotten for others, between two of
// its attempts end with the call.
func TestConnectionsOfAttemptsAfterClose(t *testing.T) {
	ca := testenv.NewCA(t)
	hook := func(srv *httptest.Server, name string) rollout.Hook {
		return rollout.Hook{Name: "a", URL: srv.URL, CertSecretRef: &rollout.SecretRef{Name: name}}
	}
	for name, end := range map[string]func(*testing.T, *rollout.Caller){
		"closed": func(_ *testing.T, c *rollout.Caller) { c.Close() },
		"forgotten": func(t *testing.T, c *rollout.Caller) {
			other, _ := count(t, func(http.ResponseWriter, *http.Request) {})
			for i := range 16 {
				if _, err := c.Call(t.Context(), hook(other, fmt.Sprint(i)), small); err != nil {
					t.Error(err)
				}
			}
		},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", name, http2), func(t *testing.T) {
				srv, conns := busyOnce(t, ca, http2)
				c := &rollout.Caller{Secrets: authority(ca)}
				c.KeepIdle()
				c.Wait = func(context.Context, time.Duration) error { end(t, c); return nil }
				first := hook(srv, "first")
				first.Retries = 1
				if _, err := c.Call(t.Context(), first, small); err != nil {
					t.Fatal(err)
				}
				conns.wait(0)
				c.Close()
				waitGone(t)
			})
		}
	}
}

// Idle connections of the setting that was not used for longest end when there are too many settings.
func TestForgottenSettings(t *testing.T) {
	ca := testenv.NewCA(t)
	srv, conns := busyOnce(t, ca, false)
	c := &rollout.Caller{Secrets: authority(ca), Wait: new(waits).wait}
	c.KeepIdle()
	defer c.Close()
	other, _ := count(t, func(http.ResponseWriter, *http.Request) {})
	for i := range 17 {
		hook := rollout.Hook{Name: "a", URL: other.URL, Retries: 1, CertSecretRef: &rollout.SecretRef{Name: fmt.Sprint(i)}}
		if i == 0 {
			hook.URL = srv.URL
		}
		if _, err := c.Call(t.Context(), hook, small); err != nil {
			t.Fatal(err)
		}
	}
	conns.wait(0)
}
