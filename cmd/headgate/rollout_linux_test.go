package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// TestRolloutOnTerminal checks that a status line is drawn below the events and
// erased at the end.
func TestRolloutOnTerminal(t *testing.T) {
	s := newRolloutServers(t)
	args := append(s.args(t, "confirm-promotion", "/closed", `{"phase": "Progressing", "lastAppliedSpec": "v2", "canaryWeight": 60, "preRollout": true}`), "--revision", "v2", "--interval", "1ms")
	watch := func(extraArgs ...string) string {
		return captureTerminal(t, func(tty *os.File) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			go func() {
				for range 3 {
					<-s.called
				}
				interrupt()
				for ctx := t.Context(); ; {
					select {
					case <-s.called:
					case <-ctx.Done():
						return
					}
				}
			}()
			if code := run(ctx, append(args, extraArgs...), strings.NewReader(""), io.Discard, tty, os.LookupEnv); code != exitNotOver {
				t.Errorf("exit code %d", code)
			}
		})
	}
	got := watch()
	const line = "\x1b[?7ldefault/app  Progressing  [######....] 60% of the traffic"
	for _, want := range []string{
		"\r\x1b[K" + line + "  waits on stage (http",
		"Z warning: app.default: waits for the approval of the promotion by stage: confirm-promotion webhook stage: POST " + s.webhook + "/closed: status 403\r\n",
		"\r\x1b[K" + line + "  waits on stage (" + s.webhook + "/closed) for ", "s; run the same command again",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not drawn in %q", want, got)
		}
	}
	testenv.Equal(t, watch("-q"), "", "a quiet run draws")
}

// TestPipeAmongDocuments checks that a named pipe in a directory of -f is
// skipped. Reading it would block forever.
func TestPipeAmongDocuments(t *testing.T) {
	s := newRolloutServers(t)
	s.args(t, "rollout", "/", "{}")
	must(t, syscall.Mkfifo(filepath.Join(s.dir, "pipe.yaml"), 0o600))
	args := []string{"rollout", "simulate", "-f", s.dir}
	if code := run(t.Context(), args, strings.NewReader(""), io.Discard, t.Output(), os.LookupEnv); code != exitReady {
		t.Errorf("exit code %d", code)
	}
}

// TestPromoteOnTerminal checks that promote asks for confirmation, and does not
// contact the run without it.
func TestPromoteOnTerminal(t *testing.T) {
	s := newRolloutServers(t)
	state := s.args(t, "rollback", "/", `{"phase": "Progressing", "lastAppliedSpec": "v2", "canaryWeight": 40}`)[5]
	for answer, want := range map[string]int{"\n": exitFailed, "no\n": exitFailed, "y\n": exitReady} {
		control, tty := openTerminal(t)
		if _, err := io.WriteString(control, answer); err != nil {
			t.Fatal(err)
		}
		var stderr strings.Builder
		code := run(t.Context(), []string{"rollout", "promote", "--state", state}, tty, io.Discard, &stderr, os.LookupEnv)
		if code != want || !strings.Contains(stderr.String(), "40% of the traffic\nPromote revision v2 without the rest of its analysis? [y/N] ") {
			t.Errorf("%q: exit code %d, %s", answer, code, stderr.String())
		}
		_, err := os.Stat(state + ".request")
		testenv.Equal(t, err == nil, want == exitReady, "%q: asked", answer)
		os.Remove(state + ".request")
		tty.Close()
	}
}
