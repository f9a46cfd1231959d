package command_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/command"
	"github.com/headgate-io/headgate/internal/testenv"
)

// The test binary is the program that the tests run: PROGRAM says which.
func TestMain(m *testing.M) {
	if name := os.Getenv("PROGRAM"); name != "" {
		syscall.Exit(programs[name]()) // at once: under the race detector os.Exit waits for a second
	}
	os.Exit(m.Run())
}

var programs = map[string]func() int{
	"say":  func() int { fmt.Print(strings.Join(os.Args[1:], "|")); return 0 },
	"env":  func() int { fmt.Print(strings.Join(os.Environ(), "|")); return 0 },
	"fail": func() int { fmt.Fprint(os.Stderr, strings.Repeat("x", 1<<20), "the end"); return 7 },
	"much": func() int {
		for range 64 {
			os.Stdout.Write(make([]byte, 1<<20))
		}
		return 0
	},
	// deaf ignores SIGTERM.
	"deaf": func() int { signal.Ignore(syscall.SIGTERM); return holdConnection() },
	// parent leaves a deaf child and waits; away exits at once.
	"parent": func() int { startChild(); <-time.After(time.Hour); return 0 },
	"away":   func() int { startChild(); return 0 },
}

// holdConnection keeps a connection to ADDR as long as the process lives.
func holdConnection() int {
	c, err := dial()
	if err != nil {
		return 1
	}
	fmt.Fprintln(c, "up")
	io.Copy(io.Discard, c)
	return 0
}

func startChild() {
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{"PROGRAM=deaf", "ADDR=" + os.Getenv("ADDR")}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		panic(err)
	}
}

func run(t *testing.T, ctx context.Context, name string, c command.Command) (command.Output, error) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	c.Args = append([]string{self}, c.Args...)
	c.Env = append(c.Env, "PROGRAM="+name)
	return c.Run(ctx)
}

func TestArguments(t *testing.T) {
	hostile := []string{"a b", "$(id)", "; rm -rf /", "", "*", "'\"`", "\n"}
	out, err := run(t, t.Context(), "say", command.Command{Args: hostile})
	if want := strings.Join(hostile, "|"); err != nil || string(out.Text) != want {
		t.Errorf("got %q, %v, want %q", out.Text, err, want)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("CANARY_SECRET", "c4n4ry")
	out, err := run(t, t.Context(), "env", command.Command{Env: []string{"A=b"}})
	if err != nil || string(out.Text) != "A=b|PROGRAM=env" {
		t.Errorf("got %q, %v", out.Text, err)
	}
}

func TestExitError(t *testing.T) {
	_, err := run(t, t.Context(), "fail", command.Command{})
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Fatal(err)
	}
	if text := err.Error(); !strings.HasPrefix(text, "exit status 7: x") || !strings.HasSuffix(text, "xthe end") || len(text) > 3<<10 {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}

func TestOutputLimit(t *testing.T) {
	out, err := run(t, t.Context(), "much", command.Command{Limit: 10})
	if err != nil || len(out.Text) != 10 || !out.Truncated {
		t.Errorf("%d bytes, %v, %v", len(out.Text), out.Truncated, err)
	}
}

func TestNoCommand(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "plain"), nil, 0o600))
	for _, name := range []string{"", "plain", "go", "no-such-command", dir + "/none"} {
		_, err := command.Command{Args: []string{name}, Env: []string{"PATH=" + dir + "::."}}.Run(t.Context())
		if err == nil {
			t.Errorf("%q ran", name)
		}
	}
	_, err := command.Command{Args: []string{"go"}}.Run(t.Context())
	if !errors.Is(err, exec.ErrNotFound) {
		t.Error(err)
	}
}

func TestPath(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	if err := os.Symlink(self, filepath.Join(dir, "self")); err != nil {
		t.Skip(err)
	}
	out, err := command.Command{Args: []string{"self", "a"}, Env: []string{"PATH=/none:" + dir, "PROGRAM=say"}}.Run(t.Context())
	if err != nil || string(out.Text) != "a" {
		t.Errorf("got %q, %v", out.Text, err)
	}
}

func TestContextThatHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("because"))
	if _, err := run(t, ctx, "say", command.Command{}); err == nil || err.Error() != "because" {
		t.Error(err)
	}
}

// A command that ignores SIGTERM, and the child of a command that does not, are gone
// when Run returns or soon after.
func TestGroupEndsWithContext(t *testing.T) {
	for _, name := range []string{"deaf", "parent"} {
		t.Run(name, func(t *testing.T) {
			l, lines := acceptLines(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-lines // the command runs
				cancel(errors.New("because"))
			}()
			_, err := run(t, ctx, name, command.Command{Env: []string{"ADDR=" + l}, Grace: 10 * time.Millisecond})
			if err == nil || err.Error() != "because" {
				t.Error(err)
			}
			if _, open := <-lines; open {
				t.Error("more than one line")
			}
		})
	}
}

func TestBackgroundProcessSurvives(t *testing.T) {
	addr, lines := acceptLines(t)
	if _, err := run(t, t.Context(), "away", command.Command{Env: []string{"ADDR=" + addr}}); err != nil {
		t.Fatal(err)
	}
	testenv.Equal(t, <-lines, "up")
	select {
	case <-lines:
		t.Error("what it started has ended with it")
	default:
	}
}

// scan sends the lines of r until it ends, then closes.
func scan(r io.Reader, lines chan<- string) {
	defer close(lines)
	for s := bufio.NewScanner(r); s.Scan(); {
		lines <- s.Text()
	}
}

// acceptLines accepts one connection of a process and sends its lines to the channel, which is
// closed when the process is gone. The end of the test closes the connection.
func acceptLines(t *testing.T) (addr string, lines <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	received := make(chan string)
	go func() {
		c, err := l.Accept()
		if err != nil {
			close(received)
			return
		}
		t.Cleanup(func() { c.Close() })
		scan(c, received)
	}()
	return l.Addr().String(), received
}

func dial() (net.Conn, error) { return net.Dial("tcp", os.Getenv("ADDR")) }

func TestWords(t *testing.T) {
	for line, want := range map[string][]string{
		"":                              nil,
		" \t\n":                         nil,
		"a  b\tc":                       {"a", "b", "c"},
		`a 'b c' "d e"f`:                {"a", "b c", "d ef"},
		`'' ""`:                         {"", ""},
		`a\ b \'`:                       {"a b", "'"},
		`"a\"b" 'a\b'`:                  {`a"b`, `a\b`},
		`x={{ .Canary }} "{{ "a b" }}"`: {"x={{ .Canary }}", `{{ "a b" }}`},
		`--set a=b\,c "d\.e" \{\{`:      {"--set", `a=b\,c`, `d\.e`, "{{"},
		"größe ü":                       {"größe", "ü"},
	} {
		if got, err := command.Words(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", line, got, err)
		}
	}
	for _, line := range []string{"'a", `"a`, `a\`, "{{ a", `"{{ a`, `"a\`} {
		if got, err := command.Words(line); err == nil {
			t.Errorf("%q: %q", line, got)
		}
	}
}

var must = testenv.Must
