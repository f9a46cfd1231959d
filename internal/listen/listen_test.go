package listen_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/listen"
)

// A door is a service that serves.
type door struct {
	url      string
	problems func() string
	end      func() error
}

// open serves at a port of this machine until the test ends.
func open(t *testing.T, c listen.Config, s listen.Service, also ...net.Listener) door {
	t.Helper()
	if c.Addr == "" {
		c.Addr = "127.0.0.1:0"
	}
	l, err := listen.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var said bytes.Buffer
	s.Problem = func(text string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(&said, text)
	}
	s.Handler = l.Local(s.Handler, func(w http.ResponseWriter, _ *http.Request, _ listen.Misdirected) {
		http.Error(w, "misdirected", http.StatusForbidden)
	})
	if s.Grace == 0 {
		s.Grace = time.Minute
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, append(also, l)...) }()
	d := door{url: l.URL, end: sync.OnceValue(func() error { cancel(); return <-ended })}
	d.problems = func() string { mu.Lock(); defer mu.Unlock(); return said.String() }
	t.Cleanup(func() {
		if err := d.end(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d door) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "trusted %t", listen.Trusted(r)) })

// ask sends a request as it is written and returns the whole answer.
func ask(t *testing.T, c net.Conn, request string) string {
	t.Helper()
	io.WriteString(c, request)
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Error(err)
	}
	return string(answer)
}

// TestHosts has requests for other hosts refused where nobody has to say who it
// is: a page of another site made a browser come here under its own name.
func TestHosts(t *testing.T) {
	closed := open(t, listen.Config{BaseURL: "https://Sources.example.com/base"}, listen.Service{Handler: ok})
	asks := open(t, listen.Config{Asks: true}, listen.Service{Handler: ok})
	for host, here := range map[string]bool{
		"localhost": true, "LOCALHOST.:80": true, "a.localhost": true, "127.0.0.1:1": true, "[::1]": true, "127.9.9.9": true, "sources.example.com": true,
		"evil.example": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "192.0.2.1": false, "0.0.0.0": false, "2130706433": false,
	} {
		for d, want := range map[*door]bool{&closed: here, &asks: true} {
			answer := ask(t, d.dial(t), "GET / HTTP/1.1\r\nConnection: close\r\nHost: "+host+"\r\n\r\n")
			if strings.Contains(answer, " 200 OK") != want {
				t.Errorf("%s, callers say who they are: %t: %.60q", host, d == &asks, answer)
			}
		}
	}
}

// TestSlowRequests ends connections of requests that do not come: slow loris.
func TestSlowRequests(t *testing.T) {
	whole := func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
	}
	d := open(t, listen.Config{}, listen.Service{Handler: http.HandlerFunc(whole), Request: 50 * time.Millisecond})
	for _, begin := range []string{"", "GET", "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n1"} {
		c := d.dial(t)
		io.WriteString(c, begin)
		answer, _ := io.ReadAll(c) // or a reset, when what came was not read in time
		if strings.Contains(string(answer), " 200 OK") {
			t.Errorf("%q is answered: %q", begin, answer)
		}
	}
}

func TestLargeHeads(t *testing.T) {
	d := open(t, listen.Config{}, listen.Service{Handler: ok})
	for name, head := range map[string]string{
		"one header":   "X: " + strings.Repeat("a", 80<<10),
		"many headers": strings.Repeat("X: a\r\n", 20_000),
	} {
		c := d.dial(t)
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n\r\n", head)
		answer := make([]byte, 12)
		io.ReadFull(c, answer) // the rest may be lost: the server does not read all that was sent
		if got := string(answer); got != "HTTP/1.1 431" && got != strings.Repeat("\x00", 12) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestManyConnections has connections beyond the bound wait, and those beyond
// what an address may have end.
func TestManyConnections(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
	first := func(c net.Conn) string {
		io.WriteString(c, get)
		buf := make([]byte, 15)
		n, _ := io.ReadFull(c, buf)
		return string(buf[:n])
	}
	d := open(t, listen.Config{MaxConns: 2}, listen.Service{Handler: ok})
	a, b, waits := d.dial(t), d.dial(t), d.dial(t)
	for _, c := range []net.Conn{a, b} {
		if got := first(c); got != "HTTP/1.1 200 OK" {
			t.Fatalf("within the bound: %q", got)
		}
	}
	answered := make(chan string)
	go func() { answered <- first(waits) }()
	a.Close()
	if got := <-answered; got != "HTTP/1.1 200 OK" {
		t.Errorf("when there is a place: %q", got)
	}
	d = open(t, listen.Config{PerAddress: 2}, listen.Service{Handler: ok})
	a, b = d.dial(t), d.dial(t)
	for _, c := range []net.Conn{a, b} {
		if got := first(c); got != "HTTP/1.1 200 OK" {
			t.Fatalf("within what an address may have: %q", got)
		}
	}
	if got := first(d.dial(t)); got != "" {
		t.Errorf("beyond what an address may have: %q", got)
	}
	a.Close()
	for first(d.dial(t)) == "" { // until the server knows that it is closed
		runtime.Gosched()
	}
}

func TestNetwork(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.7:80": "192.0.2.7/32", "[::ffff:192.0.2.7]:80": "192.0.2.7/32", "[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64",
		"@": "invalid Prefix", "": "invalid Prefix", "host:80": "invalid Prefix",
	} {
		if got := listen.Network(addr).String(); got != want {
			t.Errorf("%q: %s, want %s", addr, got, want)
		}
	}
}

// TestProblems has what clients send reach the log on one line, without control characters.
func TestProblems(t *testing.T) {
	d := open(t, listen.Config{}, listen.Service{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a\x1b[31m\nb https://user:secret@host/") })})
	ask(t, d.dial(t), "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	d.end()
	if said := d.problems(); strings.Count(said, "\n") != 1 || strings.Contains(said, "\x1b") || strings.Contains(said, "secret") || !strings.Contains(said, "panic serving") {
		t.Errorf("the log: %q", said)
	}
}

// TestFloodOfProblems has who can connect fill no log.
func TestFloodOfProblems(t *testing.T) {
	d := open(t, listen.Config{}, listen.Service{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("defect") })})
	for range 100 {
		ask(t, d.dial(t), "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	}
	if lines := strings.Count(d.problems(), "\n"); lines < 20 || lines > 60 {
		t.Errorf("%d lines", lines)
	}
}

// TestGrace lets answers end that have begun, and cuts off what takes too long.
func TestGrace(t *testing.T) {
	begun, goOn := make(chan bool), make(chan bool)
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { begun <- true; <-goOn; io.WriteString(w, "done") })
	stopped := make(chan bool)
	d := open(t, listen.Config{}, listen.Service{Handler: slow, Stop: func(context.Context) error { close(stopped); return nil }})
	answer := make(chan string)
	go func() { answer <- ask(t, d.dial(t), "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") }()
	<-begun
	ended := make(chan error)
	go func() { ended <- d.end() }()
	<-stopped
	goOn <- true
	if got := <-answer; !strings.HasSuffix(got, "done") {
		t.Errorf("an answer that had begun: %q", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}

	l, err := listen.Open(t.Context(), listen.Config{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		ended <- listen.Service{Handler: slow, Grace: time.Millisecond, Problem: func(string) {}}.Serve(ctx, l)
	}()
	go http.Get(l.URL)
	<-begun
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "answers took longer than 1ms") {
		t.Errorf("a handler that does not end: %v", err)
	}
	goOn <- true
}

func TestSocket(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes are of Unix")
	}
	path := filepath.Join(t.TempDir(), strings.Repeat("long", 30), "serve.sock") // longer than sockets may be called
	if runtime.GOOS != "linux" {
		path = filepath.Join(t.TempDir(), "s")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return listen.DialSocket(ctx, path)
	}}}
	if _, err := client.Get("http://headgate/"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a server: %v", err)
	}
	for range 2 { // the second time the lock is there
		socket, err := listen.Socket(path)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info, err)
		}
		if _, err := listen.Socket(path); !errors.Is(err, listen.ErrRunning) || !strings.Contains(err.Error(), "another server is running") {
			t.Errorf("a second server: %v", err)
		}
		d := open(t, listen.Config{}, listen.Service{Handler: ok}, socket)
		for url, want := range map[string]string{"http://evil.example/": "trusted true", d.url: "trusted false"} {
			c := client
			if url == d.url {
				c = http.DefaultClient
			}
			res, err := c.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if string(body) != want {
				t.Errorf("%s: %q, want %q", url, body, want)
			}
		}
		if err := d.end(); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Dir(path) + "/*"); len(left) != 1 || left[0] != path+".lock" {
			t.Errorf("it leaves %q", left)
		}
	}
}

// TestStaleSockets has what a killed server left replaced, and nothing else.
func TestStaleSockets(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes are of Unix")
	}
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if err := os.Mkdir(stale+".new", 0o700); err != nil { // it was killed when it began
		t.Fatal(err)
	}
	socket, err := listen.Socket(stale)
	if err != nil {
		t.Fatalf("a socket that was left: %v", err)
	}
	socket.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen.Socket(file); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file: %v", err)
	}
	if text, _ := os.ReadFile(file); string(text) != "kept" {
		t.Errorf("the file is %q", text)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := listen.Socket(stale); err == nil || !strings.Contains(err.Error(), "everybody may write") {
		t.Errorf("in a directory of everybody: %v", err)
	}
}
