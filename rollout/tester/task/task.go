// Package task implements the tasks that run programs on this machine.
//
// A task of type cmd runs its command line with sh, a task of type bash with bash and
// pipefail. The tasks of types helm, helmv3, kubectl and k6 run that program without a
// shell. A command line without a shell is split into words at white space; quotes and
// backslashes keep white space. Metadata is validated before anything runs.
//
// A program gets the environment of [Tools] and the variables that metadata may set, no
// standard input, and a directory of its own for each run, which is removed afterwards.
// PATH, HOME and TMPDIR have defaults: for HOME and TMPDIR it is that directory. On Linux
// a program cannot gain privileges, unless Tools allows it.
//
// A program leads a session and a process group. Its run is over when it has exited. A
// background run of type cmd lasts until the last process of its session has ended, so
// that "load &" works. Processes that are left in the session then, or when the context
// ends, get SIGTERM, and are killed after a grace. A process that leaves its session may
// outlive its run. If this process is killed, Linux kills the program of each run, but
// not the processes that the program had started. On systems other than Linux the
// process group takes the place of the session.
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

// Tools says which programs tasks may run, and how. It must not be modified once it is in use.
type Tools struct {
	Env        []string          // of every program, as KEY=VALUE; nothing else is inherited
	PassEnv    []string          // names that metadata may set as env.NAME
	Dir        string            // where programs run; "" for the directory of the run
	Allow      []string          // programs that may be run, by name or absolute path; with it no task uses a shell; nil for any
	NoShell    bool              // no task uses a shell
	NoPipefail bool              // bash runs without pipefail unless metadata asks for it, as in the reference implementation
	Commands   map[string]string // command lines by name, for metadata cmd "@NAME" of types cmd and bash
	OnlyNamed  bool              // nothing but Commands may be run, by any type
	Privileges bool              // programs may gain privileges, as sudo does
	Grace      time.Duration     // between asking a run to end and killing it; default 5 s
	Reaper     *Reaper           // only for a process whose children all belong to tasks; nil for none
}

// Task returns the task that metadata describes. Kind is the product's name of its type:
// cmd, bash, helm, helmv3, kubectl or k6. Secrets are the values of metadata that must be
// masked wherever they appear. An error names the key of metadata, and says what to do.
func (t *Tools) Task(kind string, metadata map[string]string) (task run.Task, secrets []string, err error) {
	p := &program{tools: t}
	r := &reader{metadata: metadata}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if name, ok := strings.CutPrefix(key, "env."); ok && !slices.Contains(t.PassEnv, name) {
			r.fail("metadata %s: this test runner does not let it be set; its owner has to name it", key)
		} else if ok {
			p.setEnv(r, "metadata "+key+":", name, metadata[key])
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

// Common has the settings of a run that metadata of every type may contain.
type Common struct {
	ReturnOutput bool          // returnCmdOutput: the answer holds the output
	LogOutput    bool          // logCmdOutput: the log holds the output
	Wait         bool          // wait: callers wait for the end; default true, but not for cmd and ngrinder, nor for k6 with wait_for_results false
	FailOnError  bool          // failOnError: the failure of a background run is the answer to the next equal request
	Timeout      time.Duration // timeout: seconds or a duration; 0 if absent
	OutputLimit  int           // outputLimit: bytes that are kept, up to MaxOutput; 0 if absent
}

// ParseCommon parses the keys of metadata that every type has. Kind decides whether callers
// wait by default. Errors name the key.
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

// A reader reads metadata, and keeps the first error.
type reader struct {
	metadata map[string]string
	err      error
}

func (r *reader) fail(format string, values ...any) {
	r.err = cmp.Or(r.err, fmt.Errorf(format, values...))
}

// boolean reads a boolean, which is fallback if the key is absent or empty.
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

// cmd returns metadata cmd.
func (r *reader) cmd() string {
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
	words, err := command.Words(r.cmd())
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

// A program is a task of any type of this package.
type program struct {
	tools        *Tools
	args         []string
	env          []string // besides that of Tools
	secrets      []string
	script       string                                                     // content of a file that is the last argument; "" for none
	awaitSession bool                                                       // the run lasts until the last process of its session has ended
	explain      func(ctx context.Context, err error, output string) string // returns what may have caused an error; nil for none
}

// setEnv adds a variable to the environment. Errors begin with field, where metadata has it.
// The value is a secret unless it is so short that any output may contain it.
func (p *program) setEnv(r *reader, field, name, value string) {
	switch {
	case name == "" || strings.ContainsAny(name, "=\x00"):
		r.fail("%s is no name of a variable", field)
	case strings.ContainsRune(value, 0):
		r.fail("%s has a zero byte", field)
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
		if explanation := p.explain(ctx, err, string(tail.Kept)); explanation != "" {
			err = fmt.Errorf("%w: %s", err, explanation)
		}
	}
	return err
}

// environment returns the environment of a run in dir. The last entry of a name counts.
func (t *Tools) environment(set []string, dir string) []string {
	env := []string{"PATH=" + defaultPath, "HOME=" + dir, "TMPDIR=" + dir}
	return append(append(env, t.Env...), set...)
}

// operators are the words that a shell would interpret.
var operators = []string{"|", "||", "|&", "&", "&&", ";", "<", ">", ">>", "&>", "2>&1", ">&2"}

// shell makes p run cmd with a shell, or as words if no shell is used.
func (p *program) shell(r *reader, shell string) {
	t, line := p.tools, r.cmd()
	p.awaitSession = !r.boolean("wait", false) && shell == "sh"
	wanted := r.boolean("shell", true)
	pipefail := r.boolean("pipefail", shell == "bash" && !t.NoPipefail)
	if pipefail && shell == "sh" {
		r.fail("metadata pipefail: sh has none, use type bash")
	}
	switch name, named := strings.CutPrefix(line, "@"); {
	case r.err != nil:
	case named && (len(t.Commands) > 0 || t.OnlyNamed):
		p.args = t.namedCommand(r, name)
	case t.OnlyNamed:
		t.checkAllowed(r, "")
	case shell == "bash" && strings.TrimSpace(line) == "":
		r.fail("metadata cmd is empty: name the test suite to run")
	case !wanted || t.NoShell || t.Allow != nil:
		p.args = t.argsWithoutShell(r)
	case pipefail:
		p.args, p.explain = []string{shell, "-o", "pipefail", "-c", line}, brokenPipe
	default:
		p.args = []string{shell, "-c", line}
	}
}

// brokenPipe explains the exit code of SIGPIPE, with which pipefail makes a pipeline fail
// that would succeed otherwise.
func brokenPipe(_ context.Context, err error, _ string) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 128+13 {
		return `a program of a pipeline wrote more than the next one read: metadata pipefail "false" lets that pass`
	}
	return ""
}

// argsWithoutShell (second of two: Tools.words; reader.words stays) returns the words of cmd, which runs without a shell. If metadata did not ask for
// that, cmd may be meant for a shell, so words that a shell would interpret are refused.
func (t *Tools) argsWithoutShell(r *reader) []string {
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
		t.checkAllowed(r, args[0])
	}
	return args
}

// checkAllowed fails unless program may be run without a shell. It always fails if only named
// commands may be run.
func (t *Tools) checkAllowed(r *reader, program string) {
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

// parameter matches ${NAME} in a command line of [Tools].Commands.
var parameter = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

func (t *Tools) names() string {
	return "@" + strings.Join(slices.Sorted(maps.Keys(t.Commands)), ", @")
}

// namedCommand returns the words of a named command with its parameters filled in, each
// from metadata arg.NAME and within one word. A value must not turn a word into an option,
// by making it begin with a dash, unless the word follows --.
func (t *Tools) namedCommand(r *reader, name string) []string {
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

// tool makes p run the named program with the arguments in cmd.
func (p *program) tool(r *reader, name string) {
	args := r.words()
	if len(args) == 0 {
		r.fail("metadata cmd is empty: give the arguments of %s", name)
	}
	p.args, p.explain = append([]string{name}, args...), missingPermissions
	p.tools.checkAllowed(r, name)
}

// The permissions that chart tests need (specification, Errors), and how to grant them.
const (
	chartPermissions = "secrets (get, watch, list, update), pods, pods/log and, for tests that are jobs, jobs (create, list, delete, watch)"
	permissionDocs   = `docs/tester.md, "Deploying"`
	maxMissing       = 5 // permissions named in an error
)

// forbidden matches a refusal by an API server. Logs of clients quote it with escaped quotes.
var forbidden = regexp.MustCompile(`forbidden.*?cannot ([a-z]+) resource \\?"([a-z0-9./-]+)\\?" in API group \\?"[a-z0-9.-]*\\?"(?: in the namespace \\?"([a-z0-9.-]+)\\?"| at the cluster scope)?`)

// missingPermissions names the permissions that an API server reported as missing. If it
// reported none and the task timed out, it names the permissions that chart tests need.
func missingPermissions(ctx context.Context, _ error, output string) string {
	var missing []string
	for _, m := range forbidden.FindAllStringSubmatch(output, -1) {
		permission := m[1] + " " + m[2]
		if m[3] != "" {
			permission += " in namespace " + m[3]
		}
		if len(missing) < maxMissing && !slices.Contains(missing, permission) {
			missing = append(missing, permission)
		}
	}
	switch {
	case len(missing) > 0:
		return fmt.Sprintf("the test runner lacks the permission to %s: see %s", strings.Join(missing, ", and to "), permissionDocs)
	case errors.Is(ctx.Err(), context.DeadlineExceeded) || strings.Contains(output, "timed out waiting") || strings.Contains(output, "context deadline exceeded"):
		return fmt.Sprintf("a chart test that hangs may lack a permission; it needs %s: see %s", chartPermissions, permissionDocs)
	}
	return ""
}

// k6 makes p run metadata script with the variables of env_vars, a JSON object. With
// upload_to_cloud results also go to the cloud of k6, with the token in the environment.
func (p *program) k6(r *reader) {
	p.script = r.metadata["script"]
	if strings.TrimSpace(p.script) == "" {
		r.fail("metadata script is required: the text of the k6 script")
	}
	p.tools.checkAllowed(r, "k6")
	p.args = []string{"k6", "run", "--no-usage-report", "--address", ""} // no API: all runs would use the same port
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
		p.setEnv(r, "metadata env_vars: "+strconv.Quote(name), name, variables[name])
	}
}
