package wire_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/headgate-io/headgate/git/internal/wire"
)

// program is a program that answers, on standard output and standard error, and exits.
func program(out, complaint string, status uint32) func(ssh.Channel, []string) uint32 {
	return func(ch ssh.Channel, _ []string) uint32 {
		io.WriteString(ch.Stderr(), complaint)
		io.WriteString(ch, out)
		return status
	}
}

func TestLFSGrant(t *testing.T) {
	for name, row := range map[string]struct {
		server *sshServer
		want   string
		err    error
		say    string
	}{
		"answer":         {&sshServer{run: program(`{"href":"x"}`, "a warning", 0)}, `{"href":"x"}`, nil, ""},
		"no program":     {&sshServer{run: program("", "sh: git-lfs-authenticate:\x1b[1m command not found\n", 127)}, "", wire.ErrUnsupported, "git-lfs-authenticate: sh: git-lfs-authenticate:"},
		"refused":        {&sshServer{run: program("{}", "fatal: DENIED", 1)}, "", wire.ErrUnsupported, "DENIED"},
		"too long":       {&sshServer{run: program(strings.Repeat("x", 64<<10+1), "", 0)}, "", wire.ErrLimit, "more than 65536 bytes"},
		"no command":     {&sshServer{refuse: "exec"}, "", wire.ErrUnsupported, "does not run git-lfs-authenticate"},
		"no channel":     {&sshServer{refuse: "channel"}, "", nil, "no channels here"},
		"no exit":        {&sshServer{run: hangUp("{}")}, "{}", nil, ""},
		"nothing":        {&sshServer{run: hangUp("")}, "", wire.ErrUnsupported, ""},
		"cut complaint":  {&sshServer{run: program("", strings.Repeat("c ", 508)+"part-of-a-secret", 1)}, "", wire.ErrUnsupported, "c c…"},
		"long complaint": {&sshServer{run: program("", strings.Repeat("complaint ", 10_000), 1)}, "", wire.ErrUnsupported, "…"},
	} {
		t.Run(name, func(t *testing.T) {
			s := row.server
			got, err := wire.LFSGrant(t.Context(), s.transport(t))
			if row.want == "" && row.say == "" && err == nil || row.say != "" && (err == nil || !strings.Contains(err.Error(), row.say)) || row.err != nil && !errors.Is(err, row.err) {
				t.Fatalf("%q, %v; want %v, %s", got, err, row.err, row.say)
			}
			if err == nil && string(got) != row.want {
				t.Errorf("%q", got)
			}
			if err != nil {
				checkError(t, err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.refuse != "channel" && !slices.Equal(s.commands, []string{"git-lfs-authenticate '/repo.git' download"}) {
				t.Errorf("commands %q", s.commands)
			}
		})
	}
}

// hangUp is a program whose end is not reported.
func hangUp(out string) func(ssh.Channel, []string) uint32 {
	return func(ch ssh.Channel, _ []string) uint32 {
		io.WriteString(ch, out)
		ch.Close()
		return 0
	}
}

// checkError checks that an error tells its phase, and has no control characters.
func checkError(t *testing.T, err error) {
	t.Helper()
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || e.Phase != wire.LFS || len(err.Error()) > 2000 || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("the error is %#v: %v", e, err)
	}
}

func TestLFSGrantNeedsSSH(t *testing.T) {
	_, err := wire.LFSGrant(t.Context(), wire.HTTP(http.DefaultClient, parse(t, "http://127.0.0.1/repo.git")))
	if !errors.Is(err, wire.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	_, err = wire.LFSGrant(t.Context(), wire.SSH(wire.SSHConfig{}, parse(t, "ssh://127.0.0.1/")))
	if err == nil || !strings.Contains(err.Error(), "ssh://[USER@]HOST") {
		t.Errorf("%v", err)
	}
	s := new(sshServer).start(t, nil, "ed25519")
	_, err = wire.LFSGrant(t.Context(), wire.SSH(wire.SSHConfig{Identity: newKey(t, "ed25519").pem, KnownHosts: s.known(s.keys...)}, s.url("/repo.git")))
	if !errors.Is(err, wire.ErrAuth) {
		t.Errorf("%v", err)
	}
}

// A server that stalls is left when the context ends, and one that has ended is not asked.
func TestLFSGrantStalls(t *testing.T) {
	began, over := make(chan struct{}), make(chan struct{})
	defer close(over)
	after := func(out string, end func(ssh.Channel) error) func(ssh.Channel, []string) uint32 {
		return func(ch ssh.Channel, _ []string) uint32 {
			io.WriteString(ch, out)
			end(ch)
			began <- struct{}{}
			<-over
			return 0
		}
	}
	open := func(ssh.Channel) error { return nil }
	enough := errors.New("enough")
	for name, s := range map[string]*sshServer{
		"before the session": {stall: began},
		"before the answer":  {run: after("", open)},
		"in the answer":      {run: after("{", open)},
		"before the end":     {run: after("{}", ssh.Channel.CloseWrite)},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		to := s.transport(t)
		go func() { <-began; cancel(enough) }()
		if _, err := wire.LFSGrant(ctx, to); !errors.Is(err, enough) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	s := &sshServer{run: program("{}", "", 0)}
	if _, err := wire.LFSGrant(ctx, s.transport(t)); !errors.Is(err, enough) || len(s.commands) != 0 {
		t.Errorf("%v, commands %q", err, s.commands)
	}
}
