package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// TestTerminal checks what a transfer draws on a terminal, and that nothing is
// drawn without a transfer or with -q.
func TestTerminal(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: tree("one")})
	server := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	store := filepath.Join(t.TempDir(), "store")
	fetch := func(args ...string) string {
		args = append([]string{"fetch", server.Repo(), "--name", "repo", "--store", store}, args...)
		return captureTerminal(t, func(tty *os.File) { run(t.Context(), args, strings.NewReader(""), io.Discard, tty, os.LookupEnv) })
	}
	left := func(drawn string) string { // lines that remain on the terminal
		lines := strings.SplitAfter(drawn, "\n")
		for i, line := range lines {
			if at := strings.LastIndex(line, "\x1b[K"); at >= 0 {
				lines[i] = line[at+len("\x1b[K"):]
			}
		}
		return strings.Join(lines, "")
	}
	stays := regexp.MustCompile(`^GitRepository/default/repo: receiving objects \d.*/s\r\n$`)
	if got := fetch(); !stays.MatchString(left(got)) {
		t.Errorf("the first run draws %q", got)
	}
	testenv.Equal(t, left(fetch()), "", "a run without a transfer draws")
	repo.Commit(testenv.Commit{Branch: "main", Files: tree("two")})
	testenv.Equal(t, fetch("-q"), "", "a quiet run draws")
	repo.Commit(testenv.Commit{Branch: "main", Files: tree("three")})
	server.Break(&testenv.Defect{Phase: testenv.Pack, Do: testenv.Cut, After: 200})
	if got := fetch(); !strings.Contains(got, "GitRepository/default/repo: ") {
		t.Errorf("a run that fails draws %q", got)
	}
}

// TestWaiting checks what a meter prints without a terminal while objects are in
// progress.
func TestWaiting(t *testing.T) {
	var out bytes.Buffer
	var objects []source.Object
	for _, name := range []string{"a", "b", "c"} {
		objects = append(objects, &source.Bucket{Header: source.Header{Kind: "Bucket", Metadata: source.Metadata{Name: name}}})
	}
	m := newMeter(&out, false, objects)
	m.show(source.Progress{Object: "bucket/default/a", Phase: "asking s3.example.org/a"})
	m.show(source.Progress{Object: "bucket/default/b", Phase: "receiving index", Done: 3 << 20, Unit: "bytes"})
	m.tick()
	m.stop()
	lines := strings.Split(out.String(), "\n")
	want := regexp.MustCompile(`^0 of 3 done; Bucket/default/a: asking s3.example.org/a; Bucket/default/b: receiving index 3.0 MiB, \d.*B/s$`)
	if lines[0] != "Bucket/default/b: receiving index" || !want.MatchString(lines[1]) {
		t.Errorf("it says %q", lines)
	}
}

// TestColours checks that READY is coloured on a terminal, but not with NO_COLOR.
func TestColours(t *testing.T) {
	for colour, want := range map[string]string{"": "\x1b[32mTrue\x1b[0m  stored", "1": "  True  stored"} {
		p := &program{lookupEnv: func(name string) (string, bool) { return colour, name == "NO_COLOR" }}
		got := captureTerminal(t, func(tty *os.File) {
			p.stdout = tty
			testenv.Equal(t, p.table(false).print([]string{"Bucket/default/a", "True", "stored"}), nil)
		})
		if !strings.Contains(got, want) {
			t.Errorf("NO_COLOR=%s: %q", colour, got)
		}
	}
}

// captureTerminal calls use with a terminal and returns the output.
func captureTerminal(t *testing.T, use func(tty *os.File)) string {
	t.Helper()
	control, tty := openTerminal(t)
	drawn := make(chan string)
	go func() {
		b, _ := io.ReadAll(control) // ends with EIO when the terminal is closed
		drawn <- string(b)
	}()
	use(tty)
	must(t, tty.Close())
	return <-drawn
}

// openTerminal opens a pseudoterminal and returns both of its ends.
func openTerminal(t *testing.T) (control, tty *os.File) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { control.Close() })
	var locked, number int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &locked, syscall.TIOCGPTN: &number} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, control.Fd(), request, uintptr(unsafe.Pointer(value))); errno != 0 {
			t.Fatal(errno)
		}
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	return control, tty
}

// TestTerminalGoesAway checks that a server whose controlling terminal, which is
// also its log, is closed ends cleanly, as after SIGTERM.
func TestTerminalGoesAway(t *testing.T) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // if this process ignores SIGHUP, the server would inherit that
	control, tty := openTerminal(t)
	server := exec.Command("headgate", "tester", "--addr", "127.0.0.1:0")
	server.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	server.Stdin, server.Stderr = tty, tty
	server.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	out, err := server.StdoutPipe()
	must(t, errors.Join(err, server.Start(), tty.Close()))
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, " at http") {
		server.Process.Kill()
		t.Errorf("it printed %q, %v", line, err)
	}
	testenv.Equal(t, errors.Join(control.Close(), server.Wait()), nil)
}
