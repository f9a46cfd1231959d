package tester_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
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

// TestGResourceExhaustion: bodies, output, time, runs at a time and their memory have limits.
func TestGResourceExhaustion(t *testing.T) {
	d := openDoor(t, func(w *doorway) {
		w.server.MaxBody = 10 << 10
		w.Runs.Concurrency, w.Runs.Queue, w.Runs.OutputLimit = 1, 1, 4<<10
	})
	d.post("/", canary("shop", `{"type": "bash", "cmd": "`+strings.Repeat("x", 10<<10)+`"}`)).is(t, "a long body", 413, "longer than 10240 bytes")
	d.post("/gate/open", canary("shop", `{"x": "`+strings.Repeat("x", 10<<10)+`"}`)).is(t, "a long body of a gate", 413, "")
	d.post("/", strings.Repeat("[", 5<<10)).is(t, "a deep body", 400, "")

	d.post("/", canary("shop", `{"type": "bash", "cmd": "echo x", "outputLimit": "99999999999"}`)).is(t, "an output without limit", 400, "outputLimit")
	d.post("/", canary("shop", `{"type": "bash", "cmd": "sleep 600", "timeout": "0.2"}`)).is(t, "a run that takes too long", 422, "timed out")
	d.post("/", canary("shop", `{"cmd": "sleep 600"}`)).is(t, "the one run at a time", 202, "")
	d.post("/", canary("shop", `{"cmd": "sleep 601"}`)).is(t, "the one that waits", 202, "")
	if got := d.post("/", canary("shop", `{"cmd": "sleep 602"}`)); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("one too many: %+v", got)
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
