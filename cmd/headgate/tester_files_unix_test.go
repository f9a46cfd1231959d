//go:build unix

package main

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// A file that whoever started the test runner left open does not reach programs.
func TestKeepFiles(t *testing.T) {
	fd, err := syscall.Open(os.DevNull, syscall.O_WRONLY, 0) // not close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	write := func() error { return exec.Command("sh", "-c", "echo secret >/dev/fd/"+strconv.Itoa(fd)).Run() }
	if err := write(); err != nil {
		t.Skip("/dev/fd: ", err)
	}
	keepFiles()
	if write() == nil {
		t.Error("a program has a file of the process that started the test runner")
	}
}
