package testenv

import (
	"os"
	"testing"
)

// Main runs the tests of a package as [InMemory] says. It is what TestMain calls.
func Main(m *testing.M) {
	defer InMemory()()
	m.Run()
}

// InMemory makes the directory of temporary files one in memory until the function that
// it returns is called: on a disk, small files that are synchronized take a third of the
// time of a test. It does nothing where TMPDIR is set, or where no file system in memory
// has 2 GiB left and lets programs be executed.
func InMemory() (end func()) {
	if os.Getenv("TMPDIR") != "" || !roomInMemory() {
		return func() {}
	}
	dir, err := os.MkdirTemp(memory, "headgate-test")
	if err != nil {
		return func() {}
	}
	os.Chmod(dir, 0o711) // as below /tmp, tests open to other users what they may use
	os.Setenv("TMPDIR", dir)
	return func() {
		os.Unsetenv("TMPDIR")
		os.RemoveAll(dir)
	}
}

// memory is where Linux has its file system in memory.
const memory = "/dev/shm"
