//go:build unix

package task_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// The test binary is the program that the tests run: PROGRAM says which.
func TestMain(m *testing.M) {
	if name := os.Getenv("PROGRAM"); name != "" {
		syscall.Exit(programs[name]()) // at once: under the race detector os.Exit waits for a second
	}
	os.Exit(m.Run())
}

var programs = map[string]func() int{
	"env":    func() int { return show(os.Environ()) },
	"much":   much,
	"hold":   hold,
	"deaf":   func() int { signal.Ignore(syscall.SIGTERM); return hold() }, // to being asked to end
	"polite": polite,
	"await":  func() int { c, err := dial("await"); return read(c, err) }, // until another is up
}

// much writes 16 MiB.
func much() int {
	for range 16 {
		if _, err := os.Stdout.Write(make([]byte, 1<<20)); err != nil {
			return 1
		}
	}
	return 0
}

func show(lines []string) int {
	for _, line := range lines {
		fmt.Println(line)
	}
	return 0
}

// hold says that it is up, and lives on until somebody ends it.
func hold() int {
	c, err := dial("up " + strconv.Itoa(os.Getpid()))
	return read(c, err)
}

// polite says a last word when it is asked to end.
func polite() int {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	c, err := dial("up " + strconv.Itoa(os.Getpid()))
	if err != nil {
		return 1
	}
	defer c.Close()
	<-asked
	<-time.After(50 * time.Millisecond) // it takes its time
	fmt.Println("summary")
	return 0
}

func dial(line string) (net.Conn, error) {
	c, err := net.Dial("tcp", os.Getenv("ADDR"))
	if err == nil {
		fmt.Fprintln(c, line)
	}
	return c, err
}

func read(c net.Conn, err error) int {
	if err != nil {
		return 1
	}
	io.Copy(io.Discard, c)
	return 0
}

// desk gives the IDs of processes that say they are up, and each of them again
// when the process is gone. A process that awaits another is let go when one is up.
func desk(t *testing.T) (addr string, up, gone <-chan int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	upped, left, first := make(chan int, 1000), make(chan int, 1000), make(chan struct{})
	go func() {
		for one := false; ; {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			s := bufio.NewScanner(c)
			var pid int
			if s.Scan(); s.Text() == "await" {
				go func() { <-first; c.Close() }()
				continue
			}
			fmt.Sscanf(s.Text(), "up %d", &pid)
			if !one {
				one = true
				close(first)
			}
			upped <- pid
			go func() { s.Scan(); left <- pid }()
		}
	}()
	return l.Addr().String(), upped, left
}

// patience is when a test gives up, rather than hang.
const patience = time.Minute

// take receives the ID of a process.
func take(t *testing.T, from <-chan int) int {
	t.Helper()
	select {
	case pid := <-from:
		return pid
	case <-time.After(patience):
		t.Fatal("nothing comes")
		return 0
	}
}

func terminate(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}
