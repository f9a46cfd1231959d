package e2e

import (
	"os"
	"os/exec"
	"testing"
)

// insideEnv is set for tests that run inside a network of their own: it is the
// path of the command.
const insideEnv = "HEADGATE_E2E_COMMAND"

// inside reports whether the test runs in a network namespace where nothing but
// loopback is: servers that listen on all interfaces are nobody else's there. If
// it does not, it runs the test once more in such a namespace, and the result is
// that of this test.
func inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideEnv) != "" {
		return true
	}
	args := []string{"-n", "sh", "-c", `"$0" link set lo up && exec "$@"`, tool(t, "ip"), os.Args[0], "-test.run=^" + t.Name() + "$", "-test.v", "-test.count=1"}
	cmd := exec.CommandContext(t.Context(), tool(t, "unshare"), args...)
	cmd.Env = append(os.Environ(), insideEnv+"="+command)
	out, err := cmd.CombinedOutput()
	t.Logf("in a network of its own:\n%s", out)
	check(t, err)
	return false
}
