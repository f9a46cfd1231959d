package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-io/headgate/internal/testenv"
)

// A ciMachine runs the GitHub action or the GitLab template in its own directory, with the programs
// of a CI image and a release that a local server provides.
type ciMachine struct {
	t        *testing.T
	dir      string // working directory
	bin      string // the only directory of PATH
	releases string // directory that the release server serves
	env      []string
}

// headgateCI is the script that the action and the template share.
const headgateCI = "../../action/headgate-ci"

func newCIMachine(t *testing.T) *ciMachine {
	m := &ciMachine{t: t, dir: t.TempDir(), bin: t.TempDir(), releases: t.TempDir()}
	for _, name := range strings.Fields("bash sh uname mkdir mktemp rm sed cut sha256sum tar gzip mv tee cat dirname curl wget") {
		if at, err := exec.LookPath(name); err == nil {
			must(t, os.Symlink(at, filepath.Join(m.bin, name)))
		} else if name != "curl" && name != "wget" {
			t.Skip(err)
		}
	}
	if !exists(filepath.Join(m.bin, "curl")) && !exists(filepath.Join(m.bin, "wget")) {
		t.Skip("there is neither curl nor wget")
	}
	program, err := exec.LookPath("headgate")
	must(t, err)
	var archive bytes.Buffer
	zip := gzip.NewWriter(&archive)
	tw := tar.NewWriter(zip)
	text := "#!/bin/sh\nexec " + program + " \"$@\"\n"
	must(t, tw.WriteHeader(&tar.Header{Name: "headgate", Mode: 0o755, Size: int64(len(text))}))
	_, err = io.WriteString(tw, text)
	must(t, errors.Join(err, tw.Close(), zip.Close()))
	name := "headgate_9.1.0_" + runtime.GOOS + "_" + runtime.GOARCH + ".tar.gz"
	sums := fmt.Sprintf("%x  %s\n%064d  headgate_9.1.0_plan9_mips.tar.gz\n", sha256.Sum256(archive.Bytes()), name, 0)
	m.release("download/v9.1.0/"+name, archive.String())
	m.release("download/v9.1.0/checksums.txt", sums)
	m.release("latest/download/checksums.txt", sums)
	m.release("headgate-ci", read(t, headgateCI))
	server := httptest.NewServer(http.FileServer(http.Dir(m.releases)))
	t.Cleanup(server.Close)
	m.env = append(testenv.GitEnv(t), "HOME="+m.dir, "GORACE=atexit_sleep_ms=0",
		"HEADGATE_CI_RELEASES="+server.URL, "HEADGATE_CI_SCRIPT="+server.URL+"/headgate-ci", "RUNNER_TEMP="+m.dir)
	return m
}

// release adds a file to the release server.
func (m *ciMachine) release(name, text string) {
	m.t.Helper()
	name = filepath.Join(m.releases, name)
	must(m.t, os.MkdirAll(filepath.Dir(name), 0o755))
	m.write(name, text, 0o644)
}

func (m *ciMachine) write(name, text string, mode os.FileMode) {
	m.t.Helper()
	must(m.t, os.WriteFile(name, []byte(text), mode))
}

// shell runs a script with additional variables, and returns its output and its exit code.
func (m *ciMachine) shell(shell, script string, env ...string) (string, int) {
	m.t.Helper()
	path := m.bin
	if added, err := os.ReadFile(filepath.Join(m.dir, "path")); err == nil { // what GITHUB_PATH adds
		path = strings.TrimSpace(string(added)) + ":" + path
	}
	cmd := exec.Command(filepath.Join(m.bin, shell), "-e", "-c", script)
	cmd.Dir, cmd.Env = m.dir, append(append(append([]string{}, m.env...), env...), "PATH="+path)
	out, err := cmd.CombinedOutput()
	exit := new(exec.ExitError)
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// action runs the script steps of the action until one fails, as GitHub does.
func (m *ciMachine) action(ref string, inputs map[string]string) (string, int) {
	m.t.Helper()
	var action struct {
		Inputs map[string]struct{ Default string }
		Runs   struct {
			Steps []struct {
				If, Run, Shell, Uses string
				Env                  map[string]string
			}
		}
	}
	must(m.t, yaml.Unmarshal([]byte(read(m.t, "../../action/action.yml")), &action))
	for name := range inputs {
		if _, known := action.Inputs[name]; !known {
			m.t.Errorf("the action has no input %s", name)
		}
	}
	expression := regexp.MustCompile(`\$\{\{ (\S+) \}\}`)
	value := func(name string) string {
		switch name, input := strings.CutPrefix(name, "inputs."); {
		case input && inputs[name] != "":
			return inputs[name]
		case input:
			return action.Inputs[name].Default
		case name == "github.action_ref":
			return ref
		}
		m.t.Errorf("expression %q", name)
		return ""
	}
	scripts, err := filepath.Abs("../../action")
	must(m.t, err)
	all := ""
	for _, step := range action.Runs.Steps {
		if step.Uses != "" || step.If == "inputs.files != ''" && value("inputs.files") == "" {
			continue
		}
		env := []string{"GITHUB_ACTIONS=true", "GITHUB_ACTION_PATH=" + scripts, "GITHUB_STEP_SUMMARY=" + filepath.Join(m.dir, "summary.md"), "GITHUB_PATH=" + filepath.Join(m.dir, "path")}
		for name, text := range step.Env {
			env = append(env, name+"="+expression.ReplaceAllStringFunc(text, func(e string) string { return value(expression.FindStringSubmatch(e)[1]) }))
		}
		out, code := m.shell(step.Shell, step.Run, env...)
		if all += out; code != 0 {
			return all, code
		}
	}
	return all, 0
}

// gitlab runs the job of the template.
func (m *ciMachine) gitlab(inputs map[string]string) (string, int) {
	m.t.Helper()
	var head struct {
		Spec struct {
			Inputs map[string]struct {
				Default any
				Regex   string
			}
		}
	}
	documents := yaml.NewDecoder(strings.NewReader(read(m.t, "../../templates/headgate.yml")))
	must(m.t, documents.Decode(&head))
	var jobs map[string]struct {
		Variables map[string]string
		Script    []string
		Artifacts struct {
			Paths   []string
			Reports map[string]string
		}
	}
	must(m.t, documents.Decode(&jobs))
	fill := func(text string) string {
		return regexp.MustCompile(`\$\[\[ inputs\.(\w+) \]\]`).ReplaceAllStringFunc(text, func(e string) string {
			name := strings.Fields(e)[1][len("inputs."):]
			input, known := head.Spec.Inputs[name]
			if text, given := inputs[name]; given {
				if !regexp.MustCompile(input.Regex).MatchString(text) {
					m.t.Errorf("the template refuses %s %s", name, text)
				}
				return text
			} else if !known || input.Default == nil {
				m.t.Errorf("the template has no input %s with a default", name)
			}
			return fmt.Sprint(input.Default)
		})
	}
	for name, job := range jobs {
		if fill(name) != "headgate" || fill(job.Artifacts.Paths[0]) != "sources" || job.Artifacts.Reports["codequality"] != "gl-code-quality-report.json" {
			m.t.Errorf("job %s: %+v", fill(name), job.Artifacts)
		}
		env := []string{"GITLAB_CI=true"}
		for name, text := range job.Variables {
			env = append(env, name+"="+fill(text))
		}
		return m.shell("sh", fill(strings.Join(job.Script, "\n")), env...)
	}
	return "", -1
}

// ciDocuments returns a document whose repository exists, and one whose repository does not.
func ciDocuments(t *testing.T) (good, missing string) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Message: "first", Files: tree("one")})
	form := "apiVersion: source.headgate.dev/v1\nkind: GitRepository\nmetadata: {name: app}\nspec: {url: %q, interval: 5m, ref: {branch: %s}}\n"
	url := testenv.ServeGit(t, testenv.GitConfig{}, repo).Repo()
	return fmt.Sprintf(form, url, "main"), fmt.Sprintf(form, url, "none")
}

// TestAction checks that the action installs the release of its own version, fetches, and reports
// the result.
func TestAction(t *testing.T) {
	m := newCIMachine(t)
	good, missing := ciDocuments(t)
	must(t, os.Mkdir(filepath.Join(m.dir, "with space"), 0o755))
	sources := filepath.Join(m.dir, "with space", "sources.yaml")
	m.write(sources, good, 0o644)
	inputs := map[string]string{"files": "with space/sources.yaml\n", "out": "content", "store": "store", "args": " --parallel 2\n --cache-size 0"}
	wanted := func(out string, code, want int, texts ...string) {
		t.Helper()
		if code != want {
			t.Errorf("exit code %d, want %d: %s", code, want, out)
		}
		for _, text := range texts {
			if !regexp.MustCompile(text).MatchString(out) {
				t.Errorf("%s is not in %s", text, out)
			}
		}
	}
	out, code := m.action("v9.1.0", inputs)
	wanted(out, code, 0, "cosign is not installed", `\| GitRepository/default/app \| stored \| main@sha1:[0-9a-f]{40} \| sha256:[0-9a-f]{64} \|`)
	if read(t, filepath.Join(m.dir, "content", "at")) != "one\n" || !exists(filepath.Join(m.dir, "store", "gitrepository")) || exists(filepath.Join(m.dir, "store", cacheName)) {
		t.Error("the content is not there, or an argument has no effect")
	}
	wanted(read(t, filepath.Join(m.dir, "summary.md")), 0, 0, `(?s)^### Sources\n\n\| Object \|.*\| stored \|`)

	m.write(filepath.Join(m.dir, "bad.yaml"), strings.Replace(good, "interval: 5m", "interval: 5x", 1), 0o644)
	out, code = m.action("main", map[string]string{"files": "bad.yaml", "store": "store"})
	wanted(out, code, 2, `(?m)^::error file=bad.yaml,line=4,title=GitRepository/default/app::spec.interval: "5x" is no duration`, "headgate fetch failed: exit code 2")
	m.write(sources, missing, 0o644)
	out, code = m.action("0123456789abcdef", inputs)
	wanted(out, code, 1, `(?m)^::error file=with space/sources.yaml,line=1,title=GitRepository/default/app::.*branch "none" does not exist`, `\| GitRepository/default/app \| failed \|`)
	inputs["locked"] = "true"
	out, code = m.action("v9.1.0", inputs)
	wanted(out, code, 5, "::error .*is not in the lock")
	inputs["locked"] = "yes"
	out, code = m.action("v9.1.0", inputs)
	wanted(out, code, 2, "locked is yes: want true or false")
	out, code = m.action("v9.1.0", map[string]string{"version": "latest"}) // it only installs
	wanted(out, code, 0, "headgate .* linux/")
}

// TestActionRefuses checks that only the signed release is installed.
func TestActionRefuses(t *testing.T) {
	archive := "headgate_9.1.0_" + runtime.GOOS + "_" + runtime.GOARCH + ".tar.gz"
	const stub = "#!/bin/sh\nfor a; do last=$a; done\n[ $last = checksums.txt ] || exit 1\necho cosign \"$@\"\n"
	for name, test := range map[string]struct {
		change  func(*ciMachine)
		version string
		want    string // "" if the installation succeeds
	}{
		"tampered":   {func(m *ciMachine) { m.release("download/v9.1.0/"+archive, "another") }, "", "is not what checksums.txt of v9.1.0 says: nothing was installed"},
		"no sum":     {func(m *ciMachine) { m.release("download/v9.1.0/checksums.txt", "\n") }, "v9.1.0", "checksums.txt of v9.1.0 does not have " + archive},
		"no archive": {func(m *ciMachine) { os.Remove(filepath.Join(m.releases, "download/v9.1.0", archive)) }, "", "download/v9.1.0/" + archive + ", or it cannot be reached"},
		"no latest":  {func(m *ciMachine) { m.release("latest/download/checksums.txt", "\n") }, "latest", "the latest release has nothing for linux on"},
		"no release": {func(m *ciMachine) {}, "v9.2.0", "there is no .*/download/v9.2.0/checksums.txt"},
		"no version": {func(m *ciMachine) {}, "9.1.0", "version is 9.1.0: want one such as v0.1.0, or latest"},
		"a path":     {func(m *ciMachine) {}, "v9.1.0/../x", "version is v9.1.0/../x: want one"},
		"no client": {func(m *ciMachine) {
			os.Remove(filepath.Join(m.bin, "curl"))
			os.Remove(filepath.Join(m.bin, "wget"))
		}, "", "neither curl nor wget is installed"},
		"no signature": {func(m *ciMachine) { m.write(filepath.Join(m.bin, "cosign"), stub, 0o755) }, "", "checksums.txt.sigstore.json, or it cannot be reached"},
		"wrong signature": {func(m *ciMachine) {
			m.release("download/v9.1.0/checksums.txt.sigstore.json", "{}")
			m.write(filepath.Join(m.bin, "cosign"), "#!/bin/sh\nexit 1\n", 0o755)
		}, "", "is not that of the release workflow: nothing was installed"},
		"signature": {func(m *ciMachine) {
			m.release("download/v9.1.0/checksums.txt.sigstore.json", "{}")
			m.write(filepath.Join(m.bin, "cosign"), stub, 0o755)
		}, "", ""},
		"wget": {func(m *ciMachine) {
			if os.Remove(filepath.Join(m.bin, "curl")); !exists(filepath.Join(m.bin, "wget")) {
				m.t.Skip("there is no wget")
			}
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := newCIMachine(t)
			test.change(m)
			out, code := m.action("main", map[string]string{"version": test.version})
			installed := exists(filepath.Join(m.dir, ".headgate-ci", "headgate"))
			if installed != (test.want == "") || (code == 0) != installed || !regexp.MustCompile(test.want).MatchString(out) {
				t.Errorf("installed: %v, exit code %d, want %s: %s", installed, code, test.want, out)
			}
			if name == "signature" && !strings.Contains(out, "--certificate-identity https://github.com/headgate-io/headgate/.github/workflows/release.yml@refs/tags/v9.1.0 checksums.txt\n") {
				t.Error(out)
			}
		})
	}
}

// TestGitLabTemplate checks that the template fetches, and that it reports defects of documents.
func TestGitLabTemplate(t *testing.T) {
	m := newCIMachine(t)
	good, missing := ciDocuments(t)
	m.write(filepath.Join(m.dir, "sources.yaml"), good, 0o644)
	type issue struct{ Location struct{ Path string } }
	report := func() (issues []issue) {
		must(t, json.Unmarshal([]byte(read(t, filepath.Join(m.dir, "gl-code-quality-report.json"))), &issues))
		return issues
	}
	if out, code := m.gitlab(map[string]string{"version": "v9.1.0"}); code != 0 || len(report()) != 0 || read(t, filepath.Join(m.dir, "sources", "at")) != "one\n" {
		t.Errorf("exit code %d: %s", code, out)
	}
	m.write(filepath.Join(m.dir, "sources.yaml"), missing, 0o644)
	if out, code := m.gitlab(map[string]string{"version": "v9.1.0", "locked": "false"}); code != 1 || len(report()) != 1 || report()[0].Location.Path != "sources.yaml" {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, code := m.gitlab(map[string]string{"version": "v9.1.0", "locked": "true"}); code != 5 || len(report()) != 1 {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, code := m.gitlab(map[string]string{"version": "v9.1.0", "args": "--no-such-flag"}); code != 2 || len(report()) != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
}
