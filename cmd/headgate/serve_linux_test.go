package main

import (
	"bufio"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// TestServeLog checks that an error of net/http becomes a line of the log. The
// server may open fewer files than there are connections, so accepting fails.
func TestServeLog(t *testing.T) {
	c := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -n 24 && exec headgate artifact serve --store "$0" --addr 127.0.0.1:0`, t.TempDir())
	stdout, err := c.StdoutPipe()
	must(t, err)
	stderr, err := c.StderrPipe()
	must(t, err)
	must(t, c.Start())
	first, err := bufio.NewReader(stdout).ReadString('\n')
	_, addr, found := strings.Cut(strings.TrimSpace(first), " at http://")
	if !found {
		t.Fatalf("%q: %v", first, err)
	}
	for range 40 {
		conn, err := net.Dial("tcp", addr)
		must(t, err)
		defer conn.Close()
	}
	line, err := bufio.NewReader(stderr).ReadString('\n')
	if !strings.Contains(line, `level=WARN msg=connection problem="Accept error: `) {
		t.Errorf("%q: %v", line, err)
	}
	testenv.Equal(t, c.Process.Kill(), nil)
	c.Wait()
}
