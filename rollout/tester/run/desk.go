// Package run executes tasks: one process for as many equal requests as come,
// with bounded output, a history that survives the process, and an end.
package run

import (
	"context"
	"errors"
	"io"
	"time"

	"go.etcd.io/bbolt"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

var errTODO = errors.New("not built yet")

// A Task is work that a run does. What it writes is kept within bounds, also
// when it writes without end. It returns soon after ctx has ended, with nothing
// left running. An error that has a method ExitCode() int says the exit code.
type Task interface {
	Run(ctx context.Context, out io.Writer) error
}

// A Request asks for a run. Its key is made of namespace, name, checksum, type and metadata.
type Request struct {
	Namespace, Name, Phase, Checksum string
	Type                             string
	Metadata                         map[string]string // without credentials of the caller
	Secrets                          []string          // values that are masked in output, reasons and metadata
	Waits                            bool              // the caller waits for the end
	FailOnError                      bool              // a failure of a run nobody waited for is delivered to the next equal request
	Timeout                          time.Duration     // 0 for that of the desk
	OutputLimit                      int               // bytes; 0 for that of the desk
	Actor                            string
}

// Errors of a desk.
var (
	ErrBusy     = errors.New("too many runs")
	ErrClosed   = errors.New("the test runner is shutting down")
	ErrNotFound = errors.New("no such run")
)

// A Config says what a Desk may use.
type Config struct {
	Dir         string           // holds the file runs.db; "" keeps the history in memory
	Timeout     time.Duration    // of a run; default 1h
	OutputLimit int              // bytes of output that are kept of a run, half from the beginning and half from the end; default 256 KiB
	Concurrency int              // runs at a time; default 100
	Queue       int              // requests that wait for a place; default 1000; beyond: ErrBusy
	Keep        int              // finished runs that are kept; default 1000
	KeepFor     time.Duration    // default 7 days
	Verdict     time.Duration    // how long a verdict that nobody received is good for; default 1h
	Now         func() time.Time // nil for time.Now

	// Observe is told each run as it becomes queued, running or ended, and with
	// shared each request that was given the run of another. It returns at once
	// and calls no method of the desk; nil for nobody.
	Observe func(r api.Run, shared bool)
}

// A Desk runs tasks.
type Desk struct{ db *bbolt.DB }

// Open opens the desk of a directory, which no other process may have open.
// Runs that were under way when the process died are Lost.
func Open(c Config) (*Desk, error) { return nil, errTODO }

// Start starts the task in the background unless an equal run is under way.
// When the last equal run failed with FailOnError and nobody has been told, it
// returns that one and starts nothing.
func (d *Desk) Start(r Request, t Task) (api.Run, error) { return api.Run{}, errTODO }

// Wait returns how the run ended: an equal one that is under way, one that
// ended and that nobody has been told of, or a new one. When ctx ends first the
// run goes on, and its end waits for the next equal request.
func (d *Desk) Wait(ctx context.Context, r Request, t Task) (api.Run, error) {
	return api.Run{}, errTODO
}

// Deliver says that a caller has received how a run ended.
func (d *Desk) Deliver(id string) {}

// Cancel ends a run and waits until nothing of it is left.
func (d *Desk) Cancel(ctx context.Context, id, actor string) (api.Run, error) {
	return api.Run{}, errTODO
}

func (d *Desk) Run(id string) (api.Run, error)           { return api.Run{}, errTODO }
func (d *Desk) Runs(f api.Filter) []api.Run              { return nil }
func (d *Desk) Watch(ctx context.Context) <-chan api.Run { return nil }

// Output copies what a run wrote to w; with follow until it has ended.
func (d *Desk) Output(ctx context.Context, id string, follow bool, w io.Writer) error {
	return errTODO
}

// Shutdown refuses new requests, ends the runs under way and records them as
// Stopped. When ctx ends first what is left is killed.
func (d *Desk) Shutdown(ctx context.Context) error { return nil }
