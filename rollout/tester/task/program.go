package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/rollout/tester/task/internal/job"
)

const (
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	envPrefix   = "env."
	secretSize  = 8 // bytes: values of the environment that are shorter are no secrets: they are in every output
)

// A program is the task of all types of this package.
type program struct {
	tools   *Tools
	args    []string
	env     []string // besides that of Tools
	script  string   // of a file that is the last argument; "" for none
	lasts   bool
	explain func(code int) string // an exit code; nil for none
}

// program returns one with the environment that metadata sets, and its values.
func (t *Tools) program(metadata map[string]string) (p *program, secrets []string, err error) {
	p = &program{tools: t}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		name, ok := strings.CutPrefix(key, envPrefix)
		if !ok {
			continue
		}
		if !slices.Contains(t.PassEnv, name) {
			return nil, nil, fmt.Errorf("metadata %s: this test runner does not let it be set; its owner has to name it", key)
		}
		if err := p.set(name, metadata[key]); err != nil {
			return nil, nil, fmt.Errorf("metadata %s: %w", key, err)
		}
		secrets = appendSecret(secrets, metadata[key])
	}
	return p, secrets, nil
}

// set adds a variable to the environment.
func (p *program) set(name, value string) error {
	switch {
	case name == "" || strings.ContainsAny(name, "=\x00"):
		return errors.New("is no name of a variable")
	case strings.ContainsRune(value, 0):
		return errors.New("has a zero byte")
	}
	p.env = append(p.env, name+"="+value)
	return nil
}

func appendSecret(secrets []string, value string) []string {
	if len(value) < secretSize {
		return secrets
	}
	return append(secrets, value)
}

// Run runs the program in a directory of its own.
func (p *program) Run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp(p.tools.Temp, "headgate-run-*")
	if err != nil {
		return fmt.Errorf("directory of the run: %w", err)
	}
	defer remove(dir)
	t, args := p.tools, p.args
	if p.script != "" {
		file := filepath.Join(dir, "script.js")
		if err := os.WriteFile(file, []byte(p.script), 0o600); err != nil {
			return fmt.Errorf("directory of the run: %w", err)
		}
		args = append(slices.Clone(args), file)
	}
	err = job.Job{
		Args: args, Dir: cmp.Or(t.Dir, dir), Env: t.environment(p.env, dir), Out: out,
		Grace: t.Grace, Limits: t.Limits, Lasts: p.lasts, Privileges: t.Privileges, Reaper: t.Reaper,
	}.Run(ctx)
	var exit *job.ExitError
	if p.explain != nil && errors.As(err, &exit) && exit.Why == "" {
		exit.Why = p.explain(exit.Code)
	}
	return err
}

// environment returns that of a run in dir. Of two with one name the last counts.
func (t *Tools) environment(set []string, dir string) []string {
	env := []string{"PATH=" + defaultPath, "HOME=" + dir, "TMPDIR=" + dir}
	return append(append(env, t.Env...), set...)
}

// remove removes a directory, also when a program took away the right to write
// to a part of it. It follows no link.
func remove(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	if info, err := os.Lstat(dir); err == nil && info.IsDir() {
		_ = os.Chmod(dir, 0o700)
	}
	if root, err := os.OpenRoot(dir); err == nil {
		defer root.Close()
		_ = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				_ = root.Chmod(path, 0o700)
			}
			return nil
		})
	}
	_ = os.RemoveAll(dir)
}
