package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/headgate-io/headgate/rollout/tester"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
	testrun "github.com/headgate-io/headgate/rollout/tester/run"
	"github.com/headgate-io/headgate/rollout/tester/task"
)

// openTester opens the test runner that the flags describe.
func (p *program) openTester(f *testerFlags, log *slog.Logger) (*tester.Server, error) {
	s, runs, err := f.server(p.lookup)
	if err != nil {
		return nil, err
	}
	s.Log = log
	if s.Guard, err = f.guard(log); err != nil {
		return nil, err
	}
	if f.state == "" {
		log.Warn("gates and runs are kept in memory alone, and end with this process: --state DIR keeps them")
	}
	runs.Observe = s.ObserveRun
	runs.Warn = func(err error) { log.Error("history", "problem", err.Error()) }
	if s.Gates, err = gate.Open(gate.Config{Dir: f.state}); err != nil {
		return nil, fmt.Errorf("--state: %w", err)
	}
	if s.Runs, err = testrun.Open(runs); err != nil {
		return nil, errors.Join(fmt.Errorf("--state: %w", err), s.Gates.Close())
	}
	return s, nil
}

// server returns what the flags say of a server, and of its runs. It does nothing.
func (f *testerFlags) server(lookup func(string) (string, bool)) (*tester.Server, testrun.Config, error) {
	s := &tester.Server{FailureStatus: f.failureStatus, Strict: f.strict, BaseURL: f.baseURL, Types: f.types, OpenMetrics: f.openMetrics}
	runs, err := f.runFlags.config(f.state)
	if err != nil {
		return nil, runs, err
	}
	if s.Tools, err = f.toolFlags.tools(lookup); err != nil {
		return nil, runs, err
	}
	if s.Servers, err = f.remoteFlags.servers(); err != nil {
		return nil, runs, err
	}
	s.MaxBody = f.maxBody
	return s, runs, errors.Join(f.check(), f.listenFlags.check())
}

// busyStatuses are those that callers take for another answer than that of a test.
var busyStatuses = []int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusServiceUnavailable}

func (f *testerFlags) check() error {
	if f.failureStatus < 400 || f.failureStatus > 599 || slices.Contains(busyStatuses, f.failureStatus) {
		return usage("--failure-status %d: want 400 to 599, but not 408, 425, 429 or 503", f.failureStatus)
	}
	for _, name := range f.types {
		if api.TypeName(name) == "" {
			return usage("--types %q: want %s", name, either(api.Types()))
		}
	}
	return nil
}

// serveTester serves s until ctx ends, and closes it.
func (p *program) serveTester(ctx context.Context, f *testerFlags, s *tester.Server) (err error) {
	keepFiles()
	reaping, stop := context.WithCancel(context.WithoutCancel(ctx))
	reaped := make(chan error, 1)
	s.Tools.Reaper = new(task.Reaper)
	go func() { reaped <- s.Tools.Reaper.Run(reaping) }()
	defer func() {
		stop()
		err = errors.Join(err, <-reaped, s.Gates.Close())
	}()
	l, err := s.Listen(ctx, f.endpoint())
	if err != nil {
		return errors.Join(listenError(err), s.Shutdown(context.WithoutCancel(ctx)))
	}
	ctx, hungUp := p.hangUp(ctx, s.Log)
	defer hungUp()
	fmt.Fprintf(p.stdout, "serving webhooks at %s\n", l.URL)
	err = l.Serve(ctx)
	s.Log.Info("ended")
	return err
}
