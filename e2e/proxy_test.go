package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// A proxy is a real proxy that wants pat and pr0xy.
type proxy struct {
	url string
	log func() string // names whom it connected to
}

// serveHTTPProxy starts tinyproxy.
func serveHTTPProxy(t *testing.T) proxy {
	t.Helper()
	addr, port := freeAddr(t)
	conf := write(t, filepath.Join(t.TempDir(), "tinyproxy.conf"),
		"Port "+port+"\nListen 127.0.0.1\nTimeout 60\nLogLevel Connect\nMaxClients 16\nBasicAuth pat pr0xy\n")
	out := start(t, exec.Command(tool(t, "tinyproxy"), "-d", "-c", conf))
	await(t, addr)
	return proxy{"http://" + addr, out.String}
}

// serveSOCKS starts microsocks.
func serveSOCKS(t *testing.T) proxy {
	t.Helper()
	addr, port := freeAddr(t)
	out := start(t, exec.Command(tool(t, "microsocks"), "-i", "127.0.0.1", "-p", port, "-u", "pat", "-P", "pr0xy"))
	await(t, addr)
	return proxy{"socks5://" + addr, out.String}
}

// serveHTTPSProxy starts a proxy of our own behind TLS: Debian has none that is small.
func serveHTTPSProxy(t *testing.T, ca *testenv.CA) proxy {
	t.Helper()
	s := testenv.ServeProxy(t, testenv.Proxy{Scheme: "https", CA: ca, Username: "pat", Password: "pr0xy"})
	return proxy{s.URL, func() string {
		all := ""
		for _, seen := range s.Seen() {
			all += seen + "\n"
		}
		return all
	}}
}
