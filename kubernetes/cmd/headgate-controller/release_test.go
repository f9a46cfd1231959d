package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// TestRelease creates the two tags of a release in a repository with this tree. A program that
// requires the module by its tag, without replace directives, must find all packages that it needs.
func TestRelease(t *testing.T) {
	root, err := filepath.Abs("../../..")
	testenv.Must(t, err)
	dir := t.TempDir()
	repo := filepath.Join(dir, "repository")
	const version, module = "v0.999.0", "github.com/headgate-io/headgate"
	run := func(env []string, in, name string, args ...string) (string, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = in, append(os.Environ(), append(env, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
			"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.org", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.org")...)
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	git := func(args ...string) string {
		t.Helper()
		out, err := run([]string{"GIT_DIR=" + repo + "/.git", "GIT_WORK_TREE=" + root}, dir, "git", args...)
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return out
	}
	release := func() (string, error) {
		return run(nil, repo, filepath.Join(root, ".ci", "release-modules"), version)
	}
	testenv.Must(t, os.Mkdir(repo, 0o700))
	git("init", "-q")
	git("-C", root, "add", "-A")
	git("commit", "-qm", "a tree")
	if out, err := release(); err == nil || !strings.Contains(out, "there is no tag "+version) {
		t.Errorf("%v, %s", err, out)
	}
	git("tag", version)
	if out, err := release(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	testenv.Equal(t, git("diff", "--name-only", version, "kubernetes/"+version), "kubernetes/go.mod\nkubernetes/go.sum")
	mod := git("show", "kubernetes/"+version+":kubernetes/go.mod")
	if strings.Contains(mod, "replace") || !strings.Contains(mod, "\t"+module+" "+version+"\n") {
		t.Errorf("the tagged go.mod is\n%s", mod)
	}
	if _, err := release(); err == nil {
		t.Error("a tag was made again")
	}

	// The program uses the module cache of this machine for all other modules, and does not change
	// it.
	modules, err := run(nil, root, "go", "env", "GOMODCACHE")
	testenv.Must(t, err)
	cache := filepath.Join(dir, "modules")
	for _, part := range []string{"", "github.com", "cache", "cache/download", "cache/download/github.com"} {
		testenv.Must(t, os.MkdirAll(filepath.Join(cache, part), 0o700))
		entries, err := os.ReadDir(filepath.Join(modules, part))
		testenv.Must(t, err)
		for _, e := range entries {
			switch e.Name() {
			case "cache", "download", "github.com", "headgate-io", "vcs", "lock":
			default:
				testenv.Must(t, os.Symlink(filepath.Join(modules, part, e.Name()), filepath.Join(cache, part, e.Name())))
			}
		}
	}
	program := filepath.Join(dir, "program")
	testenv.Must(t, os.Mkdir(program, 0o700))
	for name, text := range map[string]string{
		"go.mod":  "module example.org/program\n\ngo 1.26.0\n\nrequire " + module + "/kubernetes " + version + "\n",
		"main.go": "package main\n\nimport _ \"" + module + "/kubernetes/controller\"\n\nfunc main() {}\n",
	} {
		testenv.Must(t, os.WriteFile(filepath.Join(program, name), []byte(text), 0o600))
	}
	out, err := run([]string{
		"GOMODCACHE=" + cache, "GOFLAGS=-mod=mod -modcacherw", "GOPRIVATE=" + module, "GONOSUMDB=*", "GOWORK=off",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://" + repo + "/.git.insteadOf", "GIT_CONFIG_VALUE_0=https://" + module,
	}, program, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}", ".")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{module + " " + version, module + "/kubernetes " + version} {
		if !strings.Contains("\n"+out+"\n", "\n"+want+"\n") {
			t.Errorf("the program does not use %s", want)
		}
	}
}
