package traffic_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// program returns an adapter whose operation op runs a program of TestMain.
func program(t *testing.T, op traffic.Operation, name string, env ...string) *traffic.Adapter {
	t.Helper()
	return &traffic.Adapter{Driver: &traffic.Exec{
		Commands: map[traffic.Operation][]string{op: {self(t)}},
		Env:      append(env, "PROGRAM="+name),
	}}
}

var podinfo = &rollout.Canary{
	Metadata: rollout.Metadata{Name: "podinfo", Namespace: "test"},
	Spec:     rollout.CanarySpec{TargetRef: rollout.ObjectRef{Name: "app"}},
}

func TestExecArguments(t *testing.T) {
	a := program(t, traffic.Revision, "arguments")
	e := a.Driver.(*traffic.Exec)
	a.Canary, a.ID, a.Phase = podinfo, "$(id); rm -rf / '", func() rollout.Phase { return rollout.Promoting }
	e.Commands[traffic.Revision] = append(e.Commands[traffic.Revision], "{{.Name}}.{{.Namespace}}", "{{.Revision}}", "", "* ~",
		"{{.Target}}/{{.Service}}/{{.Phase}}/{{.Operation}}", `{{if .Mirrored}}m{{else}}{{.Primary}}:{{.Canary}}{{end}}`, "{{json .Revision}}")
	want := `podinfo.test|$(id); rm -rf / '||* ~|app/app/Promoting/revision|100:0|"$(id); rm -rf / '"`
	if got, err := a.Revision(t.Context()); err != nil || got != want {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
}

func TestExecEnvironment(t *testing.T) {
	t.Setenv("CANARY_SECRET", "c4n4ry")
	a := program(t, traffic.Revision, "environment", "A=b")
	a.Canary, a.ID, a.Start = podinfo, "v2", rollout.Routes{Primary: 70, Canary: 30}
	got, err := a.Revision(t.Context())
	vars := strings.Split(got, "|")
	slices.Sort(vars)
	want := []string{"A=b", "HEADGATE_CANARY=30", "HEADGATE_MIRRORED=false", "HEADGATE_NAME=podinfo", "HEADGATE_NAMESPACE=test", "HEADGATE_OPERATION=revision",
		"HEADGATE_PHASE=", "HEADGATE_PRIMARY=70", "HEADGATE_REVISION=v2", "HEADGATE_SERVICE=app", "HEADGATE_TARGET=app", "PROGRAM=environment"}
	if err != nil || !slices.Equal(vars, want) {
		t.Errorf("got %q, %v", vars, err)
	}
}

func TestExecReady(t *testing.T) {
	tests := []struct {
		code         string
		ready, stuck bool
	}{{"0", true, false}, {"1", false, false}, {"2", false, false}, {"3", false, false}, {"100", false, true}, {"255", false, false}}
	for _, test := range tests {
		primary := program(t, traffic.PrimaryReady, "exit", "CODE="+test.code, "TEXT=because")
		canary := program(t, traffic.CanaryReady, "exit", "CODE="+test.code, "TEXT=because")
		for _, err := range []error{primary.PrimaryReady(t.Context()), canary.CanaryReady(t.Context())} {
			if (err == nil) != test.ready || errors.Is(err, rollout.ErrStuck) != test.stuck || err != nil && !strings.Contains(err.Error(), "because") {
				t.Errorf("code %s: %v", test.code, err)
			}
		}
	}
	if err := program(t, traffic.ScaleUp, "exit", "CODE=100").ScaleUp(t.Context()); err == nil || errors.Is(err, rollout.ErrStuck) {
		t.Error(err)
	}
}

func TestReadRoutes(t *testing.T) {
	tests := map[string]struct {
		text string
		want rollout.Routes
	}{
		"words":        {" 90 10\n", rollout.Routes{Primary: 90, Canary: 10}},
		"mirrored":     {"100 0 mirrored", mirrored},
		"object":       {`{"primary": 25, "canary": 75, "mirrored": false}` + "\n", rollout.Routes{Primary: 25, Canary: 75}},
		"sum":          {"90 11", rollout.Routes{}},
		"negative":     {"101 -1", rollout.Routes{}},
		"overflow":     {"9223372036854775807 9223372036854775807", rollout.Routes{}},
		"huge":         {"99999999999999999999 1", rollout.Routes{}},
		"one":          {"100", rollout.Routes{}},
		"four":         {"50 50 mirrored x", rollout.Routes{}},
		"nothing":      {"", rollout.Routes{}},
		"words else":   {"fifty fifty", rollout.Routes{}},
		"object lacks": {`{"primary": 100}`, rollout.Routes{}},
		"object more":  {`{"primary": 100, "canary": 0, "weight": 1}`, rollout.Routes{}},
		"object twice": {`{"primary": 100, "canary": 0} {}`, rollout.Routes{}},
		"object cut":   {`{"primary": 100, "canary": 0`, rollout.Routes{}},
		"object float": {`{"primary": 99.5, "canary": 0.5}`, rollout.Routes{}},
		"object text":  {`{"primary": "100", "canary": 0}`, rollout.Routes{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := program(t, traffic.ReadRoutes, "print", "TEXT="+test.text).Routes(t.Context())
			if got != test.want || (err == nil) != (test.want != rollout.Routes{}) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// What was set is known, but not what could not be.
func TestSetRoutes(t *testing.T) {
	a := &traffic.Adapter{Start: rollout.Routes{Primary: 60, Canary: 40}, Driver: &traffic.Exec{
		Commands: map[traffic.Operation][]string{traffic.SetRoutes: {self(t)}},
		Env:      []string{"PROGRAM=exit", "CODE=1"},
	}}
	routes := func(want rollout.Routes) {
		t.Helper()
		if got, err := a.Routes(t.Context()); err != nil || got != want {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	routes(a.Start)
	if err := a.SetRoutes(t.Context(), mirrored); err == nil || !strings.HasPrefix(err.Error(), "set-routes: exit status 1") {
		t.Error(err)
	}
	routes(a.Start)
	a.Driver.(*traffic.Exec).Env = []string{"PROGRAM=exit", "CODE=0"}
	if err := a.SetRoutes(t.Context(), mirrored); err != nil {
		t.Error(err)
	}
	routes(mirrored)
}

func TestRevisionsThatAreNone(t *testing.T) {
	for name, text := range map[string]string{
		"empty": " \n", "lines": "a\nb", "escape": "a\x1b[31m", "not UTF-8": "\xff", "long": strings.Repeat("a", 2000),
	} {
		if got, err := program(t, traffic.Revision, "print", "TEXT="+text).Revision(t.Context()); err == nil || strings.ContainsAny(err.Error(), "\x1b\n") || strings.Contains(err.Error(), "\xff") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if got, err := program(t, traffic.Revision, "print", "TEXT=v1.2.3\n").Revision(t.Context()); got != "v1.2.3" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestExecErrorsAreClean(t *testing.T) {
	a := program(t, traffic.Promote, "exit", "CODE=1", "TEXT=\x1b[31mhttps://user:pass@h/?t=tok3n p4ssw0rd\nline")
	a.Driver.(*traffic.Exec).Secrets = []string{"p4ssw0rd"}
	err := a.Promote(t.Context())
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\n") {
		t.Fatal(err)
	}
	for _, secret := range []string{"pass@", "tok3n", "p4ssw0rd"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%q leaks in %q", secret, err)
		}
	}
}

func TestExecOutputWithoutEnd(t *testing.T) {
	if err := program(t, traffic.ScaleUp, "much").ScaleUp(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := program(t, traffic.Revision, "much").Revision(t.Context()); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Error(err)
	}
}

// A command that hangs, and the child of one, end with their time and with the
// context of the caller.
func TestExecThatHangs(t *testing.T) {
	cause := errors.New("because")
	for name, processes := range map[string]int{"hang": 1, "fork": 2} {
		for _, want := range []error{cause, context.DeadlineExceeded} {
			t.Run(fmt.Sprintf("%s/%v", name, want), func(t *testing.T) {
				addr, up, gone := watch(t, processes)
				a := program(t, traffic.CanaryReady, name, "ADDR="+addr)
				ctx, cancel := context.WithCancelCause(t.Context())
				if want == cause {
					go func() { <-up; cancel(cause) }()
				} else {
					a.Driver.(*traffic.Exec).Timeout = 500 * time.Millisecond
				}
				if err := a.CanaryReady(ctx); !errors.Is(err, want) || errors.Is(err, rollout.ErrStuck) {
					t.Error(err)
				}
				cancel(nil)
				if want == cause {
					<-gone
				}
			})
		}
	}
}

// watch tells when as many processes are connected, and when all are gone.
func watch(t *testing.T, processes int) (addr string, up, gone <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	connected, ended := make(chan struct{}), make(chan struct{})
	go func() {
		var all []*bufio.Scanner
		for range processes {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			lines := bufio.NewScanner(c)
			lines.Scan()
			all = append(all, lines)
		}
		close(connected)
		for _, lines := range all {
			for lines.Scan() {
			}
		}
		close(ended)
	}()
	return l.Addr().String(), connected, ended
}

func TestExecCheck(t *testing.T) {
	e := &traffic.Exec{Commands: map[traffic.Operation][]string{
		"scale":             {"x"},
		traffic.ScaleUp:     {"x", "{{.Nothing}}"},
		traffic.ScaleDown:   {"x", "{{"},
		traffic.CanaryReady: {"{{.Name}}", "{{.Canary}}"},
	}}
	err := e.Check()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`"scale"`, "scale-up: argument 1", "scale-down: argument 1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "canary-ready:") {
		t.Error(err)
	}
	if err := program(t, traffic.ScaleUp, "x").Driver.Check(); err != nil {
		t.Error(err)
	}
}

// TestExecCheckFindsSetRoutes demands that the program of set-routes is there
// before a rollout begins.
func TestExecCheckFindsSetRoutes(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "weight.txt"), []byte("20"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		dir, program string
		found        bool
	}{
		"absolute":                  {"", self, true},
		"relative to the directory": {filepath.Dir(self), "./" + filepath.Base(self), true},
		"in the PATH":               {"", filepath.Base(self), true},
		"a template":                {"", "{{.Name}}.sh", true},
		"not in the PATH":           {"", "absent", false},
		"not in the directory":      {dir, "./" + filepath.Base(self), false},
		"not executable":            {dir, "./weight.txt", false},
		"a directory":               {"", dir, false},
	} {
		e := &traffic.Exec{
			Commands: map[traffic.Operation][]string{traffic.SetRoutes: {test.program, "{{.Canary}}"}},
			Dir:      test.dir, Env: []string{"PATH=" + filepath.Dir(self)},
		}
		switch err := e.Check(); {
		case (err == nil) != test.found:
			t.Errorf("%s: %v", name, err)
		case err != nil && !strings.HasPrefix(err.Error(), "set-routes: the program cannot be started: "):
			t.Errorf("%s: %v", name, err)
		}
	}
}
