// Command headgate fetches declared sources and packages them as artifacts. It also
// compares and publishes artifacts, and promotes canaries or rolls them back.
//
//	headgate fetch -f sources.yaml --store ./store
//	headgate fetch https://example.org/app.git@v1.2.3 --out ./app
//	headgate fetch s3://assets/app/ --endpoint minio.example.org --out ./app
//	headgate fetch --chart web https://charts.example.org --out ./charts
//	headgate push ./app oci://registry.example.org/app:v1.2.3
//	headgate rollout run -f canary.yaml --revision v2 --proxy 127.0.0.1:8000 --primary URL --canary URL
//
// The exit code is 0 if every object is ready or suspended, 1 after a failure, 2 after a
// usage error or for an invalid object, 3 if a verification failed, and 5 if an object
// cannot be fetched as it is locked, or a lock is not current. If something changed, fetch
// --detailed-exitcode exits with 4 instead of 0; diff exits with 4 whenever its arguments
// differ. The command rollout run has its own exit codes: 0 promoted, 1 rolled back, 2 any
// error, 3 not over.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

func main() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(45) // most live memory is buffers, which are cheap to scan
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.LookupEnv)
	stop()
	os.Exit(code)
}

// A program holds everything of its process that a command may use.
type program struct {
	stdin     io.Reader
	stdout    io.Writer
	stderr    io.Writer
	lookupEnv func(string) (string, bool) // environment
	timeout   time.Duration               // of the whole command; 0 for none

	annotations
}

// run executes the command in args and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, lookup func(string) (string, bool)) int {
	p := &program{stdin: stdin, stdout: stdout, stderr: stderr, lookupEnv: lookup}
	root := p.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	e := new(exitError)
	if err != nil && !errors.As(err, &e) {
		e = &exitError{exitUsage, err} // cobra reports usage errors only
	}
	if err := p.printAnnotations(e.err); err != nil {
		e = &exitError{worseCode(exitFailed, e.code), errors.Join(e.err, err)}
	}
	if e.err != nil {
		for line := range strings.Lines(e.err.Error()) { // each joined error has its own line
			fmt.Fprintf(stderr, "headgate: %s\n", redact.String(strings.TrimRight(line, "\n")))
		}
	}
	return e.code
}

// The exit codes of commands. Rollout run has its own.
const (
	exitReady   = 0
	exitFailed  = 1
	exitUsage   = 2
	exitVerify  = 3
	exitChanged = 4
	exitLocked  = 5
)

// An exitError ends the command with a code. If err is not nil, it is printed.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func failure(err error) error { return &exitError{exitFailed, err} }
func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// asFailures makes c and its subcommands return [exitFailed] for errors without an exit code.
func asFailures(c *cobra.Command) {
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		err := run(c, args)
		if _, coded := errors.AsType[*exitError](err); err == nil || coded {
			return err
		}
		return failure(err)
	}
	for _, sub := range c.Commands() {
		asFailures(sub)
	}
}

// flagVariables are the flags that environment variables can set. The variable of a server takes
// precedence over that of a store.
var flagVariables = []struct{ flag, variable string }{
	{"server", "HEADGATE_SERVER"}, {"store", "HEADGATE_STORE"}, {"secrets", "HEADGATE_SECRETS"}, {"cache", "HEADGATE_CACHE"}, {"parallel", "HEADGATE_PARALLEL"},
}

func (p *program) root() *cobra.Command {
	root := group("headgate", "Fetch declared sources as verified, reproducible artifacts, and roll out canaries")
	root.Long = root.Short + ".\n\nThese environment variables set flags that are not given:\n"
	root.Version, root.SilenceErrors, root.SilenceUsage = thisBuild().String(), true, true
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if err := p.setFlagsFromEnv(c); err != nil {
			return err
		}
		if p.timeout < 0 {
			return usage("--timeout %s: want a positive time, or 0 for none", p.timeout)
		}
		if p.timeout > 0 {
			ctx, cancel := context.WithTimeoutCause(c.Context(), p.timeout, fmt.Errorf("not done within --timeout %s", p.timeout))
			context.AfterFunc(ctx, cancel)
			c.SetContext(ctx)
		}
		return p.beginAnnotations(c)
	}
	for _, v := range flagVariables {
		root.Long += fmt.Sprintf("\n  %-18s --%s", v.variable, v.flag)
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.PersistentFlags().Var(spanValue{&p.timeout}, "timeout", "time limit of the whole command; 0 for none")
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"fetch", "Fetch:", []*cobra.Command{p.init(), p.fetch(), p.lock(), p.update(), p.bundle(), p.resolve(), p.verify(), p.push()}},
		{"inspect", "Inspect:", []*cobra.Command{p.artifact(), p.diff(), p.explain(), p.index(), p.validate(), p.convert(), p.schema()}},
		{"serve", "Keep up to date:", []*cobra.Command{p.serveCommand(new(serveFlags)), p.get(), p.reconcile(), p.suspend(), p.resume(), p.delete(), p.events()}},
		{"rollout", "Roll out:", []*cobra.Command{p.rollout(), p.hook()}},
		{"tester", "Test runner:", []*cobra.Command{p.testerCommand(new(testerFlags)), p.gate(api.KindGate), p.gate(api.KindRollback)}},
		{"other", "Other:", []*cobra.Command{p.version()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		root.AddCommand(g.commands...)
		for _, c := range g.commands {
			if c.GroupID = g.id; g.id != "rollout" { // its commands exit with 2 for every error
				asFailures(c)
			}
		}
	}
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.PreRunE = func(_ *cobra.Command, args []string) error {
		found, rest, _ := root.Find(args)
		return unknownCommandError(found, rest)
	}
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
	return root
}

// getenv returns a variable of the environment, "" if it is not set.
func (p *program) getenv(name string) string {
	value, _ := p.lookupEnv(name)
	return value
}

// setFlagsFromEnv sets the flags that were not given from their environment variables. If the user
// gave --store, it ignores the variable of the server.
func (p *program) setFlagsFromEnv(c *cobra.Command) error {
	stored := c.Flags().Changed("store")
	for _, v := range flagVariables {
		flag := c.Flags().Lookup(v.flag)
		value := p.getenv(v.variable)
		if flag == nil || flag.Changed || value == "" || flag.NoOptDefVal != "" || v.flag == "server" && (stored || c.Flags().Lookup("store") == nil) {
			continue
		}
		if err := flag.Value.Set(value); err != nil {
			return usage("%s %q: %s", v.variable, value, valueHint(flag, err))
		}
	}
	return nil
}

// group returns a command that only has subcommands.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: unknownCommandError, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(commands...)
	return c
}

// unknownCommandError returns an error for arguments of a command that only has subcommands.
func unknownCommandError(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	if suggestions := c.SuggestionsFor(args[0]); len(suggestions) > 0 {
		return usage("unknown command %q for %q: did you mean %s?", args[0], c.CommandPath(), strings.Join(suggestions, " or "))
	}
	return usage("unknown command %q for %q: see %s --help", args[0], c.CommandPath(), c.CommandPath())
}

// flagError rewrites an error of the flag parser: it says which value the flag wants, suggests a
// similar flag, or refers to the help.
func flagError(c *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name, best, distance := unknown.GetSpecifiedName(), "", 3
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if d := document.Distance(name, f.Name); d < distance && d < len(f.Name) {
				best, distance = f.Name, d
			}
		})
		if best != "" {
			return usage("%w: did you mean --%s?", err, best)
		}
	}
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return usage("%w: see %s --help", err, c.CommandPath())
	}
	f := invalid.GetFlag()
	name := "--" + f.Name
	if f.Name == "output" {
		name = "-o"
	}
	return usage("%s %q: %s", name, invalid.GetValue(), valueHint(f, invalid.Unwrap()))
}

// valueHint says which values a flag accepts, for the error of an invalid value.
func valueHint(f *pflag.Flag, err error) string {
	wants := map[string]string{"int": "want a whole number", "float64": "want a number", "bool": "want true or false"}
	return cmp.Or(wants[f.Value.Type()], err.Error())
}

func (p *program) version() *cobra.Command {
	var f outputFlags
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and its date",
		Args:  rangeArgs(0, 0),
		RunE: func(*cobra.Command, []string) error {
			return p.printResult(&f, thisBuild(), nil, [][]string{{thisBuild().String()}})
		},
	}
	f.registerFormat(c, "text", "json", "yaml")
	return c
}

// A build is the build information in the binary. Commit and Date are set if it was built in a
// checkout.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"date,omitempty"` // of the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version = cmp.Or(info.Main.Version, b.Version)
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.time":
				b.Date = s.Value
			}
		}
	}
	return b
}

func (b build) String() string {
	return strings.Join(strings.Fields(fmt.Sprint("headgate ", b.Version, " ", b.Commit, " ", b.Date, " ", b.Go, " ", b.Platform)), " ")
}

// isTerminal reports whether a reader or writer is a terminal.
func isTerminal(file any) bool {
	f, ok := file.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
