package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/headgate-io/headgate/internal/durable"
)

// Main runs the tests of a package as [InMemory] says. It is what TestMain calls.
func Main(m *testing.M) {
	defer InMemory()()
	m.Run()
}

// InMemory makes the directory of temporary files one in memory until the function that
// it returns is called: on a disk, small files that are synchronized take a third of the
// time of a test. It does nothing where TMPDIR is set, or where memory has no file
// system of 2 GiB in which programs can be executed.
func InMemory() (end func()) {
	size, err := durable.VolumeSize("/dev/shm")
	if runtime.GOOS != "linux" || os.Getenv("TMPDIR") != "" || err != nil || size < 2<<30 {
		return func() {}
	}
	dir, err := os.MkdirTemp("/dev/shm", "headgate-test")
	if err != nil {
		return func() {}
	}
	os.Chmod(dir, 0o711) // as below /tmp, tests open to other users what they may use
	probe := filepath.Join(dir, "probe")
	if os.WriteFile(probe, []byte("#!/bin/sh\n"), 0o755) != nil || exec.Command(probe).Run() != nil || os.Remove(probe) != nil {
		os.RemoveAll(dir)
		return func() {}
	}
	os.Setenv("TMPDIR", dir)
	return func() {
		os.Unsetenv("TMPDIR")
		os.RemoveAll(dir)
	}
}
