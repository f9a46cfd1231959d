package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/headgate-io/headgate/internal/testenv"
)

// TestTerminal shows what a transfer draws on a terminal, and that nothing is
// drawn where nothing is transferred or nobody wants to see it.
func TestTerminal(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: tree("one")})
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
	store := filepath.Join(t.TempDir(), "store")
	fetch := func(args ...string) string {
		args = append([]string{"fetch", server.Repo(), "--store", store}, args...)
		return onTerminal(t, func(tty *os.File) { run(t.Context(), args, strings.NewReader(""), io.Discard, tty, os.LookupEnv) })
	}
	const bar = "GitRepository/default/repo received ["
	if got := fetch(); strings.Count(got, bar) != 1 || !strings.HasSuffix(got, "]\r\n") {
		t.Errorf("the first run draws %q", got)
	}
	if got := fetch(); got != "" {
		t.Errorf("a run without a transfer draws %q", got)
	}
	repo.Commit(testenv.Commit{Branch: "main", Files: tree("two")})
	if got := fetch("-q"); got != "" {
		t.Errorf("a quiet run draws %q", got)
	}
	repo.Commit(testenv.Commit{Branch: "main", Files: tree("three")})
	server.Break(&testenv.Defect{Phase: testenv.Pack, Do: testenv.Cut, After: 200})
	if got := fetch(); !strings.Contains(got, "GitRepository/default/repo: ") || strings.Contains(got, bar) {
		t.Errorf("a run that fails draws %q", got)
	}
}

// onTerminal returns what use writes to a terminal.
func onTerminal(t *testing.T, use func(tty *os.File)) string {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	var locked, number int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &locked, syscall.TIOCGPTN: &number} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, control.Fd(), request, uintptr(unsafe.Pointer(value))); errno != 0 {
			t.Fatal(errno)
		}
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	drawn := make(chan string)
	go func() {
		b, _ := io.ReadAll(control) // ends with EIO when the terminal is closed
		drawn <- string(b)
	}()
	use(tty)
	if err := tty.Close(); err != nil {
		t.Fatal(err)
	}
	return <-drawn
}
