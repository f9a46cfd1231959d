package traffic_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// TestMain lets the test binary act as the command of a test: the variable PROGRAM selects it.
func TestMain(m *testing.M) {
	if name := os.Getenv("PROGRAM"); name != "" {
		syscall.Exit(programs[name]()) // not os.Exit, which waits for a second under the race detector
	}
	os.Exit(m.Run())
}

var programs = map[string]func() int{
	"arguments":   func() int { fmt.Print(strings.Join(os.Args[1:], "|")); return 0 },
	"environment": func() int { fmt.Print(strings.Join(os.Environ(), "|")); return 0 },
	"print":       func() int { fmt.Print(os.Getenv("TEXT")); return 0 },
	// exit exits with the given code and message.
	"exit": func() int {
		var code int
		fmt.Sscan(os.Getenv("CODE"), &code)
		fmt.Fprint(os.Stderr, os.Getenv("TEXT"))
		return code
	},
	"much": func() int {
		much := make([]byte, 1<<20)
		for range 64 {
			os.Stdout.Write(much)
			os.Stderr.Write(make([]byte, 1<<10))
		}
		return 0
	},
}

// self returns the path of the test binary.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	must(t, err)
	return path
}

// program returns an adapter whose operation op runs a program of TestMain.
func program(t *testing.T, op traffic.Operation, name string, env ...string) *traffic.Adapter {
	t.Helper()
	return &traffic.Adapter{Actions: map[traffic.Operation]traffic.Action{
		op: &traffic.Command{Args: []string{self(t)}, Env: append(env, "PROGRAM="+name)},
	}}
}

var podinfo = &rollout.Canary{
	Metadata: rollout.Metadata{Name: "podinfo", Namespace: "test"},
	Spec:     rollout.CanarySpec{TargetRef: rollout.ObjectRef{Name: "app"}},
}

func TestExecArguments(t *testing.T) {
	a := program(t, traffic.Revision, "arguments")
	c := a.Actions[traffic.Revision].(*traffic.Command)
	a.Values = traffic.ValuesOf(podinfo, rollout.Status{Phase: rollout.Promoting})
	a.Values.Revision = "$(id); rm -rf / '"
	c.Args = append(c.Args, "{{.Name}}.{{.Namespace}}", "{{.Revision}}", "", "* ~",
		"{{.Target}}/{{.Service}}/{{.Phase}}/{{.Operation}}", `{{if .Mirrored}}m{{else}}{{.Primary}}:{{.Canary}}{{end}}`, "{{json .Revision}}")
	want := `podinfo.test|$(id); rm -rf / '||* ~|app/app/Promoting/revision|100:0|"$(id); rm -rf / '"`
	if got, err := a.Revision(t.Context()); err != nil || got != want {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
}

func TestExecEnvironment(t *testing.T) {
	t.Setenv("CANARY_SECRET", "c4n4ry")
	a := program(t, traffic.Revision, "environment", "A=b")
	a.Values = traffic.ValuesOf(podinfo, rollout.Status{CanaryWeight: 30})
	a.Values.Revision = "v2"
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
		"one":          {"100", rollout.Routes{}},
		"four":         {"50 50 mirrored x", rollout.Routes{}},
		"nothing":      {"", rollout.Routes{}},
		"object more":  {`{"primary": 100, "canary": 0, "weight": 1}`, rollout.Routes{}},
		"object twice": {`{"primary": 100, "canary": 0} {}`, rollout.Routes{}},
		"object float": {`{"primary": 99.5, "canary": 0.5}`, rollout.Routes{}},
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

// Without an operation routes, the Adapter returns the routes that it set last. A failed SetRoutes does not change them.
func TestSetRoutes(t *testing.T) {
	a := program(t, traffic.SetRoutes, "exit", "CODE=1")
	start := rollout.Routes{Primary: 60, Canary: 40}
	a.Values.Primary, a.Values.Canary = 60, 40
	routes := func(want rollout.Routes) {
		t.Helper()
		if got, err := a.Routes(t.Context()); err != nil || got != want {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	routes(start)
	if err := a.SetRoutes(t.Context(), mirrored); err == nil || !strings.HasPrefix(err.Error(), "set-routes: exit status 1") {
		t.Error(err)
	}
	routes(start)
	a.Actions[traffic.SetRoutes].(*traffic.Command).Env = []string{"PROGRAM=exit", "CODE=0"}
	testenv.Equal(t, a.SetRoutes(t.Context(), mirrored), nil)
	routes(mirrored)
}

func TestInvalidRevisions(t *testing.T) {
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

// TestExecCheckFindsSetRoutes checks that Check requires the program of set-routes to
// exist before a rollout begins.
func TestExecCheckFindsSetRoutes(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	dir := t.TempDir()
	plain := filepath.Join(dir, "weight.txt")
	must(t, os.WriteFile(plain, []byte("20"), 0o600))
	for program, found := range map[string]bool{
		self: true, filepath.Base(self): true, "{{.Name}}.sh": true, // an absolute path, found in PATH, or a template
		"absent": false, "./" + filepath.Base(self) + "-absent": false, plain: false, dir: false,
	} {
		a := &traffic.Adapter{Actions: map[traffic.Operation]traffic.Action{traffic.SetRoutes: &traffic.Command{
			Args: []string{program, "{{.Canary}}"}, Env: []string{"PATH=" + filepath.Dir(self)},
		}}}
		switch err := a.Check(); {
		case (err == nil) != found:
			t.Errorf("%s: %v", program, err)
		case err != nil && !strings.HasPrefix(err.Error(), "set-routes: the program cannot be started: "):
			t.Errorf("%s: %v", program, err)
		}
	}
}

// request returns an adapter that sends r for op.
func request(op traffic.Operation, r traffic.Request) *traffic.Adapter {
	return &traffic.Adapter{Values: traffic.ValuesOf(podinfo, rollout.Status{}), Actions: map[traffic.Operation]traffic.Action{op: &r}}
}

func TestHTTPRequest(t *testing.T) {
	got := make(chan string, 1)
	server := serve(t, func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		got <- strings.Join([]string{req.Method, req.RequestURI, req.Host, req.Header.Get("X-Weight"), string(body)}, " ")
	})
	a := request(traffic.SetRoutes, traffic.Request{
		Method: http.MethodPut,
		URL:    server.URL + "/{{.Namespace}}/{{.Revision}}?r={{.Revision}}&c={{.Canary}}",
		Header: map[string]string{"X-Weight": "{{.Canary}}", "host": "admin.example"},
		Body:   `{"primary":{{.Primary}},"revision":{{json .Revision}}}`,
	})
	a.Values.Revision = `a/../b?c=d&e#"é +%`
	must(t, a.SetRoutes(t.Context(), rollout.Routes{Primary: 80, Canary: 20}))
	const text = "a%2F..%2Fb%3Fc%3Dd%26e%23%22%C3%A9%20%2B%25"
	want := "PUT /test/" + text + "?r=" + text + `&c=20 admin.example 20 {"primary":80,"revision":"a/../b?c=d\u0026e#\"é +%"}`
	testenv.Equal(t, <-got, want)
}

// A revision cannot change the path of a URL beyond its segment.
func TestHTTPPathThatLeadsElsewhere(t *testing.T) {
	server := serve(t, func(_ http.ResponseWriter, req *http.Request) { t.Errorf("%s was asked for", req.RequestURI) })
	for _, id := range []string{".", ".."} {
		a := request(traffic.ScaleDown, traffic.Request{URL: server.URL + "/v1/{{.Revision}}/down"})
		a.Values.Revision = id
		if err := a.ScaleDown(t.Context()); err == nil || !strings.Contains(err.Error(), "url: ") {
			t.Error(err)
		}
	}
}

func TestHTTPMethods(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/routes" {
			io.WriteString(w, `{"primary":50,"canary":50}`)
		} else {
			io.WriteString(w, req.Method)
		}
	})
	a := &traffic.Adapter{Actions: map[traffic.Operation]traffic.Action{
		traffic.Revision:   &traffic.Request{URL: server.URL},
		traffic.ReadRoutes: &traffic.Request{URL: server.URL + "/routes"},
	}}
	if id, err := a.Revision(t.Context()); id != http.MethodGet || err != nil {
		t.Error(id, err)
	}
	if r, err := a.Routes(t.Context()); r != (rollout.Routes{Primary: 50, Canary: 50}) || err != nil {
		t.Error(r, err)
	}
}

func TestHTTPStatus(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, req *http.Request) {
		var status int
		fmt.Sscan(req.URL.Query().Get("s"), &status)
		w.WriteHeader(status)
		io.WriteString(w, "be\x1bcause")
	})
	tests := []struct {
		status       int
		ready, stuck bool
	}{{200, true, false}, {204, true, false}, {299, true, false}, {304, false, false}, {404, false, false}, {408, false, false}, {410, false, true}, {500, false, false}, {503, false, false}}
	for _, test := range tests {
		a := request(traffic.CanaryReady, traffic.Request{URL: fmt.Sprintf("%s/?s=%d", server.URL, test.status)})
		err := a.CanaryReady(t.Context())
		if (err == nil) != test.ready || errors.Is(err, rollout.ErrStuck) != test.stuck {
			t.Errorf("status %d: %v", test.status, err)
		}
		if err != nil && (!strings.Contains(err.Error(), fmt.Sprint("status ", test.status)) || strings.Contains(err.Error(), "\x1b")) {
			t.Errorf("status %d: %q", test.status, err)
		}
	}
	if err := request(traffic.Promote, traffic.Request{URL: server.URL + "/?s=410"}).Promote(t.Context()); err == nil || errors.Is(err, rollout.ErrStuck) {
		t.Error(err)
	}
}

// An endless answer is read up to its limit. That is an error only for operations that use the answer.
func TestAnswersWithoutEnd(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 32<<10)); err != nil {
				return
			}
		}
	})
	for name, with := range map[string]func(traffic.Operation) *traffic.Adapter{
		"command": func(op traffic.Operation) *traffic.Adapter { return program(t, op, "much") },
		"request": func(op traffic.Operation) *traffic.Adapter { return request(op, traffic.Request{URL: server.URL}) },
	} {
		if _, err := with(traffic.Revision).Revision(t.Context()); err == nil || !strings.Contains(err.Error(), "longer than") {
			t.Errorf("%s: %v", name, err)
		}
		testenv.Equal(t, with(traffic.ScaleUp).ScaleUp(t.Context()), nil, name)
	}
}

// Redirects with 307 and 308 are followed on the same origin, with the body. A POST
// follows no other redirect, and no other origin gets credentials.
func TestHTTPRedirects(t *testing.T) {
	other := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("another origin was asked") })
	tests := map[string]struct {
		status int
		to     string
		want   string
	}{
		"307":                {307, "/end", ""},
		"302":                {302, "/end", "redirect to /end refused"},
		"307, other origin":  {307, other.URL + "/end?t=tok3n", "redirect to " + other.URL + "/end?t=*** refused"},
		"307 for ever":       {307, "/", "status 307"},
		"307, not a URL":     {307, "http://%zz", "redirect to http"},
		"307 without a word": {307, "", "status 307"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			server := serve(t, func(w http.ResponseWriter, req *http.Request) {
				if req.URL.Path == "/end" {
					body, _ := io.ReadAll(req.Body)
					got = req.Method + " " + req.Header.Get("Authorization") + " " + string(body)
					return
				}
				if test.to != "" {
					w.Header().Set("Location", test.to)
				}
				w.WriteHeader(test.status)
			})
			err := request(traffic.Promote, traffic.Request{
				URL: server.URL + "/", Header: map[string]string{"Authorization": "Bearer tok3n"}, Body: "hello",
			}).Promote(t.Context())
			switch {
			case test.want == "" && (err != nil || got != "POST Bearer tok3n hello"):
				t.Errorf("%q, %v", got, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "tok3n") || got != ""):
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestHTTPErrorsAreClean(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, req *http.Request) {
		http.Error(w, "no: "+req.Header.Get("Authorization")+" "+req.Header.Get("X-Key"), http.StatusForbidden)
	})
	a := request(traffic.Promote, traffic.Request{URL: strings.Replace(server.URL, "://", "://user:pa55@", 1) + "/?k=k3y", Header: map[string]string{"X-Key": "s3cret-key", "Authorization": "Bearer tok3n"}})
	unreachable := request(traffic.Promote, traffic.Request{URL: "http://user:pa55@127.0.0.1:1/?k=k3y"})
	for _, err := range []error{a.Promote(t.Context()), unreachable.Promote(t.Context())} {
		if err == nil {
			t.Fatal("no error")
		}
		for _, secret := range []string{"pa55", "k3y", "s3cret-key", "tok3n"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q leaks in %q", secret, err)
			}
		}
	}
}

func TestHTTPThatHangs(t *testing.T) {
	arrived := make(chan struct{}, 1)
	server := serve(t, func(_ http.ResponseWriter, req *http.Request) {
		arrived <- struct{}{}
		<-req.Context().Done()
	})
	a := request(traffic.CanaryReady, traffic.Request{URL: server.URL})
	cause := errors.New("because")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-arrived; cancel(cause) }()
	if err := a.CanaryReady(ctx); !errors.Is(err, cause) {
		t.Error(err)
	}
	a.Timeout = 20 * time.Millisecond
	if err := a.CanaryReady(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not done after 20ms") {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	command := func(args ...string) *traffic.Command { return &traffic.Command{Args: args} }
	for want, test := range map[string]struct {
		op     traffic.Operation
		action traffic.Action
	}{
		`"scale" is not`:         {"scale", command("x")},
		"scale-up: argument 1":   {traffic.ScaleUp, command("x", "{{.Nothing}}")},
		"scale-down: argument 1": {traffic.ScaleDown, command("x", "{{")},
		"scale-up: url":          {traffic.ScaleUp, &traffic.Request{URL: "h/x"}},
		"scale-down: url":        {traffic.ScaleDown, &traffic.Request{URL: "http://h/{{.Nothing}}"}},
		"promote: body":          {traffic.Promote, &traffic.Request{URL: "http://h", Body: "{{"}},
		"canary-ready: header A": {traffic.CanaryReady, &traffic.Request{URL: "http://h", Header: map[string]string{"A": "{{range .Name}}{{end}}"}}},
		"revision: url":          {traffic.Revision, &traffic.Request{URL: "ftp://user:pa55@h"}},
	} {
		a := &traffic.Adapter{Actions: map[traffic.Operation]traffic.Action{test.op: test.action}}
		if err := a.Check(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pa55") {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	a := &traffic.Adapter{Actions: map[traffic.Operation]traffic.Action{
		traffic.CanaryReady: command("{{.Name}}", "{{.Canary}}"), traffic.PrimaryReady: &traffic.Request{URL: "http://h/{{.Name}}"}, traffic.ScaleUp: command("x"),
	}}
	testenv.Equal(t, a.Check(), nil)
}

// Templates that would run forever or use all memory are refused.
func TestTemplatesThatAreHostile(t *testing.T) {
	nest := func(n int, f string) string {
		return "{{" + strings.Repeat("("+f+" ", n) + `"\\\\"` + strings.Repeat(")", n) + "}}"
	}
	tests := map[string]string{
		"missing": "{{.Nothing}}",
		"range":   "{{range 9223372036854775807}}{{end}}",
		"block":   `{{block "a" .}}{{end}}`,
		"in else": `{{if true}}{{else if true}}{{range 5}}{{end}}{{end}}`,
		"printf":  `{{printf "%999999999d" 1}}`,
		"json":    nest(60, "json"),
		"js":      nest(60, "js"),
		"long":    strings.Repeat("{{.Name}}", 64<<10),
		"longer":  `{{urlquery "` + strings.Repeat("%", 60<<10) + `"}}`,
		"open":    "{{",
		"unknown": "{{env}}",
	}
	for name, text := range tests {
		c := &traffic.Command{Args: []string{"x", text}}
		if err := c.Check(traffic.ScaleUp); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	harmless := map[string]string{"comment": "{{/* nothing */}}", "comparison": `{{if and (ge .Canary 0) (eq .Name "")}}a{{end}}`, "trim": "a {{- .Canary -}} b", "braces": "{ }} {", "percent": "%s"}
	for name, text := range harmless {
		c := &traffic.Command{Args: []string{"x", text}}
		testenv.Equal(t, c.Check(traffic.ScaleUp), nil, name)
	}
}

func TestInvalidRoutes(t *testing.T) {
	for _, r := range []rollout.Routes{{}, {Primary: 50, Canary: 49}, {Primary: 110, Canary: -10}, {Primary: -1, Canary: 101}} {
		for name, port := range map[string]rollout.Traffic{
			"proxy":   &traffic.Proxy{Primary: "http://127.0.0.1:1", Canary: "http://127.0.0.1:2"},
			"adapter": new(traffic.Adapter),
		} {
			if err := port.SetRoutes(t.Context(), r); err == nil || !strings.Contains(err.Error(), "100") {
				t.Errorf("%s: %+v: %v", name, r, err)
			}
			if got, err := port.Routes(t.Context()); err != nil || got != (rollout.Routes{Primary: 100}) {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
	}
}
