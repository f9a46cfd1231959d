package tester_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestManySlowBodies: who has no credential cannot fill the memory with bodies that
// never end, nor keep checks out with them. Those that are too many are refused.
func TestManySlowBodies(t *testing.T) {
	d := openDoor(t, func(w *doorway) {
		w.server.Guard = guard(t, tenants)
	})
	long := strings.Repeat(" ", 1<<20-1)
	meta := `{"type": "cmd", "cmd": "true", "token": "` + allToken + `"`
	const slow = 80 // 64 fit
	answers := make(chan int, slow)
	for range slow {
		c, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			io.WriteString(c, "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1048576\r\n\r\n"+long)
			if got, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
				answers <- got.StatusCode
			}
		}()
	}
	if got := <-answers; got != 503 {
		t.Errorf("a slow body: %d", got)
	}
	d.post("/gate/check", canary("shop", meta+"}")).is(t, "a check", 403, "Forbidden")
}
