package tester_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestManySlowBodies: who has no credential cannot fill the memory with bodies that
// never end, nor keep others out with them. Those that came first are refused.
func TestManySlowBodies(t *testing.T) {
	d := openDoor(t, func(w *doorway) {
		w.server.Guard = guard(t, tenants)
		w.request = time.Hour // all of them are there at once, however long they take to come
	})
	long := strings.Repeat(" ", 1<<20-1)
	meta := `{"type": "cmd", "cmd": "true", "token": "` + allToken + `"`
	var first net.Conn
	for range 80 {
		c, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if first == nil {
			first = c
		}
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1048576\r\n\r\n"+long); err != nil {
			t.Fatal(err)
		}
	}
	d.post("/gate/check", canary("shop", meta+`, "x": "`+strings.Repeat("x", 900<<10)+`"}`)).is(t, "a check with a long body", 403, "Forbidden")
	d.post("/gate/check", canary("shop", meta+"}")).is(t, "a check", 403, "Forbidden")
	first.SetReadDeadline(time.Now().Add(time.Minute))
	if got, err := http.ReadResponse(bufio.NewReader(first), nil); err != nil || got.StatusCode != 503 || got.Header.Get("Retry-After") == "" {
		t.Errorf("the first slow body: %v, %v", got, err)
	}
}
