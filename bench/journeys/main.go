// Journeys builds the command with coverage, runs its shortest use cases, and prints for each how
// many functions of this module it executes and in how many files. Functions that `headgate
// version` executes too are not counted. Function literals count as functions. Each number is
// compared with its bound; with -check an exceeded bound is a failure. See docs/benchmarks.md.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	check := flag.Bool("check", false, "fail on a missed bound")
	list := flag.String("list", "", "print the functions of this `journey` instead: fetch, again, bash, gate or serve")
	flag.Parse()
	if err := run(context.Background(), *check, *list); err != nil {
		fmt.Fprintln(os.Stderr, "journeys:", err)
		os.Exit(1)
	}
}

// A journey is one use of the command. The function do runs it and writes the coverage data to the
// directory cover.
type journey struct {
	name, title      string
	functions, files int // upper bounds
	do               func(ctx context.Context, l *workspace, cover string) error
}

var journeys = []journey{
	{"fetch", "fetch of a two-file repository over HTTP, cache off", 380, 90, func(ctx context.Context, l *workspace, cover string) error {
		return runCommand(l.headgate(ctx, cover, l.fetchArgs()...))
	}},
	{"again", "fetch again, unchanged", 250, 70, func(ctx context.Context, l *workspace, cover string) error {
		return runCommand(l.headgate(ctx, cover, l.fetchArgs()...))
	}},
	{"bash", "test runner: one POST / of type bash", 150, 50, func(ctx context.Context, l *workspace, cover string) error {
		return l.tester(ctx, cover, "/", `{"name":"app","namespace":"default","phase":"Progressing","metadata":{"type":"bash","cmd":"true"}}`, http.StatusOK)
	}},
	{"gate", "test runner: one check of a gate", 90, 35, func(ctx context.Context, l *workspace, cover string) error {
		return l.tester(ctx, cover, "/gate/check", `{"name":"app","namespace":"default","phase":"Progressing"}`, http.StatusForbidden)
	}},
	{"serve", "serve: one object stored", 520, 130, func(ctx context.Context, l *workspace, cover string) error {
		return l.server(ctx, cover, "outcome=stored", func(string) error { return nil }, "serve", "--addr", "127.0.0.1:0", "-f", l.document, "--store", filepath.Join(l.dir, "served"), "--cache-size", "0")
	}},
}

// A workspace has the command, built with coverage, and its input.
type workspace struct {
	dir      string
	command  string
	document string
}

func run(ctx context.Context, check bool, list string) error {
	dir, err := os.MkdirTemp("", "headgate-journeys-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l := &workspace{dir: dir, command: filepath.Join(dir, "headgate"), document: filepath.Join(dir, "sources.yaml")}
	if err := runCommand(exec.CommandContext(ctx, "go", "build", "-C", "..", "-cover", "-coverpkg="+module+"/...", "-o", l.command, "./cmd/headgate")); err != nil {
		return err
	}
	server, err := l.origin(ctx)
	if err != nil {
		return err
	}
	defer server.Close()

	base, err := l.executedFunctions(ctx, "version", func(ctx context.Context, l *workspace, cover string) error {
		return runCommand(l.headgate(ctx, cover, "version"))
	})
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "journey\tfunctions\tat most\tfiles\tat most\t")
	missed := 0
	for _, j := range journeys {
		all, err := l.executedFunctions(ctx, j.name, j.do)
		if err != nil {
			return fmt.Errorf("%s: %w", j.name, err)
		}
		files := map[string]bool{}
		functions := 0
		for f := range all {
			if !base[f] {
				functions++
				files[f.file] = true
				if j.name == list {
					fmt.Println(f)
				}
			}
		}
		verdict := "reached"
		if functions > j.functions || len(files) > j.files {
			verdict = "missed"
			missed++
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%s\n", j.title, functions, j.functions, len(files), j.files, verdict)
	}
	if list == "" {
		table.Flush()
	}
	if check && missed > 0 {
		return fmt.Errorf("%d of %d bounds missed", missed, len(journeys))
	}
	return nil
}

// origin serves a repository with two files over HTTP and writes the document of a GitRepository
// for it.
func (l *workspace) origin(ctx context.Context) (*httptest.Server, error) {
	tree, bare := filepath.Join(l.dir, "tree"), filepath.Join(l.dir, "origin", "app.git")
	if err := os.MkdirAll(tree, 0o777); err != nil {
		return nil, err
	}
	for _, name := range []string{"a.yaml", "b.yaml"} {
		if err := os.WriteFile(filepath.Join(tree, name), []byte("name: "+name+"\n"), 0o666); err != nil {
			return nil, err
		}
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=bench", "GIT_AUTHOR_EMAIL=bench@example.org", "GIT_COMMITTER_NAME=bench", "GIT_COMMITTER_EMAIL=bench@example.org"}
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", tree}, {"-C", tree, "add", "."}, {"-C", tree, "commit", "-q", "-m", "two files"}, {"clone", "-q", "--bare", tree, bare},
	} {
		git := exec.CommandContext(ctx, "git", args...)
		git.Env = env
		if err := runCommand(git); err != nil {
			return nil, err
		}
	}
	path, err := exec.CommandContext(ctx, "git", "--exec-path").Output()
	if err != nil {
		return nil, err
	}
	server := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env:  append(env, "GIT_PROJECT_ROOT="+filepath.Dir(bare), "GIT_HTTP_EXPORT_ALL=1"),
	})
	return server, os.WriteFile(l.document, fmt.Appendf(nil, "apiVersion: source.headgate.dev/v1\nkind: GitRepository\nmetadata: {name: app}\nspec: {url: %s/app.git, interval: 1h, ref: {branch: main}}\n", server.URL), 0o666)
}

func (l *workspace) fetchArgs() []string {
	return []string{"fetch", "-f", l.document, "--store", filepath.Join(l.dir, "store"), "--cache-size", "0"}
}

// headgate returns a command with a minimal environment.
func (l *workspace) headgate(ctx context.Context, cover string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, l.command, args...)
	cmd.Dir = l.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.dir, "GOCOVERDIR=" + cover}
	return cmd
}

// tester starts a test runner, posts one request and checks the status, and stops the test runner.
func (l *workspace) tester(ctx context.Context, cover, path, body string, want int) error {
	return l.server(ctx, cover, "serving webhooks at ", func(url string) error {
		resp, err := http.Post(url+path, "application/json", strings.NewReader(body))
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			return fmt.Errorf("POST %s: %s", path, resp.Status)
		}
		return nil
	}, "tester", "--addr", "127.0.0.1:0", "--state", filepath.Join(l.dir, "state"+strings.ReplaceAll(path, "/", "-")))
}

// server runs a server until it prints a line with words, calls do with the text after them, and
// terminates the server.
func (l *workspace) server(ctx context.Context, cover, words string, do func(string) error, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := l.headgate(ctx, cover, args...)
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	cmd.Stdout, cmd.Stderr = write, write
	err = cmd.Start()
	write.Close()
	if err != nil {
		return err
	}
	var log strings.Builder
	for lines := bufio.NewScanner(read); lines.Scan(); {
		fmt.Fprintln(&log, lines.Text())
		if _, after, found := strings.Cut(lines.Text(), words); found {
			err = errors.Join(err, do(after), cmd.Process.Signal(syscall.SIGTERM))
		}
	}
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return fmt.Errorf("%w\n%s", err, &log)
	}
	return nil
}

// executedFunctions returns the functions that one use of the command executes.
func (l *workspace) executedFunctions(ctx context.Context, name string, do func(context.Context, *workspace, string) error) (map[function]bool, error) {
	cover := filepath.Join(l.dir, "cover-"+name)
	if err := os.Mkdir(cover, 0o777); err != nil {
		return nil, err
	}
	if err := do(ctx, l, cover); err != nil {
		return nil, err
	}
	profile := cover + ".txt"
	if err := runCommand(exec.CommandContext(ctx, "go", "tool", "covdata", "textfmt", "-i="+cover, "-o="+profile)); err != nil {
		return nil, err
	}
	return coveredFunctions(profile)
}

// runCommand runs a command. If it fails, the error contains its output.
func runCommand(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}
