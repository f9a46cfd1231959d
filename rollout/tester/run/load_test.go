//go:build unix

package run_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
	programs "github.com/headgate-io/headgate/rollout/tester/task"
)

// stayers is a command line of processes that would stay: one in the background,
// one that ignores to be asked, one that reads from it. All hold a pipe open.
const stayers = `exec 9>"$PIPE"; echo up; sleep 1000 & (trap '' TERM; sleep 1000; sleep 1000) | cat`
