package tester_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

// TestGCommandInjection: what may run is said by the owner of the test runner.
func TestGCommandInjection(t *testing.T) {
	command, marks := marker(t)
	mark := strings.TrimPrefix(command, "echo >>")
	dir := t.TempDir()
	for name, script := range map[string]string{"allowed": "#!/bin/sh\nfor a; do echo \"<$a>\"; done\n", "evil": "#!/bin/sh\necho >>" + mark + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	for name, tt := range map[string]struct {
		set    func(*doorway)
		tasks  map[string]int // statuses by metadata
		output string         // of those with 200
	}{
		"allow-list": {func(w *doorway) { w.server.Tools.Allow = []string{"allowed"} }, map[string]int{
			`{"type": "bash", "cmd": "allowed a '; echo >>` + mark + `'", "returnCmdOutput": "true"}`:                   200,
			`{"type": "bash", "cmd": "allowed ; evil"}`:                                                                 400,
			`{"type": "bash", "cmd": "allowed a|evil"}`:                                                                 200,
			`{"type": "bash", "cmd": "allowed $(evil)"}`:                                                                200,
			"{\"type\": \"bash\", \"cmd\": \"allowed `evil`\"}":                                                         200,
			`{"type": "bash", "cmd": "allowed\nevil"}`:                                                                  200, // words, all of them, as those that follow
			`{"type": "bash", "cmd": "allowed a && evil"}`:                                                              400,
			`{"type": "bash", "cmd": "evil"}`:                                                                           400,
			`{"type": "bash", "cmd": "` + dir + `/evil"}`:                                                               400,
			`{"type": "bash", "cmd": "` + dir + `/allowed/../evil"}`:                                                    400,
			`{"type": "bash", "cmd": "sh -c evil"}`:                                                                     400,
			`{"type": "bash", "cmd": "env evil"}`:                                                                       400,
			`{"type": "bash", "shell": "true", "cmd": "allowed; evil"}`:                                                 400,
			`{"type": "cmd", "wait": "true", "cmd": "evil"}`:                                                            400,
			`{"type": "helm", "cmd": "version"}`:                                                                        400,
			`{"type": "kubectl", "cmd": "version"}`:                                                                     400,
			`{"type": "k6", "script": "x"}`:                                                                             400,
			`{"type": "bash", "cmd": "allowed", "env.PATH": "` + dir + `"}`:                                             400,
			`{"type": "bash", "cmd": "allowed", "env.LD_PRELOAD": "/tmp/x.so"}`:                                         400,
			`{"type": "bash", "cmd": "PATH=` + dir + ` allowed"}`:                                                       400,
			`{"type": "bash", "cmd": "allowed", "env.BASH_ENV": "` + filepath.Join(dir, "evil") + `"}`:                  400,
			`{"type": "bash", "cmd": "allowed ` + strings.Repeat(`\"`, 3) + `"}`:                                        400,
			`{"type": "bash", "cmd": "@allowed"}`:                                                                       400,
			`{"type": "bash", "cmd": ""}`:                                                                               400,
			`{"type": "bash", "cmd": "  "}`:                                                                             400,
			`{"type": "Bash", "cmd": "allowed"}`:                                                                        400,
			`{"type": "bash", "CMD": "allowed"}`:                                                                        400,
			`{"type": "bash", "cmd": "allowed \u0000evil"}`:                                                             400,
			`{"type": "bash", "cmd": "allowed", "shell": "/bin/sh"}`:                                                    400,
			`{"type": "bash", "cmd": "allowed", "timeout": "1; evil"}`:                                                  400,
			`{"type": "bash", "cmd": "allowed ${IFS}evil"}`:                                                             200,
			`{"type": "bash", "cmd": "allowed >` + mark + `"}`:                                                          200,
			`{"type": "bash", "cmd": "./allowed"}`:                                                                      400,
			`{"type": "bash", "cmd": "allowed <(evil)"}`:                                                                200,
			`{"type": "bash", "cmd": "allowed --x='$(evil)' \"$(evil)\"", "shell": "false", "returnCmdOutput": "true"}`: 200,
		}, "<"},
		"named commands": {func(w *doorway) {
			w.server.Tools.Commands, w.server.Tools.OnlyNamed = map[string]string{"smoke": "allowed --url ${url} fixed", "rm": "allowed ${what}"}, true
		}, map[string]int{
			`{"type": "bash", "cmd": "@smoke", "arg.url": "x y; evil", "returnCmdOutput": "true"}`: 200,
			`{"type": "bash", "cmd": "@smoke"}`:                                                    400,
			`{"type": "bash", "cmd": "@smoke", "arg.url": "x", "arg.other": "y"}`:                  400,
			`{"type": "bash", "cmd": "@rm", "arg.what": "--all"}`:                                  400,
			`{"type": "bash", "cmd": "@smoke; evil", "arg.url": "x"}`:                              400,
			`{"type": "bash", "cmd": "@evil"}`:                                                     400,
			`{"type": "bash", "cmd": "allowed"}`:                                                   400,
			`{"type": "helm", "cmd": "@smoke"}`:                                                    400,
			`{"type": "kubectl", "cmd": "get pods"}`:                                               400,
			`{"type": "k6", "script": "x"}`:                                                        400,
		}, "<x y; evil>"},
		"types": {func(w *doorway) { w.server.Types = []string{"kubectl", "workflow"} }, map[string]int{
			`{"type": "bash", "cmd": "evil"}`: 403, `{"cmd": "evil"}`: 403, `{"type": "cmd", "cmd": "evil"}`: 403, `{"type": "pkgtest", "cmd": "x"}`: 403, `{"type": "concord"}`: 400,
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := openDoor(t, func(w *doorway) {
				w.server.Tools.Env = path
				tt.set(w)
			})
			for metadata, status := range tt.tasks {
				got := d.post("/", canary("shop", metadata))
				if got.status != status || status == 200 && strings.Contains(metadata, "returnCmdOutput") && !strings.Contains(got.body, tt.output) {
					t.Errorf("%s: %d %q, want %d %s", metadata, got.status, got.body, status, tt.output)
				}
			}
		})
	}
	if n := marks(); n != 0 {
		t.Errorf("%d commands ran that nobody allowed", n)
	}
}

// TestGEnvironmentLeakage: a task has the environment that the owner gives it, and no file or pipe of the test runner.
func TestGEnvironmentLeakage(t *testing.T) {
	t.Setenv("HEADGATE_CANARY", "leaked-value-0123")
	d := openDoor(t, func(w *doorway) {
		w.server.Tools.Env = append(w.server.Tools.Env, "GIVEN=yes")
		w.server.Tools.PassEnv = []string{"STAGE"}
		w.Runs.Dir = t.TempDir()
	})
	for _, kind := range []string{"bash", "cmd"} {
		got := d.post("/", canary("shop", `{"type": "`+kind+`", "wait": "true", "cmd": "env; ls -l /proc/self/fd; pwd", "returnCmdOutput": "true", "env.STAGE": "prod-1234567"}`))
		if got.is(t, kind, 200, "GIVEN=yes"); strings.Contains(got.body, "leaked") || strings.Contains(got.body, "HEADGATE_CANARY") || strings.Contains(got.body, ".db") {
			t.Errorf("%s has more than it was given:\n%s", kind, got.body)
		}
		if strings.Contains(got.body, "prod-1234567") || !strings.Contains(got.body, "STAGE=***") {
			t.Errorf("%s: a value of metadata is not masked in the output:\n%s", kind, got.body)
		}
	}
	d.post("/", canary("shop", `{"type": "bash", "cmd": "env", "env.OTHER": "x"}`)).is(t, "a variable that may not be set", 400, "env.OTHER")
}

// TestGResourceExhaustion: bodies, output, time, runs at a time and their memory have limits.
func TestGResourceExhaustion(t *testing.T) {
	d := openDoor(t, func(w *doorway) {
		w.server.MaxBody = 10 << 10
		w.Runs.Concurrency, w.Runs.Queue, w.Runs.OutputLimit = 1, 1, 4<<10
	})
	d.post("/", canary("shop", `{"type": "bash", "cmd": "`+strings.Repeat("x", 10<<10)+`"}`)).is(t, "a long body", 413, "longer than 10240 bytes")
	d.post("/gate/open", canary("shop", `{"x": "`+strings.Repeat("x", 10<<10)+`"}`)).is(t, "a long body of a gate", 413, "")
	d.post("/", strings.Repeat("[", 5<<10)).is(t, "a deep body", 400, "")

	muchOutput(t, d)
	d.post("/", canary("shop", `{"type": "bash", "cmd": "echo x", "outputLimit": "99999999999"}`)).is(t, "an output without limit", 400, "outputLimit")
	d.post("/", canary("shop", `{"type": "bash", "cmd": "sleep 600", "timeout": "0.2"}`)).is(t, "a run that takes too long", 422, "timed out")
	if runtime.GOOS == "linux" {
		got := d.post("/", canary("shop", `{"type": "bash", "cmd": "cat /proc/self/status", "returnCmdOutput": "true"}`))
		got.is(t, "privileges", 200, "NoNewPrivs:\t1")
	}
	d.post("/", canary("shop", `{"cmd": "sleep 600"}`)).is(t, "the one run at a time", 202, "")
	d.post("/", canary("shop", `{"cmd": "sleep 601"}`)).is(t, "the one that waits", 202, "")
	if got := d.post("/", canary("shop", `{"cmd": "sleep 602"}`)); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("one too many: %+v", got)
	}
}

// muchOutput has a run write 50 MB, and sees what of it is in memory before the run ends.
func muchOutput(t *testing.T, d *door) {
	t.Helper()
	dir := t.TempDir()
	written, release := filepath.Join(dir, "written"), filepath.Join(dir, "release")
	if out, err := exec.Command("mkfifo", written, release).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	reached, err := os.OpenFile(written, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(release, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	before := measure.Live()
	answer := make(chan reply, 1)
	go func() {
		answer <- d.post("/", canary("shop", `{"type": "bash", "cmd": "head -c 50000000 /dev/zero | tr '\\0' 'x'; echo >`+written+`; read -r _ <`+release+`", "returnCmdOutput": "true"}`))
		reached.Close()
	}()
	if _, err := reached.Read(make([]byte, 1)); err != nil {
		t.Fatalf("the run ended early: %+v", <-answer)
	}
	if grown := measure.Live() - before; grown > 8<<20 {
		t.Errorf("50 MB of output: the heap has grown by %d bytes", grown)
	}
	if _, err := held.WriteString("go on\n"); err != nil {
		t.Fatal(err)
	}
	got := <-answer
	if got.is(t, "50 MB of output", 200, "xxx"); len(got.body) > 5<<10 {
		t.Errorf("50 MB of output: the answer has %d bytes", len(got.body))
	}
}

// TestSecretsAreBounded refuses requests in which there is more to be masked than
// can be, and none for repeating itself.
func TestSecretsAreBounded(t *testing.T) {
	url := "http://" + serve(t, newServer(t))
	var many strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&many, " http://u:pass%d@h/", i)
	}
	for cmd, want := range map[string]int{
		"true" + many.String():                                  http.StatusBadRequest,
		"true http://u:" + strings.Repeat("x", 300<<10) + "@h/": http.StatusBadRequest,
		"true" + strings.Repeat(" http://u:the-same@h/", 2000):  http.StatusOK,
	} {
		if status, text := mustPost(t, url, payload("masked", `{"type":"bash","cmd":"`+cmd+`"}`)); status != want || want != http.StatusOK && !strings.Contains(text, "secrets") {
			t.Errorf("%.20s: status %d %.100s", cmd, status, text)
		}
	}
}

// TestGOrphans: whatever a run started ends with it.
func TestGOrphans(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a process can leave its group unseen")
	}
	pids := filepath.Join(t.TempDir(), "pids")
	d := openDoor(t, nil)
	script := `trap '' TERM; sleep 600 & echo $! >>` + pids + `; (sleep 602 & echo $! >>` + pids + `) ; echo $$ >>` + pids + `; echo ready; while :; do sleep 1; done | cat`
	answer := make(chan reply, 1)
	go func() {
		answer <- d.post("/", canary("shop", `{"type": "bash", "cmd": "`+script+`", "logCmdOutput": "true"}`))
	}()
	d.log.wait(t, `"line":"ready"`)
	id := d.Server.Runs.Runs(api.Filter{})[0].ID
	d.post("/api/v1/runs/"+id+"/cancel", "").is(t, "cancel", 200, "cancelled")
	(<-answer).is(t, "who waited", 422, "cancelled")
	text, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(text))
	if len(lines) < 3 {
		t.Fatalf("processes: %q", text)
	}
	for _, line := range lines {
		pid, err := strconv.Atoi(line)
		if err != nil {
			t.Fatal(err)
		}
		if state := processState(pid); state != "" && state != "Z" {
			t.Errorf("process %d is still there: %s", pid, state)
			if p, err := os.FindProcess(pid); err == nil {
				p.Kill()
			}
		}
	}
}

// processState returns the state of a process, "" when there is none.
func processState(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}
