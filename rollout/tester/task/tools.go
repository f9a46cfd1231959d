// Package task has the tasks that run programs on this machine.
//
// A task of type cmd runs its command line by sh, one of type bash by bash with
// pipefail; those of helm, kubectl and k6 run that program, without a shell. A
// command line without a shell is split into words: white space separates them, quotes and
// backslashes keep it. Metadata is judged before anything runs.
//
// A program has the environment of [Tools] and no other, no standard input, and
// a directory of its own for each run. PATH, HOME and TMPDIR are set where
// Tools does not: HOME and TMPDIR are that directory, which is removed when the run is over.
//
// A run that is over has nothing running (see the package's job). One of type
// cmd that nobody waits for lasts until the last process it started has ended,
// so that "load &" is a load; all others until their program has.
package task

import (
	"context"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/run"
	"github.com/headgate-io/headgate/rollout/tester/task/internal/job"
)

// Tools say which programs tasks may run, and with what. It is not changed once it is in use.
type Tools struct {
	Env        []string          // of every program, as KEY=VALUE; nothing else is inherited
	PassEnv    []string          // names that metadata may set as env.NAME
	Dir        string            // where programs run; "" for the directory of the run
	Temp       string            // where directories of runs are made; "" for the system's
	Allow      []string          // programs that may be run, by name or absolute path; with it no task uses a shell; nil for any
	NoShell    bool              // no task uses a shell
	NoPipefail bool              // bash runs without pipefail unless metadata asks for it, as the reference implementation's does
	Commands   map[string]string // command lines by name, for metadata cmd "@NAME" of types cmd and bash
	OnlyNamed  bool              // nothing but Commands may be run, by any type
	Privileges bool              // programs may gain privileges, as sudo does
	Limits     Limits
	Grace      time.Duration // between asking a run to end and killing it; default 5 s
	Reaper     *Reaper       // nil for none

	// Secret returns a value of a Secret for k6's kubernetes_secrets; nil when there are none.
	// Namespace is "" when the reference has none. It is asked while metadata is judged.
	Secret func(ctx context.Context, namespace, name, key string) (string, error)
}

// Limits are those of one run; 0 is no limit. Only Linux has them, see [LimitsHold].
// The fields are
//
//	CPU    int64 // seconds of CPU time
//	Memory int64 // bytes
//	Files  int64 // open files of each process
//	Size   int64 // bytes of a file that it writes
//	Procs  int64 // processes at a time
type Limits = job.Limits

// LimitsHold reports whether this system has limits.
const LimitsHold = job.LimitsHold

// A Reaper takes in the processes of runs that lost their parent. Its zero value
// works. Its one method, Run(context.Context) error, adopts and reaps until the
// context ends, and returns an error when the system does not let it.
type Reaper = job.Reaper

// A Constructor returns the task of metadata, and the values of it that are
// to be masked wherever they turn up. An error is about metadata: a key, and what to do.
type Constructor = func(metadata map[string]string) (task run.Task, secrets []string, err error)

// Types returns the constructors by the product's name of the type: cmd, bash,
// helm, helmv3, kubectl and k6.
func (t *Tools) Types() map[string]Constructor {
	return map[string]Constructor{"cmd": t.Cmd, "bash": t.Bash, "helm": t.Helm, "helmv3": t.Helm, "kubectl": t.Kubectl, "k6": t.K6}
}

// Cmd is the constructor of type cmd: a command line for sh.
func (t *Tools) Cmd(metadata map[string]string) (run.Task, []string, error) {
	return t.shell(metadata, "sh")
}

// Bash is the constructor of type bash: a command line for bash.
func (t *Tools) Bash(metadata map[string]string) (run.Task, []string, error) {
	return t.shell(metadata, "bash")
}

// Helm is the constructor of types helm and helmv3: arguments for helm.
func (t *Tools) Helm(metadata map[string]string) (run.Task, []string, error) {
	return explain(t.tool(metadata, "helm"))
}

// Kubectl is the constructor of type kubectl: arguments for kubectl.
func (t *Tools) Kubectl(metadata map[string]string) (run.Task, []string, error) {
	return explain(t.tool(metadata, "kubectl"))
}
