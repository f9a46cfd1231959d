package tester_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

const body = `{"name": "podinfo", "namespace": "shop", "phase": "Progressing", "checksum": "abc"`

// TestRebinding shows what a page can do that has its name lead here.
func TestRebinding(t *testing.T) {
	d := openDoor(t, func(w *doorway) { w.server.BaseURL = "https://Tests.Example.com/base" })
	port := d.url[strings.LastIndex(d.url, ":"):]
	for host, want := range map[string]int{
		"127.0.0.1" + port: 200, "127.1.2.3": 200, "localhost": 200, "LOCALHOST.:1": 200, "tester.localhost": 200, "[::1]:8080": 200, "[::ffff:127.0.0.1]": 200,
		"tests.example.com": 200, "attacker.example.com": 403, "attacker.example.com" + port: 403, "localhost.attacker.example.com": 403,
		"127.0.0.1.attacker.example.com": 403, "192.0.2.1": 403, "0.0.0.0" + port: 403, "2130706433": 403, "xlocalhost": 403,
	} {
		for _, path := range []string{"/healthz", "/gate/approve", "/api/v1/gates", "/metrics"} {
			if got := d.call(http.MethodGet, path, "", "Host", host); got.status != want {
				t.Errorf("host %s: %s: %d %s, want %d", host, path, got.status, got.body, want)
			}
		}
	}
	if got := d.post("/", body+`, "metadata": {"type": "bash", "cmd": "echo here"}}`, "Host", "attacker.example.com"); got.status != 403 || len(d.Server.Runs.Runs(api.Filter{})) != 0 {
		t.Errorf("a task for another host: %+v", got)
	}
	d.log.wait(t, `"reason":"host"`, "attacker.example.com")

	asked := openDoor(t, func(w *doorway) { w.server.Guard = guard(t, oneCaller) })
	asked.token = "0123456789abcdef-ci"
	asked.call(http.MethodGet, "/gate/approve", body+"}", "Host", "tester.shop.svc").is(t, "with a token, by the name of a service", 200, "OK")
	insecure := openDoor(t, func(w *doorway) { w.Insecure = true })
	insecure.call(http.MethodGet, "/gate/approve", "", "Host", "tester.shop.svc").is(t, "insecure, by the name of a service", 200, "OK")
}

// TestHeaders shows that a head without end is refused.
func TestHeaders(t *testing.T) {
	d := openDoor(t, nil)
	d.call(http.MethodGet, "/healthz", "", "X-Long", strings.Repeat("x", 63<<10)).is(t, "a long head", 200, "OK")
	c, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: "+strings.Repeat("x", 1<<20)) // it has no end
	if res, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil && res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a head that is too long: %s", res.Status)
	}
}

// TestGracefulEnd ends a test runner while a caller waits, another streams, and
// another keeps a connection.
func TestGracefulEnd(t *testing.T) {
	d := openDoor(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"/api/v1/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	waits := make(chan reply, 1)
	go func() { waits <- d.post("/", body+`, "metadata": {"type": "bash", "cmd": "sleep 600"}}`) }()
	d.log.wait(t, "run started")
	if err := d.end(); err != nil {
		t.Error(err)
	}
	got := <-waits
	got.is(t, "the caller that waited", 503, "")
	if got.header.Get("Retry-After") == "" {
		t.Errorf("it was not told to come again: %v", got.header)
	}
	if _, err := io.ReadAll(stream.Body); err != nil {
		t.Errorf("the stream: %v", err)
	}
	d.log.wait(t, `"msg":"run ended"`, `"state":"stopped"`)
	if got := d.call(http.MethodGet, "/healthz", ""); got.status != 0 {
		t.Errorf("afterwards: %+v", got)
	}
}

func TestHealth(t *testing.T) {
	d := openDoor(t, func(w *doorway) { w.server.Guard = guard(t, oneCaller) })
	for _, path := range []string{"/healthz", "/readyz"} {
		got := d.call(http.MethodGet, path, "")
		if got.is(t, path, 200, "OK"); got.body != "OK" || got.header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s: %+v", path, got)
		}
		d.call(http.MethodHead, path, "").is(t, "HEAD "+path, 200, "")
	}
	if err := d.Gates.Close(); err != nil {
		t.Fatal(err)
	}
	d.call(http.MethodGet, "/readyz", "").is(t, "without its gates", 503, "the store of gates cannot be used")
	d.call(http.MethodGet, "/healthz", "").is(t, "without its gates", 200, "OK")
}

// TestStreamEndsWithItsToken shows that nobody watches on with a token that was
// taken away.
func TestStreamEndsWithItsToken(t *testing.T) {
	var later atomic.Int64
	callers := file(t, []byte(oneCaller))
	d := openDoor(t, func(w *doorway) {
		g, err := httpserve.OpenGuard(httpserve.Config{File: callers, Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }})
		if err != nil {
			t.Fatal(err)
		}
		w.server.Guard, w.server.Keepalive = g, time.Millisecond
	})
	stream := get(t, d.url+"/api/v1/watch", "Authorization", "Bearer 0123456789abcdef-ci")
	lines := bufio.NewReader(stream.Body)
	for range 10 {
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(callers, []byte("tokens: [{name: other, token: 0123456789abcdef-other}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	later.Store(int64(time.Minute))
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Error(err)
	}
}
