package tester_test

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester"
	"github.com/headgate-io/headgate/rollout/tester/gate"
	"github.com/headgate-io/headgate/rollout/tester/run"
	"github.com/headgate-io/headgate/rollout/tester/task"
)

// k6 stands for the real one: it says what the real one says before a test
// starts, and then does what the script asks for.
const k6 = `#!/bin/sh
for script; do :; done
echo 'output: -'
case $(cat "$script") in
pass) echo pass ;;
fail) echo fail; exit 99 ;;
linger) sleep 60 ;;
once*) read -r _ mark <"$script"; if [ -e "$mark" ]; then echo pass; else : >"$mark"; sleep 60; fi ;;
esac
`

// programs returns a directory for PATH with what tests of the wire may run.
func programs(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sh", "bash", "cat", "sleep", "env", "head", "tr"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skip(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Skip(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "k6"), []byte(k6), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// newServer returns a test runner that runs programs in sandboxes of its own,
// with gates and runs in memory.
func newServer(t testing.TB) *tester.Server { return newServerOf(t, run.Config{}) }

// newServerOf returns one with runs of a configuration.
func newServerOf(t testing.TB, c run.Config) *tester.Server {
	t.Helper()
	s := &tester.Server{Tools: task.Tools{Env: []string{"PATH=" + programs(t)}, Grace: 100 * time.Millisecond}}
	var err error
	if s.Gates, err = gate.Open(gate.Config{}); err != nil {
		t.Fatal(err)
	}
	if s.Runs, err = run.Open(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		s.Gates.Close()
	})
	return s
}

// serve serves at a real listener and returns its address.
func serve(t testing.TB, s *tester.Server) string {
	t.Helper()
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

const wireCallers = `tokens:
- {name: all, token: all-of-it-0123456789}
- {name: team, token: team-token-0123456789, namespaces: [team-*], types: [bash], gates: [traffic*]}
- {name: look, token: look-token-0123456789, readOnly: true}
`

// TestWire plays testdata/exchanges: every endpoint with what it answers. Each file
// is for one new test runner.
func TestWire(t *testing.T) {
	set := map[string]func(*testing.T, *tester.Server){
		"strict.txt": func(_ *testing.T, s *tester.Server) {
			s.Strict, s.Types, s.FailureStatus = true, []string{"bash"}, 500
		},
		"access.txt": func(t *testing.T, s *tester.Server) { s.Guard = guard(t, wireCallers) },
	}
	files, err := filepath.Glob("../../testdata/exchanges/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			if set[name] != nil {
				set[name](t, s)
			}
			exchanges, err := testenv.Exchanges(file)
			if err != nil {
				t.Fatal(err)
			}
			address := serve(t, s)
			for _, x := range exchanges {
				if err := x.Do(address); err != nil {
					t.Errorf("%s: %s: %v", x.Place, x.Name, err)
				}
			}
		})
	}
}
