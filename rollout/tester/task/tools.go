// Package task has the tasks that run programs on this machine.
package task

import (
	"errors"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/run"
)

var errTODO = errors.New("not built yet")

// Tools say which programs tasks may run, and with what.
type Tools struct {
	Env       []string          // of every program, as KEY=VALUE; nothing else is inherited
	PassEnv   []string          // names that metadata may set as env.NAME
	Dir       string            // where programs run; "" for a directory of its own for each run, removed afterwards
	Allow     []string          // programs that may be run, by name or absolute path; with it no task uses a shell; nil for any
	NoShell   bool              // no task uses a shell
	Commands  map[string]string // command lines by name, for metadata cmd "@name" of types cmd and bash
	OnlyNamed bool              // nothing but Commands may be run
	Limits    Limits
	Grace     time.Duration // between asking a run to end and killing it; default 5 s
}

// Limits are those of one run. Zero is none.
type Limits struct {
	CPU    int64 // seconds of CPU time
	Memory int64 // bytes of memory in use
	Files  int64 // open files of each process
	Size   int64 // bytes of a file that it writes
	Procs  int64 // processes at a time
}

// A Constructor returns the task of metadata, and the values of it that are
// to be masked wherever they turn up. An error is about metadata: a key, and what to do.
type Constructor = func(metadata map[string]string) (task run.Task, secrets []string, err error)

// Types returns the constructors by the product's name of the type: cmd, bash,
// helm, helmv3, kubectl and k6.
func (t *Tools) Types() map[string]Constructor {
	return map[string]Constructor{"cmd": t.Cmd, "bash": t.Bash, "helm": t.Helm, "helmv3": t.Helm, "kubectl": t.Kubectl, "k6": t.K6}
}

// Cmd, Bash, Helm, Kubectl and K6 are the constructors of their types.
func (t *Tools) Cmd(metadata map[string]string) (run.Task, []string, error) { return nil, nil, errTODO }
func (t *Tools) Bash(metadata map[string]string) (run.Task, []string, error) {
	return nil, nil, errTODO
}
func (t *Tools) Helm(metadata map[string]string) (run.Task, []string, error) {
	return nil, nil, errTODO
}
func (t *Tools) Kubectl(metadata map[string]string) (run.Task, []string, error) {
	return nil, nil, errTODO
}
func (t *Tools) K6(metadata map[string]string) (run.Task, []string, error) { return nil, nil, errTODO }
