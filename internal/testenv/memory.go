package testenv

import (
	"os"
	"testing"
)

// Main runs the tests of a package with temporary files in memory, see [InMemory].
// TestMain calls it.
func Main(m *testing.M) {
	defer InMemory()()
	m.Run()
}

// InMemory sets TMPDIR to a directory in memory until end is called: on a disk,
// synchronizing small files takes a third of the time of a test. It does nothing if TMPDIR
// is set, or unless a file system in memory has 2 GiB free and allows executing programs.
func InMemory() (end func()) {
	if os.Getenv("TMPDIR") != "" || !roomInMemory() {
		return func() {}
	}
	dir, err := os.MkdirTemp(memoryDir, "headgate-test")
	if err != nil {
		return func() {}
	}
	os.Chmod(dir, 0o711) // other users may enter, as with /tmp: tests set the permissions of their files
	os.Setenv("TMPDIR", dir)
	return func() {
		os.Unsetenv("TMPDIR")
		os.RemoveAll(dir)
	}
}

// memoryDir is the directory of the in-memory file system of Linux.
const memoryDir = "/dev/shm"
