package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

// boardFlags say where gates are.
type boardFlags struct {
	serverFlags
	state string
}

const defaultServer = "http://127.0.0.1:8080"

func (f *boardFlags) register(c *cobra.Command, local bool) {
	f.serverFlags.register(c, "the test runner; default the variable HEADGATE_TESTER, or "+defaultServer)
	if local {
		c.Flags().StringVar(&f.state, "state", "", "`DIR` of the state of a test runner that does not run, instead of --server")
	}
}

// A board is where gates are.
type board interface {
	gate(ctx context.Context, k api.Key) (api.Gate, error)
	gates(ctx context.Context, f api.Filter) ([]api.Gate, error)
	change(ctx context.Context, action string, k api.Key, c api.Change) (api.Gate, error)
	audit(ctx context.Context, f api.Filter) ([]api.Entry, error)
	runs(ctx context.Context, f api.Filter) ([]api.Run, error)
	close() error
}

// openBoard returns the board that the flags name.
func (p *program) openBoard(f *boardFlags) (board, error) {
	if f.state == "" {
		return p.runner(f)
	}
	if f.server != "" {
		return nil, usage("--state and --server exclude each other: with --server it is the test runner that has the state")
	}
	if _, err := os.Stat(filepath.Join(f.state, "gates.db")); err != nil {
		return nil, usage("--state %s: %w", f.state, pathless(err))
	}
	b, err := gate.Open(gate.Config{Dir: f.state})
	switch {
	case errors.Is(err, gate.ErrInUse):
		return nil, fmt.Errorf("--state %s: a test runner is running there: use --server with its URL", f.state)
	case err != nil:
		return nil, fmt.Errorf("--state: %w", err)
	}
	return &shelved{b}, nil
}

// completeGates offers the gates that are known, to commands that take one.
func (p *program) completeGates(f *gateFlags, one bool) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, start string) (names []string, _ cobra.ShellCompDirective) {
		if !one || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		b, err := p.openBoard(&f.boardFlags)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer b.close()
		ctx, cancel := context.WithTimeout(c.Context(), completionTime)
		defer cancel()
		gates, _ := b.gates(ctx, api.Filter{Kind: f.kind, Limit: 1000}) // what can be read is offered
		for _, g := range gates {
			if name := pathOf(g.Key); strings.HasPrefix(name, start) {
				names = append(names, name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// pathless says what is wrong with the gates of a directory.
func pathless(err error) error {
	if os.IsNotExist(err) {
		return fmt.Errorf("no test runner has kept gates there: gates.db: %w", fs.ErrNotExist)
	}
	return err
}

// A runner is the board of a test runner.
type runner struct{ client *api.Client }

// runner returns the client that the flags describe.
func (p *program) runner(f *boardFlags) (*runner, error) {
	c, err := p.connect(&f.serverFlags, "HEADGATE_TESTER", defaultServer)
	if err != nil {
		return nil, err
	}
	return &runner{&api.Client{URL: c.base, Token: c.token, HTTP: c.client}}, nil
}

func (r *runner) gate(ctx context.Context, k api.Key) (api.Gate, error) { return r.client.Gate(ctx, k) }
func (r *runner) gates(ctx context.Context, f api.Filter) ([]api.Gate, error) {
	return r.client.Gates(ctx, f)
}
func (r *runner) audit(ctx context.Context, f api.Filter) ([]api.Entry, error) {
	return r.client.Audit(ctx, f)
}
func (r *runner) runs(ctx context.Context, f api.Filter) ([]api.Run, error) {
	return r.client.Runs(ctx, f)
}
func (r *runner) close() error { return nil }

func (r *runner) change(ctx context.Context, action string, k api.Key, c api.Change) (api.Gate, error) {
	switch action {
	case "open":
		return r.client.Open(ctx, k, c)
	case "reject":
		return r.client.Reject(ctx, k, c)
	}
	return r.client.Close(ctx, k, c)
}

// shelved is the board of a test runner that does not run.
type shelved struct{ book *gate.Store }

func (s *shelved) gate(_ context.Context, k api.Key) (api.Gate, error) { return s.book.Gate(k), nil }
func (s *shelved) gates(_ context.Context, f api.Filter) ([]api.Gate, error) {
	return s.book.List(f), nil
}
func (s *shelved) audit(_ context.Context, f api.Filter) ([]api.Entry, error) {
	return s.book.Audit(f), nil
}
func (s *shelved) runs(context.Context, api.Filter) ([]api.Run, error) { return nil, nil } // it opens gates alone
func (s *shelved) close() error                                        { return s.book.Close() }

func (s *shelved) change(_ context.Context, action string, k api.Key, c api.Change) (api.Gate, error) {
	switch action {
	case "open":
		return s.book.Open(k, c)
	case "reject":
		return s.book.Reject(k, c)
	}
	return s.book.Shut(k, c)
}
