package tester_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester"
)

// guard returns a guard that wants tokens.
func guard(t *testing.T, callers string) *tester.Guard {
	t.Helper()
	g, err := tester.OpenGuard(file(t, []byte(callers)), false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

const oneCaller = "tokens: [{name: ci, token: 0123456789abcdef-ci}]"

// TestExposure shows where a test runner listens (S-10).
func TestExposure(t *testing.T) {
	for addr, exposed := range map[string]bool{
		"127.0.0.1:0":              false,
		"127.8.9.1:0":              false,
		"localhost:0":              false,
		"[::1]:0":                  false,
		"[::ffff:127.0.0.1]:0":     false,
		":0":                       true,
		"0.0.0.0:0":                true,
		"[::]:0":                   true,
		"[::ffff:0.0.0.0]:0":       true,
		"[0:0:0:0:0:ffff:0:0]:0":   true,
		"[::ffff:192.0.2.1]:0":     true,
		"192.0.2.1:0":              true,
		"169.254.169.254:0":        true,
		"[fe80::1%lo]:0":           true,
		"[2001:db8::7f00:1]:0":     true,
		"[::127.0.0.1]:0":          true, // which is no loopback address
		"[64:ff9b::127.0.0.1]:0":   true,
		"[fd00::1]:0":              true,
		"255.255.255.255:0":        true,
		"[0000:0000::0000:0001]:0": false,
	} {
		l, err := new(tester.Server).Listen(t.Context(), tester.Endpoint{Addr: addr})
		if exposed != errors.Is(err, tester.ErrExposed) {
			t.Errorf("%s: %v; exposed is %t", addr, err, exposed)
		}
		if l != nil {
			l.Close()
		}
	}
	for name, s := range map[string]struct {
		server *tester.Server
		tester.Endpoint
	}{
		"with tokens":         {&tester.Server{Guard: guard(t, oneCaller)}, tester.Endpoint{Addr: ":0"}},
		"because it is asked": {&tester.Server{}, tester.Endpoint{Addr: ":0", Insecure: true}},
	} {
		l, err := s.server.Listen(t.Context(), s.Endpoint)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		l.Close()
	}
}

func TestListenAtNothing(t *testing.T) {
	cert, key := certificate(t, testenv.NewCA(t))
	for name, tt := range map[string]struct {
		e    tester.Endpoint
		want string
	}{
		"no port":                  {tester.Endpoint{Addr: "127.0.0.1"}, "want HOST:PORT"},
		"a URL":                    {tester.Endpoint{Addr: "http://127.0.0.1:80"}, "want HOST:PORT"},
		"IPv6 without brackets":    {tester.Endpoint{Addr: "::1:80"}, "want HOST:PORT"},
		"a port that is none":      {tester.Endpoint{Addr: "127.0.0.1:http"}, "want a number"},
		"a port that is too high":  {tester.Endpoint{Addr: "127.0.0.1:65536"}, "want a number"},
		"half a certificate":       {tester.Endpoint{Cert: cert}, "go together"},
		"the other half":           {tester.Endpoint{Key: key}, "go together"},
		"a CA without TLS":         {tester.Endpoint{ClientCA: cert}, "need TLS"},
		"optional without a CA":    {tester.Endpoint{Cert: cert, Key: key, Optional: true}, "need a CA"},
		"a guard that looks away":  {tester.Endpoint{Cert: cert, Key: key, ClientCA: cert}, "nothing says who has them"},
		"a key that is none":       {tester.Endpoint{Cert: cert, Key: cert}, "with key"},
		"a CA that is none":        {tester.Endpoint{Cert: cert, Key: key, ClientCA: key}, "no certificate in PEM"},
		"a file that is not there": {tester.Endpoint{Cert: cert + "x", Key: key}, "no such file"},
	} {
		if tt.e.Addr == "" {
			tt.e.Addr = "127.0.0.1:0"
		}
		l, err := new(tester.Server).Listen(t.Context(), tt.e)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if l != nil {
			l.Close()
		}
	}
}

// certificate writes a certificate of ca for 127.0.0.1, and returns the names of its files.
func certificate(t *testing.T, ca *testenv.CA) (cert, key string) {
	t.Helper()
	certPEM, keyPEM := ca.Server("127.0.0.1")
	return file(t, certPEM), file(t, keyPEM)
}

// file writes a file and returns its name.
func file(t *testing.T, content []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
