package traffic_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// The test binary is the command that the tests run: PROGRAM says which.
func TestMain(m *testing.M) {
	if name := os.Getenv("PROGRAM"); name != "" {
		syscall.Exit(programs[name]()) // at once: under the race detector os.Exit waits for a second
	}
	os.Exit(m.Run())
}

var programs = map[string]func() int{
	"arguments":   func() int { fmt.Print(strings.Join(os.Args[1:], "|")); return 0 },
	"environment": func() int { fmt.Print(strings.Join(os.Environ(), "|")); return 0 },
	"print":       func() int { fmt.Print(os.Getenv("TEXT")); return 0 },
	// exit ends with the code and the last words that it is given.
	"exit": func() int {
		var code int
		fmt.Sscan(os.Getenv("CODE"), &code)
		fmt.Fprint(os.Stderr, os.Getenv("TEXT"))
		return code
	},
	"much": func() int {
		much := make([]byte, 1<<20)
		for range 64 {
			os.Stdout.Write(much)
			os.Stderr.Write(make([]byte, 1<<10))
		}
		return 0
	},
	"hang": hang,
	"fork": func() int {
		child := exec.Command(os.Args[0])
		child.Env = []string{"PROGRAM=hang", "ADDR=" + os.Getenv("ADDR")}
		if err := child.Start(); err != nil {
			return 1
		}
		return hang()
	},
}

// hang keeps a connection to ADDR until the process is killed.
func hang() int {
	conn, err := net.Dial("tcp", os.Getenv("ADDR"))
	if err != nil {
		return 1
	}
	fmt.Fprintln(conn, "up")
	io.Copy(io.Discard, conn)
	return 0
}

// self is the test binary.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
