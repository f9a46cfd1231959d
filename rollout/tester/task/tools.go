// Package task has the tasks that run programs on this machine.
package task

import (
	"errors"

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
	Commands  map[string]string // command lines by name, for metadata cmd "@name"; with Allow nil nothing else may be run when OnlyNamed
	OnlyNamed bool
	Limits    Limits
}

// Limits are those of one run. Zero is none.
type Limits struct {
	CPU    int64 // seconds of CPU time of each process
	Memory int64 // bytes of address space of each process
	Files  int64 // open files of each process
	Size   int64 // bytes of a file that it writes
	Procs  int64 // processes of the user
}

// Cmd, Bash, Helm, Kubectl and K6 return the task of metadata of their type. An
// error is about metadata: a key, and what to do.
func (t *Tools) Cmd(metadata map[string]string) (run.Task, error)     { return nil, errTODO }
func (t *Tools) Bash(metadata map[string]string) (run.Task, error)    { return nil, errTODO }
func (t *Tools) Helm(metadata map[string]string) (run.Task, error)    { return nil, errTODO }
func (t *Tools) Kubectl(metadata map[string]string) (run.Task, error) { return nil, errTODO }
func (t *Tools) K6(metadata map[string]string) (run.Task, error)      { return nil, errTODO }
