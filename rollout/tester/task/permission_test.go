package task

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// says is a task that writes text, a piece at a time, and ends with err.
type says struct {
	text  string
	piece int
	err   error
}

func (s says) Run(_ context.Context, out io.Writer) error {
	for b := []byte(s.text); len(b) > 0; {
		n := min(s.piece, len(b))
		if _, err := out.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return s.err
}

type exitError struct{}

func (exitError) Error() string { return "exit status 1" }
func (exitError) ExitCode() int { return 1 }

// A chart test that is refused names what it lacks.
func TestExplained(t *testing.T) {
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	<-late.Done()
	const refused = `pods "app-test" is forbidden: User "system:serviceaccount:headgate:tester" cannot get resource "pods" in API group "" in the namespace "shop"`
	for name, c := range map[string]struct {
		ctx  context.Context
		text string
		err  error
		want string
	}{
		"passed":          {text: "Error: " + refused},
		"another failure": {text: "Error: no such release", err: exitError{}, want: "exit status 1"},
		"helm 3": {text: "NAME: app\nError: " + refused + "\n", err: exitError{},
			want: `exit status 1: the test runner lacks the permission to get pods in namespace shop: see docs/tester.md, "Deploying"`},
		"no end of line": {text: refused, err: exitError{}, want: `exit status 1: the test runner lacks the permission to get pods in namespace shop: see docs/tester.md, "Deploying"`},
		"a log of a client, twice": {err: exitError{}, text: strings.Repeat(`E1122 reflector.go:227] "Failed to watch" err="jobs is forbidden: User \"u\" cannot watch resource \"jobs\" in API group \"batch\" in the namespace \"shop\""`+"\n", 2) + "timed out waiting for the condition\n",
			want: `exit status 1: the test runner lacks the permission to watch jobs in namespace shop: see docs/tester.md, "Deploying"`},
		"two": {err: exitError{}, text: refused + "\n" + strings.Replace(refused, "cannot get", "cannot delete", 1) + "\n",
			want: `exit status 1: the test runner lacks the permission to get pods in namespace shop, and to delete pods in namespace shop: see docs/tester.md, "Deploying"`},
		"cluster scope": {err: exitError{}, text: `namespaces is forbidden: User "u" cannot list resource "namespaces" in API group "" at the cluster scope`,
			want: `exit status 1: the test runner lacks the permission to list namespaces: see docs/tester.md, "Deploying"`},
		"control characters": {err: exitError{}, text: "forbidden: User \"u\" cannot get resource \"po\x1b[31mds\" in API group \"\" in the namespace \"shop\"", want: "exit status 1"},
		"helm gave up":       {err: exitError{}, text: "Error: timed out waiting for the condition\n", want: "exit status 1: a chart test that hangs may lack a permission; it needs " + chartNeeds + `: see docs/tester.md, "Deploying"`},
		"killed":             {ctx: late, err: exitError{}, text: "NAME: app\n", want: "exit status 1: a chart test that hangs may lack a permission; it needs " + chartNeeds + `: see docs/tester.md, "Deploying"`},
		"killed, refused":    {ctx: late, err: exitError{}, text: refused + "\n", want: `exit status 1: the test runner lacks the permission to get pods in namespace shop: see docs/tester.md, "Deploying"`},
	} {
		for _, piece := range []int{1, 7, 1 << 20} {
			ctx := c.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			var out bytes.Buffer
			err := explained(says{c.text, piece, c.err}).Run(ctx, &out)
			if got := fmt.Sprint(err); (err != nil || c.want != "") && got != c.want {
				t.Errorf("%s, %d bytes at a time: %s", name, piece, got)
			}
			if out.String() != c.text {
				t.Errorf("%s: passed on %q", name, out.String())
			}
			if coded := interface{ ExitCode() int }(nil); c.err != nil && (!errors.As(err, &coded) || coded.ExitCode() != 1) {
				t.Errorf("%s: the exit code is lost", name)
			}
		}
	}
}

// Lines without end and many permissions are bounded; an error of the output stays one.
func TestExplainedBounds(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, "is forbidden: cannot get resource \"r%d\" in API group \"\"\n", i)
	}
	seen := &refusals{to: io.Discard}
	io.WriteString(seen, long)
	if cap(seen.line) > 4*maxLine {
		t.Errorf("%d bytes of a line are kept", cap(seen.line))
	}
	io.WriteString(seen, "\n"+many.String())
	if got := seen.found(); len(got) != maxMissing {
		t.Errorf("%d permissions", len(got))
	}
	broken := errors.New("no space")
	if err := explained(says{"text", 1, nil}).Run(t.Context(), iotest.TruncateWriter(io.Discard, 0)); err != nil {
		t.Error(err)
	}
	if err := explained(says{"text", 1, nil}).Run(t.Context(), failing{broken}); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
