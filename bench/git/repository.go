package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	commits  = 9
	tags     = 500
	everyNth = 50 // each later commit changes every nth file
)

// A repo is a repository of the benchmark. Several refs name the same tree.
type repo struct {
	name   string // file name below the served directory
	commit string // the tip of main
}

// env returns the environment of git, which excludes the configuration of the
// machine.
func env() []string {
	return append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
}

func git(ctx context.Context, dir string, in io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stderr = dir, env(), in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// repositories creates plain.git, and tags.git with 500 tags and a pull request,
// unless they exist.
func repositories(ctx context.Context, dir string) (map[string]repo, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	src := filepath.Join(strings.TrimSpace(string(root)), "src")
	all := map[string]repo{}
	for _, name := range []string{"plain", "tags"} {
		path := filepath.Join(dir, name+".git")
		if _, err := os.Stat(path); err != nil {
			fmt.Fprintf(os.Stderr, "making %s.git from %s\n", name, src)
			if err := makeRepo(ctx, path, src, name == "tags"); err != nil {
				return nil, fmt.Errorf("make %s: %w", path, err)
			}
		}
		id, err := git(ctx, path, nil, "rev-parse", "main")
		if err != nil {
			return nil, err
		}
		all[name] = repo{name + ".git", id}
	}
	return all, nil
}

func makeRepo(ctx context.Context, path, src string, tagged bool) error {
	unfinished := path + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if _, err := git(ctx, "", nil, "init", "-q", "--bare", "-b", "main", unfinished); err != nil {
		return err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(export(w, src, tagged)) }()
	if _, err := git(ctx, unfinished, r, "fast-import", "--quiet"); err != nil {
		return err
	}
	if _, err := git(ctx, unfinished, nil, "repack", "-adfq", "--window=10"); err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}

// export writes the history as input of git fast-import.
func export(out io.Writer, src string, tagged bool) error {
	w := bufio.NewWriterSize(out, 1<<20)
	for n := range commits {
		fmt.Fprintf(w, "commit refs/heads/main\nmark :%d\ncommitter bench <bench@example.com> %d +0000\ndata 6\nchange\n", n+1, 1700000000+n*60)
		if err := exportFiles(w, src, n); err != nil {
			return err
		}
	}
	if tagged {
		for n := range tags - 1 {
			fmt.Fprintf(w, "reset refs/tags/v1.%d.0\nfrom :%d\n\n", n, n%commits+1)
		}
		fmt.Fprintf(w, "reset refs/tags/v2.0.0\nfrom :%d\n\nreset refs/pull/1/head\nfrom :%d\n\n", commits, commits)
	}
	return w.Flush()
}

// exportFiles writes the files that commit n changes.
func exportFiles(w *bufio.Writer, src string, n int) error {
	count := 0
	return filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if count++; n > 0 && count%everyNth != 0 {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		if n > 0 {
			data = fmt.Appendf(data, "// change %d\n", n)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := "100644"
		if info.Mode()&0o100 != 0 {
			mode = "100755"
		}
		fmt.Fprintf(w, "M %s inline %q\ndata %d\n", mode, filepath.ToSlash(name), len(data))
		w.Write(data)
		return w.WriteByte('\n')
	})
}
