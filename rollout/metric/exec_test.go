package metric_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/metric"
)

// TestMain lets the test binary act as the program of a template: the variable PROGRAM selects it.
func TestMain(m *testing.M) {
	if name := os.Getenv("PROGRAM"); name != "" {
		syscall.Exit(programs[name]()) // not os.Exit, which waits for a second under the race detector
	}
	os.Exit(m.Run())
}

var programs = map[string]func() int{
	"last": func() int { fmt.Println(" ", os.Args[len(os.Args)-1]); return 0 }, // prints its last argument
	"args": func() int { fmt.Fprintf(os.Stderr, "%q", os.Args[1:]); return 3 },
	"env":  func() int { fmt.Fprintf(os.Stderr, "%q", os.Environ()); return 3 },
	"much": func() int { fmt.Print(strings.Repeat("1", 1<<20)); return 0 },
	"loud": func() int { fmt.Fprint(os.Stderr, strings.Repeat("x", 1<<20), "\x1b[31m the end"); return 1 },
	"hang": func() int { <-time.After(time.Hour); return 0 },
}

// runCommand runs a command line in which PROGRAM stands for the test binary.
func runCommand(t *testing.T, ctx context.Context, program, line string, m rollout.Metric, c metric.Commands) (float64, error) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	c.Env = append(c.Env, "PROGRAM="+program)
	tpl, ref := template(metric.Provider{Type: "exec"}, strings.Replace(line, "PROGRAM", "'"+filepath.ToSlash(self)+"'", 1))
	m.TemplateRef = ref.TemplateRef
	return querier(t, &metric.Querier{Templates: []*metric.Template{tpl}, Commands: &c}).Query(ctx, canary(nil), m)
}

func TestCommands(t *testing.T) {
	tests := map[string]struct{ program, line, want string }{
		"number":        {"last", "PROGRAM 12.5", "12.5"},
		"several lines": {"last", "\n  PROGRAM\n  --of\n  7\n", "7"},
		"placeholder":   {"last", "PROGRAM {{ variables.n }}", "42"},
		"nothing":       {"last", `PROGRAM ""`, "no values found: template test/m (exec) "},
		"NaN":           {"last", "PROGRAM NaN", "no values found: "},
		"a word":        {"last", "PROGRAM up", `"up" is no number`},
		"two numbers":   {"last", "PROGRAM '1 2'", `"1 2" is no number`},
		"exit status":   {"args", "PROGRAM", "exit status 3: []"},
		"words":         {"args", `PROGRAM a 'b  "c"' "d \" e" f\ g'h'"i" '' {{ name }}-x "{{ index variables "n" }}" '{{"{{"}}'`, `["a" "b  \"c\"" "d \" e" "f ghi" "" "shop-x" "42" "{{"]`},
		"no shell":      {"args", "PROGRAM $HOME * ~ `id` ; | & > < #", "[\"$HOME\" \"*\" \"~\" \"`id`\" \";\" \"|\" \"&\" \">\" \"<\" \"#\"]"},
		"one argument":  {"args", "PROGRAM --x={{ variables.odd }}", `["--x=a b' \"; rm {{ name }}"]`},
		"environment":   {"env", "PROGRAM", `["A=b" "PROGRAM=env"]`},
		"much":          {"much", "PROGRAM", "printed more than 64 KiB"},
		"loud":          {"loud", "PROGRAM", "exit status 1: xxx"},
	}
	m := rollout.Metric{TemplateVariables: map[string]string{"n": "42", "odd": `a b' "; rm {{ name }}`}}
	t.Setenv("CANARY_SECRET", "c4n4ry")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := runCommand(t, t.Context(), test.program, test.line, m, metric.Commands{Env: []string{"A=b"}})
			text := fmt.Sprint(got)
			if err != nil {
				text = err.Error()
			}
			if err == nil && text != test.want || err != nil && !strings.Contains(text, test.want) || len(text) > 4<<10 || strings.ContainsAny(text, "\x1b\n") {
				t.Errorf("got %.500s\nwant %s", text, test.want)
			}
			testenv.Equal(t, errors.Is(err, rollout.ErrNoValues), strings.HasPrefix(test.want, "no values"), "%v: no values", err)
		})
	}
}

func TestCommandsThatAreNotAllowed(t *testing.T) {
	tpl, m := template(metric.Provider{Type: "exec"}, "echo 1")
	_, err := querier(t, &metric.Querier{Templates: []*metric.Template{tpl}}).Query(t.Context(), canary(nil), m)
	if err == nil || !strings.Contains(err.Error(), "commands are not allowed here") {
		t.Errorf("got %v", err)
	}
}

func TestCommandThatDoesNotEnd(t *testing.T) {
	_, err := runCommand(t, t.Context(), "hang", "PROGRAM", rollout.Metric{}, metric.Commands{Timeout: 100 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "did not end within 100ms") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("because"))
	defer cancel()
	if _, err := runCommand(t, ctx, "hang", "PROGRAM", rollout.Metric{}, metric.Commands{}); err == nil || !strings.Contains(err.Error(), "because") {
		t.Errorf("got %v", err)
	}
}

// A value cannot become an option unless the template has an option there.
func TestValueThatLooksLikeAnOption(t *testing.T) {
	m := rollout.Metric{TemplateVariables: map[string]string{"o": "--output=/etc/passwd", "dash": "-", "none": "", "yes": "y"}}
	for line, want := range map[string]string{
		"PROGRAM {{ variables.o }}":                                         "argument 1 begins with - that is a part of a value",
		"PROGRAM a {{ variables.none }}{{ variables.o }}":                   "argument 2 begins with -",
		"PROGRAM {{ variables.dash }}-x":                                    "argument 1 begins with -",
		"PROGRAM a -- {{ variables.o }}":                                    `["a" "--" "--output=/etc/passwd"]`,
		"PROGRAM -f {{ variables.none }}-x":                                 `["-f" "-x"]`,
		"PROGRAM --a={{ variables.o }}":                                     `["--a=--output=/etc/passwd"]`,
		"PROGRAM -{{ variables.o }}":                                        `["---output=/etc/passwd"]`,
		`PROGRAM '{{ if eq variables.yes "y" }}--yes{{ else }}no{{ end }}'`: `["--yes"]`,
	} {
		if _, err := runCommand(t, t.Context(), "args", line, m, metric.Commands{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", line, err, want)
		}
	}
}

// The total length of the arguments is limited like that of a query.
func TestArgumentsThatGrow(t *testing.T) {
	m := rollout.Metric{TemplateVariables: map[string]string{"a": strings.Repeat("x", 60<<10)}}
	if _, err := runCommand(t, t.Context(), "last", "PROGRAM"+strings.Repeat(" {{ variables.a }}", 2), m, metric.Commands{}); err == nil || !strings.Contains(err.Error(), "becomes longer than 64 KiB") {
		t.Errorf("got %v", err)
	}
}
