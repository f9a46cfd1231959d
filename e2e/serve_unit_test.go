package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The unit of systemd is one that systemd takes. Only the place of the command is another.
func TestServeUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("there is no systemd here")
	}
	text := strings.ReplaceAll(read(t, "../docs/deploy/headgate-serve.service"), "/usr/local/bin/headgate", command)
	out := run(t, "systemd-analyze", "verify", "--man=no", write(t, filepath.Join(t.TempDir(), "headgate-serve.service"), text))
	if strings.Contains(out, "headgate-serve.service:") {
		t.Error(out)
	}
}
