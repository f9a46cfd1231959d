// Command headgate fetches declared sources and packages them as artifacts; it
// compares and publishes them too. And it rolls canaries out, or back.
//
//	headgate fetch -f sources.yaml --store ./store
//	headgate fetch https://example.org/app.git@v1.2.3 --out ./app
//	headgate fetch s3://assets/app/ --endpoint minio.example.org --out ./app
//	headgate fetch --chart web https://charts.example.org --out ./charts
//	headgate push ./app oci://registry.example.org/app:v1.2.3
//	headgate rollout run -f canary.yaml --revision v2 --proxy 127.0.0.1:8000 --primary URL --canary URL
//
// Exit codes: 0 everything that is not suspended is ready, 1 something failed,
// 2 usage or an invalid object, 3 a verification failed. With --detailed-exitcode
// fetch exits with 4 instead of 0 when something changed, diff always does when its
// two arguments differ. Rollout run has its own: 0 promoted, 1 rolled back, 2 every
// error, 3 not over.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

func main() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(30) // most of what is in use are buffers, which cost the collector no time
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.LookupEnv)
	stop()
	os.Exit(code)
}

// A program is what a command may touch of the process it runs in.
type program struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	lookup func(string) (string, bool) // environment
}

// run is the whole command: it parses args, does one thing and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, lookup func(string) (string, bool)) int {
	p := &program{stdin, stdout, stderr, lookup}
	root := p.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitReady
	}
	var e *exitError
	if !errors.As(err, &e) {
		e = &exitError{exitUsage, err} // cobra's own errors are about usage
	}
	if e.err != nil {
		for line := range strings.Lines(e.err.Error()) { // joined errors have a line each
			fmt.Fprintf(stderr, "headgate: %s\n", redact.String(strings.TrimRight(line, "\n")))
		}
	}
	return e.code
}

// The exit codes.
const (
	exitReady   = 0
	exitFailed  = 1
	exitUsage   = 2
	exitVerify  = 3
	exitChanged = 4
)

// An exitError ends the command with a code; err is printed when it is not nil.
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

func failed(err error) error { return &exitError{exitFailed, err} }
func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "headgate",
		Short:         "Fetch declared sources as verified, reproducible artifacts; roll canaries out",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noCommand,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(p.fetch(), p.resolve(), p.verify(), p.validate(), p.convert(), p.push(), p.diff(), p.artifact(), p.serve(), p.get(), p.reconcile(), p.suspend(), p.resume(), p.delete(), p.events(), p.explain(), p.index(), p.hook(), p.rollout(), p.gate(api.KindGate), p.gate(api.KindRollback), p.tester(), p.version())
	return root
}

// noCommand refuses the words after a command that only groups others.
func noCommand(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("unknown command %q for %q: see %s --help", args[0], c.CommandPath(), c.CommandPath())
	}
	return nil
}

func (p *program) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(p.stdout, buildVersion())
			return err
		},
	}
}
