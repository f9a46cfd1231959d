package artifact_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate-io/headgate/artifact"
)

// TestChildFiles is not a test by itself: it opens temporary files until that fails.
func TestChildFiles(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		return
	}
	s, err := artifact.OpenStore(artifact.StoreConfig{Dir: dir})
	must(t, err)
	limit := syscall.Rlimit{Cur: 64, Max: 64}
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	var open []*os.File
	for err == nil {
		var f *os.File
		f, err = s.Temp()
		open = append(open, f)
	}
	fmt.Println(len(open), err)
}

// A process that reaches its limit of open files gets an error.
func TestManyFiles(t *testing.T) {
	cmd, lines := startChild(t, "TestChildFiles", t.TempDir())
	if !lines.Scan() || !strings.Contains(lines.Text(), "too many open files") {
		t.Errorf("%q", lines.Text())
	}
	for lines.Scan() { // until it ends
	}
	must(t, cmd.Wait())
}
