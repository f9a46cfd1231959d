package command_test

import (
	"net"
	"os"
	"testing"
)

// desk accepts one connection of a process and gives the lines it says; the
// channel is closed when the process is gone. The test ends the connection.
func desk(t *testing.T) (addr string, lines <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	said := make(chan string)
	go func() {
		c, err := l.Accept()
		if err != nil {
			close(said)
			return
		}
		t.Cleanup(func() { c.Close() })
		scan(c, said)
	}()
	return l.Addr().String(), said
}

func dial() (net.Conn, error) { return net.Dial("tcp", os.Getenv("ADDR")) }
