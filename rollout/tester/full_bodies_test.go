package tester_test

import (
	"io"
	"net"
	"strings"
	"testing"
)

// TestManySlowBodies: who has no credential cannot fill the memory with bodies that
// never end. Checks get through, and who has a longer body is told to come again.
func TestManySlowBodies(t *testing.T) {
	d := openDoor(t, func(w *doorway) { w.server.Guard = guard(t, tenants) })
	long := strings.Repeat(" ", 1<<20-1)
	meta := `{"type": "cmd", "cmd": "true", "token": "` + allToken + `"`
	status := 0
	for range 500 { // those that come when 64 are there are refused, too
		c, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1048576\r\n\r\n"+long); err != nil {
			continue // it was refused
		}
		if status = d.post("/gate/check", canary("shop", meta+`, "x": "`+strings.Repeat("x", 900<<10)+`"}`)).status; status == 503 {
			break
		}
	}
	if status != 503 {
		t.Errorf("a long body: %d", status)
	}
	d.post("/gate/check", canary("shop", meta+"}")).is(t, "a check", 403, "Forbidden")
}
