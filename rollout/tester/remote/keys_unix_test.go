//go:build unix

package remote_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Opening a pipe without a writer would block.
func TestKeyIsNoPipe(t *testing.T) {
	_, s := testServers(t)
	must(t, syscall.Mkfifo(filepath.Join(s.Keys, "pipe"), 0o600))
	if _, _, err := s.Concord(with(concordMetadata, "apiKeyPath", "pipe")); !strings.Contains(text(err), "file doesn't exist") {
		t.Error(err)
	}
}
