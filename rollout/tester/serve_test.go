package tester_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

const payloadPrefix = `{"name": "podinfo", "namespace": "shop", "phase": "Progressing", "checksum": "abc"`

// TestRebinding shows what a page can do whose host name resolves to this machine.
func TestRebinding(t *testing.T) {
	d := startServer(t, func(w *serverSetup) { w.server.BaseURL = "https://Tests.Example.com/base" })
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
	if got := d.post("/", payloadPrefix+`, "metadata": {"type": "bash", "cmd": "echo here"}}`, "Host", "attacker.example.com"); got.status != 403 || len(d.Server.Runs.Runs(api.Filter{}, nil)) != 0 {
		t.Errorf("a task for another host: %+v", got)
	}
	d.log.wait(t, `"reason":"host"`, "attacker.example.com")

	guarded := startServer(t, func(w *serverSetup) { w.server.Guard = guard(t, oneCaller) })
	guarded.token = "0123456789abcdef-ci"
	guarded.call(http.MethodGet, "/gate/approve", payloadPrefix+"}", "Host", "tester.shop.svc").expect(t, "with a token, by the name of a service", 200, "OK")
	insecure := startServer(t, func(w *serverSetup) { w.Insecure = true })
	insecure.call(http.MethodGet, "/gate/approve", "", "Host", "tester.shop.svc").expect(t, "insecure, by the name of a service", 200, "OK")
}

// TestHeaders shows that an endless header is refused.
func TestHeaders(t *testing.T) {
	d := startServer(t, nil)
	d.call(http.MethodGet, "/healthz", "", "X-Long", strings.Repeat("x", 63<<10)).expect(t, "a long head", 200, "OK")
	c, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
	must(t, err)
	defer c.Close()
	go io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: "+strings.Repeat("x", 1<<20)) // it never ends
	if res, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil && res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a head that is too long: %s", res.Status)
	}
}

// TestGracefulEnd ends a test runner while a caller waits, another streams, and
// another keeps a connection.
func TestGracefulEnd(t *testing.T) {
	d := startServer(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"/api/v1/watch", nil)
	must(t, err)
	stream, err := client.Do(req)
	must(t, err)
	defer stream.Body.Close()
	waits := make(chan reply, 1)
	go func() { waits <- d.post("/", payloadPrefix+`, "metadata": {"type": "bash", "cmd": "sleep 600"}}`) }()
	d.log.wait(t, "run started")
	testenv.Equal(t, d.end(), nil)
	got := <-waits
	got.expect(t, "the caller that waited", 503, "")
	if got.header.Get("Retry-After") == "" {
		t.Errorf("it was not told to come again: %v", got.header)
	}
	if _, err := io.ReadAll(stream.Body); err != nil {
		t.Errorf("the stream: %v", err)
	}
	d.log.wait(t, `"msg":"run ended"`, `"state":"stopped"`)
	testenv.Equal(t, d.call(http.MethodGet, "/healthz", "").status, 0, "afterwards")
}

// TestStreamEndsWithItsToken shows that a watch ends when its token is removed from the
// file.
func TestStreamEndsWithItsToken(t *testing.T) {
	var clockOffset atomic.Int64
	callers := file(t, []byte(oneCaller))
	d := startServer(t, func(w *serverSetup) {
		g, err := httpserve.OpenGuard(httpserve.Config{File: callers, Now: func() time.Time { return time.Now().Add(time.Duration(clockOffset.Load())) }})
		must(t, err)
		w.server.Guard, w.server.Keepalive = g, time.Millisecond
	})
	stream := get(t, d.url+"/api/v1/watch", "Authorization", "Bearer 0123456789abcdef-ci")
	lines := bufio.NewReader(stream.Body)
	for range 10 {
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	must(t, os.WriteFile(callers, []byte("tokens: [{name: other, token: 0123456789abcdef-other}]"), 0o600))
	clockOffset.Store(int64(time.Minute))
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Error(err)
	}
}

// guard returns a guard with a file of callers.
func guard(t *testing.T, callers string) *tester.Guard {
	t.Helper()
	g, err := tester.OpenGuard(file(t, []byte(callers)), false, nil)
	must(t, err)
	return g
}

const oneCaller = "tokens: [{name: ci, token: 0123456789abcdef-ci}]"

// TestExposure shows at which addresses a test runner listens (S-10).
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
		"[::127.0.0.1]:0":          true, // not a loopback address
		"[64:ff9b::127.0.0.1]:0":   true,
		"[fd00::1]:0":              true,
		"255.255.255.255:0":        true,
		"[0000:0000::0000:0001]:0": false,
	} {
		l, err := new(tester.Server).Listen(tester.Endpoint{Addr: addr})
		testenv.Equal(t, errors.Is(err, tester.ErrExposed), exposed, "%s: %v; exposed", addr, err)
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
		l, err := s.server.Listen(s.Endpoint)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		l.Close()
	}
}

func TestListenErrors(t *testing.T) {
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
		l, err := new(tester.Server).Listen(tt.e)
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
	must(t, os.WriteFile(name, content, 0o600))
	return name
}

// pipeListener is a listener of connections that a test makes.
type pipeListener struct {
	conns chan net.Conn
	ctx   context.Context
}

func (p pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ctx.Done():
		return nil, net.ErrClosed
	}
}
func (pipeListener) Close() error   { return nil }
func (pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// TestSlowBodies shows that a connection ends if its body does not arrive, for every
// path, with and without a credential.
func TestSlowBodies(t *testing.T) {
	g := guard(t, tenants)
	for _, head := range []string{
		"POST /healthz", "POST /health", "GET /ui/", "GET /metrics", "POST /gate/approve", "POST /gate/check", "POST /",
		"POST /launch-test", "POST /api/v1/session", "POST /link/none", "POST /?token=wrong",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t)
			s.Guard = g
			ctx, cancel := context.WithCancel(t.Context())
			server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: time.Second}
			listener := pipeListener{make(chan net.Conn), ctx}
			ended := make(chan struct{})
			go func() { defer close(ended); server.Serve(listener) }()
			clientEnd, serverEnd := net.Pipe()
			listener.conns <- serverEnd
			began := time.Now()
			go io.WriteString(clientEnd, head+" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{")
			clientEnd.SetReadDeadline(began.Add(time.Hour))
			if _, err := io.Copy(io.Discard, bufio.NewReader(clientEnd)); err != nil {
				t.Errorf("%s: %v", head, err)
			}
			if took := time.Since(began); took > 31*time.Second {
				t.Errorf("%s: the connection was kept for %s", head, took)
			}
			clientEnd.Close()
			cancel()
			<-ended
			server.Close()
		})
	}
}

// A stuckWriter accepts nothing: a write blocks until its deadline.
type stuckWriter struct {
	header http.Header

	mu       sync.Mutex
	deadline time.Time
}

func (s *stuckWriter) Header() http.Header { return s.header }
func (s *stuckWriter) WriteHeader(int)     {}
func (s *stuckWriter) FlushError() error   { _, err := s.Write(nil); return err }

func (s *stuckWriter) SetWriteDeadline(at time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = at
	return nil
}

func (s *stuckWriter) Write([]byte) (int, error) {
	s.mu.Lock()
	left := time.Until(s.deadline)
	if s.deadline.IsZero() {
		left = 24 * time.Hour
	}
	s.mu.Unlock()
	time.Sleep(left) // of the bubble's clock
	return 0, os.ErrDeadlineExceeded
}

// TestStuckReader shows that a client that reads nothing is cut off after half a minute.
func TestStuckReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		for range 50 {
			k := api.Key{Kind: api.KindGate, Namespace: "test", Name: "podinfo", Gate: time.Now().String()}
			if _, err := s.Gates.Change("open", k, api.Change{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		for _, path := range []string{"/api/v1/watch", "/api/v1/gates", "/healthz"} {
			began := time.Now()
			s.Handler().ServeHTTP(&stuckWriter{header: http.Header{}}, httptest.NewRequest(http.MethodGet, path, nil))
			testenv.Equal(t, time.Since(began), 30*time.Second, "%s: cut off after", path)
		}
	})
}

// A deadlineRecorder records its write deadline.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	deadline  time.Time
	deadlines []time.Time
}

func (a *deadlineRecorder) SetWriteDeadline(at time.Time) error {
	a.deadlines = append(a.deadlines, at)
	a.deadline = at
	return nil
}

// TestDeadlineOfEachAnswer shows that the next answer on the same connection gets a
// deadline of its own.
func TestDeadlineOfEachAnswer(t *testing.T) {
	handler := newServer(t).Handler()
	a := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	long := payload("long", `{"type":"bash","cmd":"head -c 5000 /dev/zero | tr '\\0' x","returnCmdOutput":"true"}`)
	handler.ServeHTTP(a, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(long)))
	if a.deadline.IsZero() {
		t.Error("a long answer has no deadline")
	}
	a.deadline = time.Now()
	handler.ServeHTTP(a, httptest.NewRequest(http.MethodPost, "/gate/check", strings.NewReader("{}")))
	if time.Until(a.deadline) < time.Second {
		t.Error("it holds for the next")
	}
	a.deadlines = nil
	expecting := httptest.NewRequest(http.MethodPost, "/gate/approve", strings.NewReader("{}"))
	expecting.Header.Set("Expect", "100-continue")
	if handler.ServeHTTP(a, expecting); len(a.deadlines) == 0 || !a.deadlines[0].IsZero() {
		t.Errorf("what tells to go on has the deadline of the answer before: %v", a.deadlines)
	}
}

// TestManySlowBodies: a client without a credential cannot fill the memory with bodies that
// never end, nor block checks with them. Too many of them are refused.
func TestManySlowBodies(t *testing.T) {
	d := startServer(t, func(w *serverSetup) { w.server.Guard = guard(t, tenants) })
	long := strings.Repeat(" ", 1<<20-1)
	meta := `{"type": "cmd", "cmd": "true", "token": "` + allToken + `"`
	const slow = 80 // 64 fit
	answers := make(chan int, slow)
	for range slow {
		c, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
		must(t, err)
		defer c.Close()
		go func() {
			io.WriteString(c, "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1048576\r\n\r\n"+long)
			if got, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
				answers <- got.StatusCode
			}
		}()
	}
	testenv.Equal(t, <-answers, 503, "a slow body")
	d.post("/gate/check", namespacePayload("shop", meta+"}")).expect(t, "a check", 403, "Forbidden")
}
