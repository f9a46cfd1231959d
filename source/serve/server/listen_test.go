package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/source/serve/access"
	"github.com/headgate-io/headgate/source/serve/server"
)

// tokens returns a guard that wants tokens.
func tokens(t *testing.T) *access.Guard {
	t.Helper()
	name := filepath.Join(t.TempDir(), "callers.yaml")
	if err := os.WriteFile(name, []byte("tokens: [{name: ci, token: 0123456789abcdef-ci}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := access.Open(access.Config{File: name})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestExposure shows where a server listens: its rule is that of package listen.
func TestExposure(t *testing.T) {
	for name, tt := range map[string]struct {
		server *server.Server
		e      server.Endpoint
		want   string
	}{
		"all addresses":       {&server.Server{}, server.Endpoint{Addr: ":0"}, "nobody"},
		"because it is asked": {&server.Server{}, server.Endpoint{Addr: ":0", Insecure: true}, ""},
		"with tokens":         {&server.Server{Guard: tokens(t)}, server.Endpoint{Addr: ":0"}, ""},
		"of this machine":     {&server.Server{}, server.Endpoint{Addr: "127.0.0.1:0"}, ""},
		"half a certificate":  {&server.Server{}, server.Endpoint{Addr: "127.0.0.1:0", Cert: "x"}, "go together"},
	} {
		l, err := tt.server.Listen(t.Context(), tt.e)
		if tt.want == "nobody" != errors.Is(err, server.ErrExposed) || tt.want == "go together" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if l != nil {
			l.Close()
		}
	}
}

// TestListen serves at an address and at a socket, until it ends.
func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	e := server.Endpoint{Addr: "127.0.0.1:0"}
	if runtime.GOOS != "windows" {
		e.Socket = path
	}
	l, err := new(server.Server).Listen(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	if e.Socket != "" {
		if _, err := new(server.Server).Listen(t.Context(), e); !errors.Is(err, server.ErrRunning) {
			t.Errorf("a second server: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error)
	go func() { ended <- l.Serve(ctx) }()
	ask := func(c *http.Client, host string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, l.URL+"/nothing", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		res, err := c.Do(req)
		if err != nil {
			return err.Error()
		}
		defer res.Body.Close()
		io.Copy(io.Discard, res.Body)
		return res.Status[:3]
	}
	tcp := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if a, b := ask(tcp, ""), ask(tcp, "evil.example"); a != "404" || b != "403" {
		t.Errorf("at the address: %s, of another host %s", a, b)
	}
	if e.Socket != "" {
		unix := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return httpserve.DialSocket(ctx, path)
		}}}
		if got := ask(unix, "evil.example"); got != "404" {
			t.Errorf("at the socket: %s", got)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}
