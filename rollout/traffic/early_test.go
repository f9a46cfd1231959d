package traffic_test

import (
	"bufio"
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// hasty is a server that answers before the body is there.
func hasty(t *testing.T) string {
	return "http://" + testenv.Listen(t, func(c net.Conn) {
		if req, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
			io.Copy(io.Discard, req.Body)
		}
	})
}

// An answer that comes before the end of the body arrives, and says that the
// connection ends with it: what still comes is not taken for another request.
func TestEarlyAnswer(t *testing.T) {
	for name, test := range map[string]struct{ begin, rest string }{
		"known length": {"Content-Length: 10\r\n\r\nhello", "world"},
		"chunks":       {"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &traffic.Proxy{Primary: hasty(t), Canary: "http://127.0.0.1:1"}
			t.Cleanup(p.Close)
			var said bytes.Buffer
			server := httptest.NewUnstartedServer(p)
			server.Config.ErrorLog = log.New(&said, "", 0)
			server.Start()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\n"+test.begin)
			answers := bufio.NewReader(conn)
			resp, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusRequestEntityTooLarge || string(body) != "no" || err != nil || !resp.Close {
				t.Errorf("%s, %q, %v, %v", resp.Status, body, resp.Header, err)
			}
			io.WriteString(conn, test.rest+"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			if n, _ := io.Copy(io.Discard, answers); n > 0 {
				t.Errorf("%d bytes more", n)
			}
			conn.Close()
			server.Close()
			if strings.Contains(said.String(), "panic") {
				t.Error(said.String())
			}
		})
	}
}

// A connection that an upstream upgrades unasked is closed.
func TestUpgradeThatNobodyAskedFor(t *testing.T) {
	gone := make(chan error)
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n")
		_, err = conn.Read(make([]byte, 1))
		gone <- err
	})
	for name, start := range map[string]rollout.Routes{"502 no answer": {Canary: 100}, "primary": mirrored} {
		p := &traffic.Proxy{Canary: server.URL, Start: start}
		if got := ask(t, front(t, p).URL); got != name {
			t.Errorf("got %q", got)
		}
		if err := <-gone; err == nil {
			t.Error("something was sent")
		}
	}
}
