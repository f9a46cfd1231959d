package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// Errors of a desk.
var (
	ErrBusy     = errors.New("too many runs")
	ErrClosed   = errors.New("the test runner is shutting down")
	ErrNotFound = errors.New("no such run")
)

// A Config says what a Desk may use.
type Config struct {
	Dir         string           // holds the file runs.db; "" keeps the history in memory
	Timeout     time.Duration    // of a run, and the most that a request may ask for; default 1h
	OutputLimit int              // bytes of output that are kept of a run, half from the beginning and half from the end, and the most that a request may ask for; default 256 KiB
	Concurrency int              // runs at a time; default 100
	Queue       int              // runs that wait for a place; default 1000, negative for none; beyond: ErrBusy
	Keep        int              // finished runs that are kept; default 1000
	KeepFor     time.Duration    // default 7 days
	Verdict     time.Duration    // how long a verdict that was not delivered waits for an equal request, when its request has a checksum; default 5m
	Now         func() time.Time // nil for time.Now

	// Observe is told each run as it becomes queued, running or ended, and with
	// shared each request that was given the run of another. It returns at once
	// and calls no method of the desk; nil for nobody.
	Observe func(r api.Run, shared bool)

	// Warn is told what the history suffers. It returns at once and calls no
	// method of the desk; nil for nobody.
	Warn func(error)
}

// withDefaults returns c with what is not set.
func (c Config) withDefaults() Config {
	c.Timeout = positive(c.Timeout, time.Hour)
	c.OutputLimit = positive(c.OutputLimit, 256<<10)
	c.Concurrency = positive(c.Concurrency, 100)
	c.Queue = max(0, cmp.Or(c.Queue, 1000))
	c.Keep = positive(c.Keep, 1000)
	c.KeepFor = positive(c.KeepFor, 7*24*time.Hour)
	c.Verdict = positive(c.Verdict, 5*time.Minute)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Observe == nil {
		c.Observe = func(api.Run, bool) {}
	}
	if c.Warn == nil {
		c.Warn = func(error) {}
	}
	return c
}

func positive[N int | time.Duration](n, fallback N) N {
	if n > 0 {
		return n
	}
	return fallback
}

// A Desk runs tasks. Its methods may be called from several goroutines.
type Desk struct {
	config   Config
	root     context.Context // of all runs
	stop     context.CancelCauseFunc
	tasks    sync.WaitGroup
	watching sync.WaitGroup
	ended    chan struct{} // closed when no run is left

	mu      sync.Mutex
	closed  bool
	running int
	queue   []*entry
	all     []*entry          // by ID, so by age
	byID    map[string]*entry // all
	byKey   map[key]*entry    // the newest of each key
	held    int64             // bytes of output of finished runs that are in memory
	clock   clock
	watches map[*watch]bool
	history *history // nil for none

	stopping, closing phase
}

// Open opens the desk of a directory, which no other process may have open.
// Runs that were under way when the process died are Lost.
func Open(c Config) (*Desk, error) {
	d := &Desk{config: c.withDefaults(), byID: map[string]*entry{}, byKey: map[key]*entry{}, watches: map[*watch]bool{}, ended: make(chan struct{}), stopping: phase{over: make(chan struct{})}, closing: phase{over: make(chan struct{})}}
	d.root, d.stop = context.WithCancelCause(context.Background())
	if c.Dir == "" {
		return d, nil
	}
	f, warning, err := openFile(c.Dir)
	if warning != nil {
		d.config.Warn(fmt.Errorf("history of runs: %w", warning))
	}
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		if err = d.recall(f); err != nil {
			err = errors.Join(err, f.close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("history of runs: %w", err)
	}
	return d, nil
}
