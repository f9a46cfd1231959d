// Package task has the tasks that run programs on this machine.
//
// A task of type cmd runs its command line by sh, one of type bash by bash with
// pipefail; those of helm, kubectl and k6 run that program, without a shell. A
// command line without a shell is split into words: white space separates them, quotes
// and backslashes keep it. Metadata is judged before anything runs.
//
// A program has the environment of [Tools] and no other, no standard input, and
// a directory of its own for each run. PATH, HOME and TMPDIR are set where
// Tools does not: HOME and TMPDIR are that directory, which is removed when the run is
// over. It cannot gain privileges on Linux, unless Tools says so.
//
// A program leads a session and a process group. Its run is over when it has exited;
// one of type cmd that no caller waits for lasts until the last process of its session has
// ended, so that "load &" is a load. What is left of the session then, or when the
// context ends, is asked to end (SIGTERM) and killed after a grace. A process that
// leaves its session may outlive its run. When this process is killed, so is the
// program of each run on Linux, but not what that had started. On systems other than
// Linux the process group stands for the session.
package task

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/command"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

// Tools say which programs tasks may run, and with what. It is not changed once it is in use.
type Tools struct {
	Env        []string          // of every program, as KEY=VALUE; nothing else is inherited
	PassEnv    []string          // names that metadata may set as env.NAME
	Dir        string            // where programs run; "" for the directory of the run
	Allow      []string          // programs that may be run, by name or absolute path; with it no task uses a shell; nil for any
	NoShell    bool              // no task uses a shell
	NoPipefail bool              // bash runs without pipefail unless metadata asks for it, as the reference implementation's does
	Commands   map[string]string // command lines by name, for metadata cmd "@NAME" of types cmd and bash
	OnlyNamed  bool              // nothing but Commands may be run, by any type
	Privileges bool              // programs may gain privileges, as sudo does
	Grace      time.Duration     // between asking a run to end and killing it; default 5 s
	Reaper     *Reaper           // of a program whose every child is of a task; nil for none
}

// Task returns the task of metadata by the product's name of its type: cmd, bash, helm,
// helmv3, kubectl and k6; and the values of metadata that are to be masked wherever
// they turn up. An error is about metadata: a key, and what to do.
func (t *Tools) Task(kind string, metadata map[string]string) (task run.Task, secrets []string, err error) {
	p := &program{tools: t}
	r := &reader{metadata: metadata}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if name, ok := strings.CutPrefix(key, "env."); ok && !slices.Contains(t.PassEnv, name) {
			r.fail("metadata %s: this test runner does not let it be set; its owner has to name it", key)
		} else if ok {
			p.set(r, "metadata "+key+":", name, metadata[key])
		}
	}
	switch kind {
	case "cmd":
		p.shell(r, "sh")
	case "bash":
		p.shell(r, "bash")
	case "helm", "helmv3":
		p.tool(r, "helm")
	case "kubectl":
		p.tool(r, "kubectl")
	case "k6":
		p.k6(r)
	default:
		r.fail("unknown task type %s", kind)
	}
	if r.err != nil {
		return nil, nil, r.err
	}
	return p, p.secrets, nil
}

// MaxOutput is the largest outputLimit that metadata may ask for, in bytes.
const MaxOutput = 16 << 20

// Common is what metadata of every type may say about a run.
type Common struct {
	ReturnOutput bool          // returnCmdOutput: the answer holds the output
	LogOutput    bool          // logCmdOutput: so does the log
	Wait         bool          // callers wait for the end: cmd and ngrinder run in the background unless wait says so, k6 if wait_for_results does
	FailOnError  bool          // failOnError: a failure that no caller waited for is the next answer
	Timeout      time.Duration // timeout: seconds or a duration; 0 when it is not there
	OutputLimit  int           // outputLimit: bytes that are kept, up to MaxOutput; 0 when it is not there
}

// ParseCommon reads the keys that every type has, of a task of a type. Errors name the key.
func ParseCommon(kind string, metadata map[string]string) (c Common, err error) {
	r := &reader{metadata: metadata}
	c = Common{ReturnOutput: r.boolean("returnCmdOutput", false), LogOutput: r.boolean("logCmdOutput", false), FailOnError: r.boolean("failOnError", false)}
	background := kind == "cmd" || kind == "ngrinder" || kind == "k6" && !r.boolean("wait_for_results", true)
	c.Wait = r.boolean("wait", false) || !background
	if c.Timeout, err = api.ParseInterval(metadata["timeout"], 0); err != nil {
		err = fmt.Errorf("metadata timeout: %w", err)
	} else if text := metadata["outputLimit"]; text != "" {
		if c.OutputLimit, err = strconv.Atoi(text); err != nil || c.OutputLimit < 1 || c.OutputLimit > MaxOutput {
			err = fmt.Errorf("metadata outputLimit: %q is no number of bytes from 1 to %d", text, MaxOutput)
		}
	}
	return c, cmp.Or(r.err, err)
}

// A reader reads metadata, and keeps the first thing that is wrong.
type reader struct {
	metadata map[string]string
	err      error
}

func (r *reader) fail(format string, values ...any) {
	r.err = cmp.Or(r.err, fmt.Errorf(format, values...))
}

// boolean reads a switch; fallback when it is not there or empty.
func (r *reader) boolean(key string, fallback bool) bool {
	text := r.metadata[key]
	if text == "" {
		return fallback
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		r.fail("metadata %s: %q is neither true nor false", key, text)
	}
	return value
}

// line reads cmd.
func (r *reader) line() string {
	line, ok := r.metadata["cmd"]
	switch {
	case !ok:
		r.fail("cmd not found in metadata")
	case strings.ContainsRune(line, 0):
		r.fail("metadata cmd: has a zero byte")
	}
	return line
}

// words reads cmd as the words of a command line.
func (r *reader) words() []string {
	words, err := command.Words(r.line())
	if err != nil {
		r.fail("metadata cmd: %w", err)
	}
	return words
}

const (
	defaultPath  = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	defaultGrace = 5 * time.Second
	secretSize   = 8        // bytes
	explainTail  = 64 << 10 // bytes of the end of an output that are read for an explanation
)

// A program is the task of all types of this package.
type program struct {
	tools   *Tools
	args    []string
	env     []string // besides that of Tools
	secrets []string
	script  string                                                     // of a file that is the last argument; "" for none
	lasts   bool                                                       // until the last process of its session has ended
	explain func(ctx context.Context, err error, output string) string // what may have led to an error; nil for none
}

// set adds a variable to the environment, which is at a place of metadata. Its value is
// a secret unless it is so short that it is in every output.
func (p *program) set(r *reader, place, name, value string) {
	switch {
	case name == "" || strings.ContainsAny(name, "=\x00"):
		r.fail("%s is no name of a variable", place)
	case strings.ContainsRune(value, 0):
		r.fail("%s has a zero byte", place)
	}
	p.env = append(p.env, name+"="+value)
	if len(value) >= secretSize {
		p.secrets = append(p.secrets, value)
	}
}

// Run runs the program in a directory of its own.
func (p *program) Run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "headgate-run-*")
	if err != nil {
		return fmt.Errorf("directory of the run: %w", err)
	}
	defer os.RemoveAll(dir)
	args := p.args
	if p.script != "" {
		file := filepath.Join(dir, "script.js")
		if err := os.WriteFile(file, []byte(p.script), 0o600); err != nil {
			return fmt.Errorf("directory of the run: %w", err)
		}
		args = append(slices.Clone(args), file)
	}
	tail := &command.Tail{Limit: explainTail}
	if p.explain != nil {
		out = io.MultiWriter(out, tail)
	}
	err = p.execute(ctx, args, dir, out)
	if err != nil && p.explain != nil {
		if why := p.explain(ctx, err, string(tail.Kept)); why != "" {
			err = fmt.Errorf("%w: %s", err, why)
		}
	}
	return err
}

// environment returns that of a run in dir. Of two with one name the last counts.
func (t *Tools) environment(set []string, dir string) []string {
	env := []string{"PATH=" + defaultPath, "HOME=" + dir, "TMPDIR=" + dir}
	return append(append(env, t.Env...), set...)
}

// operators are what a shell would make something of.
var operators = []string{"|", "||", "|&", "&", "&&", ";", "<", ">", ">>", "&>", "2>&1", ">&2"}

// shell has a shell run cmd, or splits it into words where no shell is used.
func (p *program) shell(r *reader, shell string) {
	t, line := p.tools, r.line()
	p.lasts = !r.boolean("wait", false) && shell == "sh"
	wanted := r.boolean("shell", true)
	pipefail := r.boolean("pipefail", shell == "bash" && !t.NoPipefail)
	if pipefail && shell == "sh" {
		r.fail("metadata pipefail: sh has none, use type bash")
	}
	switch name, named := strings.CutPrefix(line, "@"); {
	case r.err != nil:
	case named && (len(t.Commands) > 0 || t.OnlyNamed):
		p.args = t.named(r, name)
	case t.OnlyNamed:
		t.mayRun(r, "")
	case shell == "bash" && strings.TrimSpace(line) == "":
		r.fail("metadata cmd is empty: name the test suite to run")
	case !wanted || t.NoShell || t.Allow != nil:
		p.args = t.words(r)
	case pipefail:
		p.args, p.explain = []string{shell, "-o", "pipefail", "-c", line}, brokenPipe
	default:
		p.args = []string{shell, "-c", line}
	}
}

// brokenPipe explains the one exit code that pipefail makes of a success.
func brokenPipe(_ context.Context, err error, _ string) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 128+13 {
		return `a program of a pipeline wrote more than the next one read: metadata pipefail "false" lets that pass`
	}
	return ""
}

// words returns those of cmd, which runs without a shell. Where metadata did not ask for
// that it may have been written for one.
func (t *Tools) words(r *reader) []string {
	args := r.words()
	if r.err == nil && (len(args) == 0 || args[0] == "") {
		r.fail("metadata cmd is empty: name a program")
	}
	for _, arg := range args {
		if r.metadata["shell"] == "" && slices.Contains(operators, arg) {
			r.fail(`metadata cmd: %q is for a shell, and this test runner uses none; metadata shell "false" makes it an argument`, arg)
		}
	}
	if r.err == nil {
		t.mayRun(r, args[0])
	}
	return args
}

// mayRun fails unless a program may be run without a shell, and not only named commands.
func (t *Tools) mayRun(r *reader, program string) {
	path := strings.ContainsRune(program, '/') || strings.ContainsRune(program, filepath.Separator)
	switch {
	case t.OnlyNamed:
		r.fail(`metadata cmd: only named commands may be run here, by types cmd and bash: %s`, t.names())
	case path && !filepath.IsAbs(program):
		r.fail("metadata cmd: program %q is a relative path: use a name or an absolute path", program)
	case t.Allow == nil || slices.Contains(t.Allow, program):
	default:
		file, err := command.LookPath(program, t.environment(nil, "/"))
		if path || err != nil || !slices.Contains(t.Allow, file) {
			r.fail("program %q may not be run here: allowed are %s", program, cmp.Or(strings.Join(t.Allow, ", "), "none"))
		}
	}
}

// parameter is ${NAME} in a command line of [Tools].Commands.
var parameter = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

func (t *Tools) names() string {
	return "@" + strings.Join(slices.Sorted(maps.Keys(t.Commands)), ", @")
}

// named returns the words of a named command with its parameters filled in, each
// from metadata arg.NAME and within one word. A value does not make an
// option of a word that does not begin with a dash, unless -- stands before it.
func (t *Tools) named(r *reader, name string) []string {
	line, ok := t.Commands[name]
	if !ok {
		r.fail("metadata cmd: there is no command @%s: there are %s", name, t.names())
		return nil
	}
	words, err := command.Words(line)
	if err == nil && (len(words) == 0 || parameter.MatchString(words[0])) {
		err = errors.New("it names no program")
	}
	if err != nil {
		r.fail("command @%s of this test runner is no command line: %w", name, err)
	}
	used, options := map[string]bool{}, true
	for i, word := range words {
		words[i] = parameter.ReplaceAllStringFunc(word, func(match string) string {
			key := "arg." + match[2:len(match)-1]
			value, given := r.metadata[key]
			switch used[key] = true; {
			case !given:
				r.fail("metadata %s is required: command @%s has it", key, name)
			case strings.ContainsRune(value, 0):
				r.fail("metadata %s has a zero byte: command @%s has it", key, name)
			}
			return value
		})
		if options && strings.HasPrefix(words[i], "-") && !strings.HasPrefix(word, "-") {
			r.fail("metadata arg for %s of command @%s: a value that begins with - would be an option", word, name)
		}
		options = options && word != "--"
	}
	for key := range r.metadata {
		if strings.HasPrefix(key, "arg.") && !used[key] {
			r.fail("metadata %s: command @%s has no such parameter", key, name)
		}
	}
	return words
}

// tool has a program of its own run with the arguments in cmd.
func (p *program) tool(r *reader, name string) {
	args := r.words()
	if len(args) == 0 {
		r.fail("metadata cmd is empty: give the arguments of %s", name)
	}
	p.args, p.explain = append([]string{name}, args...), missingPermissions
	p.tools.mayRun(r, name)
}

// What chart tests need (specification, Errors), and where it is granted.
const (
	chartNeeds = "secrets (get, watch, list, update), pods, pods/log and, for tests that are jobs, jobs (create, list, delete, watch)"
	granting   = `docs/tester.md, "Deploying"`
	maxMissing = 5 // permissions that are named
)

// forbidden is how API servers refuse; logs of clients quote it, and escape its quotes.
var forbidden = regexp.MustCompile(`forbidden.*?cannot ([a-z]+) resource \\?"([a-z0-9./-]+)\\?" in API group \\?"[a-z0-9.-]*\\?"(?: in the namespace \\?"([a-z0-9.-]+)\\?"| at the cluster scope)?`)

// missingPermissions names the permissions which an API server said are missing; of a
// task that ended for lack of time and to which nothing was said, those that chart
// tests need.
func missingPermissions(ctx context.Context, _ error, output string) string {
	var missing []string
	for _, m := range forbidden.FindAllStringSubmatch(output, -1) {
		what := m[1] + " " + m[2]
		if m[3] != "" {
			what += " in namespace " + m[3]
		}
		if len(missing) < maxMissing && !slices.Contains(missing, what) {
			missing = append(missing, what)
		}
	}
	switch {
	case len(missing) > 0:
		return fmt.Sprintf("the test runner lacks the permission to %s: see %s", strings.Join(missing, ", and to "), granting)
	case errors.Is(ctx.Err(), context.DeadlineExceeded) || strings.Contains(output, "timed out waiting") || strings.Contains(output, "context deadline exceeded"):
		return fmt.Sprintf("a chart test that hangs may lack a permission; it needs %s: see %s", chartNeeds, granting)
	}
	return ""
}

// k6 runs metadata script. It sees env_vars, a JSON object of variables. With
// upload_to_cloud results go to the cloud of k6 as well, as the token in the
// environment allows.
func (p *program) k6(r *reader) {
	p.script = r.metadata["script"]
	if strings.TrimSpace(p.script) == "" {
		r.fail("metadata script is required: the text of the k6 script")
	}
	p.tools.mayRun(r, "k6")
	p.args = []string{"k6", "run", "--no-usage-report", "--address", ""} // its API is one port for all runs
	if r.boolean("upload_to_cloud", false) {
		p.args = append(p.args, "--out", "cloud")
	}
	if r.metadata["kubernetes_secrets"] != "" {
		r.fail("metadata kubernetes_secrets: this test runner has no access to Secrets; use env_vars, or variables of the test runner")
	}
	var variables map[string]string
	if text := r.metadata["env_vars"]; text != "" && (json.Unmarshal([]byte(text), &variables) != nil || variables == nil) {
		r.fail("metadata env_vars: is no JSON object whose values are strings") // the error might quote a secret
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if slices.Contains([]string{"PATH", "HOME", "TMPDIR"}, name) || strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_") {
			r.fail("metadata env_vars: %s cannot be set", name)
		}
		p.set(r, "metadata env_vars: "+strconv.Quote(name), name, variables[name])
	}
}
