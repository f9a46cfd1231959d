package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
)

// TestExamples runs a copy of each example and compares the output with its README, as for
// documents; -update writes it. If the output asks the user to type a command, the test types it
// immediately.
func TestExamples(t *testing.T) {
	scripts, err := filepath.Glob("../../examples/*/run")
	if err != nil || len(scripts) < 5 {
		t.Fatalf("%d examples, %v", len(scripts), err)
	}
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	me, err := user.Current()
	must(t, err)
	for _, script := range scripts {
		name := filepath.Base(filepath.Dir(script))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			must(t, os.CopyFS(dir, os.DirFS("../../examples")))
			env := append(slices.Concat(testenv.GitEnv(t), goEnv()), "GORACE=atexit_sleep_ms=0", "INTERVAL=500ms")
			for _, address := range []string{"ADDR", "TESTER", "PROXY"} {
				env = append(env, address+"=127.0.0.1:0")
			}
			cmd := exec.CommandContext(t.Context(), "bash", "run") // executing the file itself fails with "text file busy" while another test forks
			cmd.Dir, cmd.Env, cmd.SysProcAttr = filepath.Join(dir, name), append(os.Environ(), env...), &syscall.SysProcAttr{Setpgid: true}
			var errs bytes.Buffer
			cmd.Stderr = &errs
			r, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			stop := time.AfterFunc(5*time.Minute, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
			defer stop.Stop()
			shown := "$ ./run\n"
			for lines := bufio.NewScanner(r); lines.Scan(); {
				shown += lines.Text() + "\n"
				if page := regexp.MustCompile(`http://\S+/ui/`).FindString(lines.Text()); page != "" {
					if r, text := sendRequest(t, "GET", page, ""); r.StatusCode != http.StatusOK {
						t.Errorf("%s: %s %s", page, r.Status, text)
					}
				}
				if strings.HasPrefix(lines.Text(), "headgate ") {
					typed := exec.CommandContext(t.Context(), "sh", "-c", lines.Text())
					typed.Dir, typed.Env = cmd.Dir, cmd.Env
					if out, err := typed.CombinedOutput(); err != nil {
						t.Errorf("%s: %v\n%s", lines.Text(), err, out)
					}
				}
			}
			if err := cmd.Wait(); err != nil {
				logs, _ := filepath.Glob(filepath.Join(cmd.Dir, "work", "*.log"))
				for _, log := range logs {
					fmt.Fprintf(&errs, "%s:\n%s", filepath.Base(log), read(t, log))
				}
				t.Errorf("%v\n%s%s", err, shown, &errs)
			}
			for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				syscall.Wait4(-cmd.Process.Pid, nil, syscall.WNOHANG, nil) // if another test made this process a subreaper
				if syscall.Kill(-cmd.Process.Pid, 0) == syscall.ESRCH {
					break
				}
				if time.Now().After(until) {
					syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
					t.Error("a process of it is left")
					break
				}
			}
			shown = strings.NewReplacer(dir, "/home/anna/examples", me.Username+"  looks good", "anna  looks good").Replace(shown)
			page := filepath.Join("../../examples", name, "README.md")
			text := read(t, page)
			for _, b := range blocks(text) {
				if b.lang != "console" {
					continue
				}
				if *update {
					must(t, os.WriteFile(page, []byte(strings.Replace(text, b.text, shown, 1)), 0o644))
				} else if normalizeOutput(b.text) != normalizeOutput(shown) {
					t.Errorf("the README shows\n%s\nbut it is\n%s\n%s", b.text, shown, &errs)
				}
			}
			if n := strings.Count(text, "\n"); n > 25 && !*update {
				t.Errorf("the README has %d lines", n)
			}
		})
	}
}
