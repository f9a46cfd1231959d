// Package run executes tasks: one process for as many equal requests as come,
// with bounded output, a history that survives the process, and an end.
//
// # Equal requests
//
// Requests are equal when they agree in namespace, name, checksum, type and
// metadata. Of equal requests one task is under way at a time, however many
// there are and whoever asks for it.
//
// [Runner.Wait] answers with how a run ends. A caller that goes away before does
// not end it: when the request has a checksum the verdict is kept, and given to
// the next equal Wait. It is given until [Runner.Deliver] says that a caller
// received it: two callers that come before that both get it, and no second task
// is started for either. After that the next Wait starts anew. A request that is
// [Request].Abandon ends its run when the last of its callers has gone away.
//
// [Runner.Start] answers at once. While an equal run is under way it returns that
// one, and starts a new one when it has ended. Only when it failed or timed out
// and was asked for with FailOnError, the failure is the answer to the next
// equal request of the same checksum, until it is delivered.
//
// A verdict is kept for Config.Verdict at most, since what was tested changes.
// Without a checksum it is not kept at all: the next request may be about another
// revision. It is kept only if the run came to its end by itself or by its timeout.
// One that was cancelled, stopped by a shutdown or lost with the process says nothing
// of what was tested: its callers are told, the next equal request starts anew. While
// a cancelled task has not returned yet it counts as under way, so that it never
// meets its successor.
//
// # Output
//
// Secrets of the request are masked, however the task cuts what it writes, and
// what is not UTF-8 is replaced, before anybody sees it or it is kept. Half of
// the limit is for the beginning and half for the end; a line between them says
// how many bytes were left out. A follower that is slower than the task misses
// what fell out of these halves before it came to it, and is told so in the same
// way; the task does not wait for readers.
//
// # History
//
// Runs are written to disk in the background: no request waits for the disk. So a
// process that is killed loses the last few milliseconds. A run that was started
// within them is not found again, one that ended within them is found as [api.Lost],
// and a verdict that was delivered within them may be given once more. Nothing
// else is lost: runs that were under way are found as Lost, and verdicts which
// nobody received are given to the next equal request of the new process.
//
// A damaged history is renamed to runs.db.corrupt, and begun anew. A record that
// cannot be read is removed. When the history cannot be written the runs go on, and
// are kept in memory as far as there is room. Config.Warn is told of each.
//
// Kept are Config.Keep finished runs, each with at most Config.OutputLimit bytes
// of output, for Config.KeepFor. Without a directory at most 64 MiB of output are
// kept, those of the newest runs.
package run

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/internal/store"
)

// Errors of a runner.
var (
	ErrBusy     = errors.New("too many runs")
	ErrClosed   = errors.New("the test runner is shutting down")
	ErrNotFound = errors.New("no such run")
)

// A Config says what a Runner may use.
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
	// and calls no method of the runner; nil for no reports.
	Observe func(r api.Run, shared bool)

	// Warn is told what the history suffers. It returns at once and calls no
	// method of the runner; nil for no reports.
	Warn func(error)
}

// A Task is work that a run does. What it writes is kept within bounds, also
// when it writes without end. It returns soon after ctx has ended, with nothing
// left running. An error that has a method ExitCode() int says the exit code.
// A panic is an error, in the goroutine that called Run.
type Task interface {
	Run(ctx context.Context, out io.Writer) error
}

// A Request asks for a run. Its key is made of namespace, name, checksum, type and metadata.
type Request struct {
	Namespace, Name, Phase, Checksum string
	Type                             string            // the product's name
	Metadata                         map[string]string // without credentials of the caller
	Secrets                          []string          // values that are masked in output, reasons and metadata
	FailOnError                      bool              // a failure of a run that was not waited for is delivered to the next equal request
	Abandon                          bool              // the run is cancelled when the last caller that waits for it goes away
	Timeout                          time.Duration     // 0 for that of the runner, which is also the longest
	OutputLimit                      int               // bytes; 0 for that of the runner, which is also the largest
	Actor                            string
}

// A key is the SHA-256 of what distinguishes requests.
type key [sha256.Size]byte

func (r *Request) key() key {
	text, _ := json.Marshal([]any{r.Namespace, r.Name, r.Checksum, r.Type, r.Metadata}) // of texts, those of a map sorted
	return sha256.Sum256(text)
}

// A Runner runs tasks. Its methods may be called from several goroutines.
type Runner struct {
	config Config
	root   context.Context // of all runs
	stop   context.CancelCauseFunc
	feed   store.Feed[api.Run]
	history

	mu      sync.Mutex
	closed  bool
	running int
	queue   []*entry          // runs that wait for a place
	all     []*entry          // by ID, so by age
	byID    map[string]*entry // all
	byKey   map[key]*entry    // the newest of each key
}

// An entry is one run. The runner's lock guards it.
type entry struct {
	key         key
	run         api.Run // without output
	failOnError bool
	output      string        // of one that ended; "" if it is on disk alone, or not kept
	abandoned   bool          // it is cancelled, for all that waited for it have gone away
	job         *job          // nil when it has ended
	done        chan struct{} // closed when it has ended
}

// A job is what a run needs until it has ended.
type job struct {
	task    Task
	timeout time.Duration
	secrets []string
	out     *output
	cancel  context.CancelCauseFunc // nil while queued
	waiting int                     // callers of Wait
}

// An end is how a run ended. That of one which was ended is the cause of its context.
type end struct {
	state  api.RunState
	reason string
	code   *int // nil for none
}

func (e end) Error() string { return e.reason }

// Open opens the runner of a directory, which no other process may have open.
// Runs that were under way when the process died are Lost.
func Open(c Config) (*Runner, error) {
	c.Timeout = cmp.Or(c.Timeout, time.Hour)
	c.OutputLimit = cmp.Or(c.OutputLimit, 256<<10)
	c.Concurrency = cmp.Or(c.Concurrency, 100)
	c.Queue = max(0, cmp.Or(c.Queue, 1000))
	c.Keep = cmp.Or(c.Keep, 1000)
	c.KeepFor = cmp.Or(c.KeepFor, 7*24*time.Hour)
	c.Verdict = cmp.Or(c.Verdict, 5*time.Minute)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Observe == nil {
		c.Observe = func(api.Run, bool) {}
	}
	if c.Warn == nil {
		c.Warn = func(error) {}
	}
	r := &Runner{config: c, byID: map[string]*entry{}, byKey: map[key]*entry{}}
	r.root, r.stop = context.WithCancelCause(context.Background())
	if c.Dir != "" {
		if err := r.recall(); err != nil {
			return nil, fmt.Errorf("history of runs: %w", err)
		}
	}
	return r, nil
}

// Start starts the task in the background unless an equal run is under way.
// When the last equal run of the same checksum failed with FailOnError within
// Config.Verdict and that was not delivered, it returns that one, with its output,
// and starts nothing. The error is ErrBusy or ErrClosed.
func (r *Runner) Start(q Request, t Task) (api.Run, error) {
	e, err := r.claim(&q, t, false)
	if err != nil {
		return api.Run{}, err
	}
	return r.record(e), nil
}

// Wait returns how the run ended, with its output: an equal one that is under
// way, one of the same checksum that ended within Config.Verdict and was not
// delivered, or a new one. When ctx ends first the run goes on, and its end waits for
// the next equal request: the error is the cause of ctx then, and the run is as it is
// now. Otherwise the error is ErrBusy or ErrClosed.
func (r *Runner) Wait(ctx context.Context, q Request, t Task) (api.Run, error) {
	for {
		e, err := r.claim(&q, t, true)
		if err != nil {
			return api.Run{}, err
		}
		select {
		case <-e.done:
		case <-ctx.Done():
		}
		r.mu.Lock()
		again := false
		if j := e.job; j == nil {
			again = e.abandoned && e.run.State == api.Cancelled // because others went away, which says nothing to this caller
		} else {
			err = context.Cause(ctx)
			if j.waiting--; q.Abandon && j.waiting == 0 {
				e.abandoned = true
				r.cancel(e, end{state: api.Cancelled, reason: "cancelled by its caller, who left"})
			}
		}
		r.mu.Unlock()
		if !again {
			return r.record(e), err
		}
	}
}

// claim returns the run that answers a request, a new one if need be. A caller that
// waits is counted.
func (r *Runner) claim(q *Request, t Task, waits bool) (*entry, error) {
	k := q.key()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	e := r.byKey[k]
	if e != nil && (e.job != nil || r.owes(e, waits)) {
		if waits && !e.run.Waits && e.job != nil {
			e.run.Waits = true
			r.changed(e)
		}
		r.config.Observe(e.run, true)
	} else {
		if r.running >= r.config.Concurrency && len(r.queue) >= r.config.Queue {
			return nil, ErrBusy
		}
		e = r.admit(k, q, t, waits)
	}
	if waits && e.job != nil {
		e.job.waiting++
	}
	return e, nil
}

// failed reports whether a run that ended in state s says that what it tested is bad.
func failed(s api.RunState) bool { return s == api.Failed || s == api.TimedOut }

// owes reports whether the verdict of e is still to be given, to a caller that waits
// or to one that only starts runs.
func (r *Runner) owes(e *entry, waits bool) bool {
	age := r.config.Now().Sub(e.run.Ended).Abs() // less than none when the clock was put back
	switch {
	case e.run.Delivered || e.run.Checksum == "" || age > r.config.Verdict:
		return false
	case failed(e.run.State) && e.failOnError:
		return true
	}
	return waits && e.run.Waits && (e.run.State == api.Succeeded || failed(e.run.State))
}

// Deliver says that a caller has received how a run ended. It does nothing for a
// run that has not ended, or was delivered before.
func (r *Runner) Deliver(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.byID[id]; e != nil && e.job == nil && !e.run.Delivered {
		e.run.Delivered = true
		r.changed(e)
	}
}

// The methods from here to forget, but execute, are called with the lock held.

// admit makes the run of a request, which starts at once if there is a place for it.
func (r *Runner) admit(k key, q *Request, t Task, waits bool) *entry {
	created := r.config.Now().UTC()
	e := &entry{
		key: k, failOnError: q.FailOnError, done: make(chan struct{}),
		run: api.Run{
			ID: r.newID(created), State: api.Queued, Type: q.Type, Namespace: short(q.Namespace), Name: short(q.Name), Phase: short(q.Phase), Checksum: short(q.Checksum),
			Metadata: recorded(q.Metadata, q.Secrets), Waits: waits, Actor: short(q.Actor), Created: created,
		},
		job: &job{
			task: t, timeout: min(r.config.Timeout, cmp.Or(q.Timeout, r.config.Timeout)), secrets: slices.Clone(q.Secrets),
			out: &output{limit: min(r.config.OutputLimit, cmp.Or(q.OutputLimit, r.config.OutputLimit)), mask: redact.NewStream(q.Secrets...), wake: make(chan struct{})},
		},
	}
	r.add(e)
	if r.running < r.config.Concurrency {
		r.launch(e)
	} else {
		r.queue = append(r.queue, e)
		r.changed(e)
		r.config.Observe(e.run, false)
	}
	return e
}

// newID returns one after all others, of 24 digits of base 32: microseconds since 1970
// (12), so that later runs have later IDs, and 60 random bits.
func (r *Runner) newID(created time.Time) string {
	at := created.UnixMicro()
	if n := len(r.all); n > 0 {
		last, _ := strconv.ParseInt(r.all[n-1].run.ID[:12], 32, 64)
		at = max(at, last+1)
	}
	return fmt.Sprintf("%012s%012s", strconv.FormatInt(at, 32), strconv.FormatUint(rand.Uint64()>>4, 32))
}

// add makes e known. IDs ascend.
func (r *Runner) add(e *entry) {
	r.all = append(r.all, e)
	r.byID[e.run.ID] = e
	r.byKey[e.key] = e
}

// changed tells the history and watchers of a change of e.
func (r *Runner) changed(e *entry) {
	r.write(e.run.ID)
	r.feed.Send(func() api.Run { return e.run })
}

// launch starts e: there is a place for it.
func (r *Runner) launch(e *entry) {
	ctx, cancel := context.WithCancelCause(r.root)
	j := e.job // which is nil once the run has ended, as at a shutdown before it began
	j.cancel = cancel
	r.running++
	e.run.State, e.run.Started = api.Running, r.config.Now().UTC()
	go r.execute(ctx, e, j)
	r.changed(e)
	r.config.Observe(e.run, false)
}

// execute runs a task, which may end its goroutine, and records how it ended.
func (r *Runner) execute(ctx context.Context, e *entry, j *job) {
	defer j.cancel(nil)
	o := end{state: api.Failed, reason: "the task ended its goroutine"} // unless it returns
	defer func() {
		if p := recover(); p != nil {
			o = end{state: api.Failed, reason: j.reason(fmt.Sprintf("the task panicked: %v", p))}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.finish(e, o)
	}()
	ctx, stop := context.WithTimeoutCause(ctx, j.timeout, end{state: api.TimedOut, reason: "timed out after " + j.timeout.String()})
	defer stop()
	o = j.judge(ctx, j.task.Run(ctx, j.out))
}

// judge says what the end of a task means. One that was to end counts as ended,
// whatever it says: a test that was cut short has not passed.
func (j *job) judge(ctx context.Context, err error) end {
	o := end{state: api.Succeeded}
	if err != nil {
		o.state = api.Failed
	}
	if cause, ended := errors.AsType[end](context.Cause(ctx)); ended {
		o.state = cause.state
		switch {
		case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
			err = cause
		case !errors.Is(err, cause):
			err = fmt.Errorf("%w: %w", cause, err)
		}
	}
	if err == nil {
		o.code = new(int)
		return o
	}
	o.reason = j.reason(err.Error())
	var exit interface{ ExitCode() int }
	if errors.As(err, &exit) && exit.ExitCode() >= 0 {
		o.code = new(exit.ExitCode())
	}
	return o
}

func (j *job) reason(text string) string { return cut(redact.String(text, j.secrets...), reasonMax) }

// finish records how e ended, gives its place to the next, and tells who waits. It
// returns false when that was done before.
func (r *Runner) finish(e *entry, o end) bool {
	j := e.job
	if j == nil {
		return false
	}
	s := &e.run
	s.State, s.Reason, s.ExitCode, s.Ended = o.state, o.reason, o.code, r.config.Now().UTC()
	s.Duration = milliseconds(s.Started, s.Ended)
	j.out.close()
	shown := *s
	shown.Output, shown.Bytes, shown.Truncated = j.out.text()
	s.Bytes, s.Truncated = shown.Bytes, shown.Truncated
	e.job, e.output = nil, shown.Output
	r.config.Observe(shown, false)
	r.changed(e)
	if !s.Started.IsZero() {
		r.running--
	}
	for r.running < r.config.Concurrency && len(r.queue) > 0 {
		next := r.queue[0]
		r.queue = r.queue[1:]
		r.launch(next)
	}
	close(e.done)
	r.forget()
	return true
}

// milliseconds that a run took.
func milliseconds(from, to time.Time) int64 {
	if from.IsZero() {
		return 0
	}
	return max(0, to.Sub(from).Milliseconds())
}

// heldMax is how much output of finished runs is kept in memory, in bytes.
const heldMax = 64 << 20

// forget removes the finished runs that are too many or too old, the oldest
// first, and output that is too much to be kept in memory.
func (r *Runner) forget() {
	now, excess := r.config.Now(), len(r.all)-r.running-len(r.queue)-r.config.Keep
	r.all = slices.DeleteFunc(r.all, func(e *entry) bool {
		if e.job != nil || excess <= 0 && now.Sub(e.run.Ended) <= r.config.KeepFor {
			return false
		}
		excess--
		if r.byKey[e.key] == e {
			delete(r.byKey, e.key)
		}
		delete(r.byID, e.run.ID)
		r.write(e.run.ID)
		return true
	})
	held := 0
	for _, e := range slices.Backward(r.all) {
		if held += len(e.output); held > heldMax {
			e.output = ""
		}
	}
}

// Run returns one run, with its output: that of a run under way as it is now.
// The error is ErrNotFound.
func (r *Runner) Run(id string) (api.Run, error) {
	e := r.find(id)
	if e == nil {
		return api.Run{}, ErrNotFound
	}
	return r.record(e), nil
}

func (r *Runner) find(id string) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

// record returns a run with its output.
func (r *Runner) record(e *entry) api.Run {
	r.mu.Lock()
	s, j, text, now := e.run, e.job, e.output, r.config.Now()
	r.mu.Unlock()
	switch {
	case j != nil:
		s.Output, s.Bytes, s.Truncated = j.out.text()
		s.Duration = milliseconds(s.Started, now)
	case text != "":
		s.Output = text
	case s.Bytes > 0:
		if s.Output = string(r.file.Get(outputBucket, s.ID)); s.Output == "" {
			s.Output, s.Truncated = gap(s.Bytes), true
		}
	}
	return s
}

// Runs returns the runs that f selects by namespace, name, checksum, type, state
// and Before, newest first, without output: at most f.Limit, default 100, at most 1000.
// If see is not nil, runs are left out for which it returns false. It must not call
// methods of the runner.
func (r *Runner) Runs(f api.Filter, see func(api.Run) bool) []api.Run {
	limit := min(cmp.Or(f.Limit, 100), 1000)
	found := []api.Run{}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget()
	for _, e := range slices.Backward(r.all) {
		if len(found) == limit {
			break
		}
		s := e.run
		if cmp.Or(f.Namespace, s.Namespace) != s.Namespace || cmp.Or(f.Name, s.Name) != s.Name || cmp.Or(f.Checksum, s.Checksum) != s.Checksum ||
			cmp.Or(f.Type, s.Type) != s.Type || cmp.Or(f.State, s.State) != s.State || f.Before != "" && s.ID >= f.Before || see != nil && !see(s) {
			continue
		}
		if s.State == api.Running {
			s.Duration = milliseconds(s.Started, r.config.Now())
		}
		found = append(found, s)
	}
	return found
}

// Output copies what a run wrote to w, as it was kept; with follow until the run
// has ended. The error is ErrNotFound, the cause of ctx, or that of w.
func (r *Runner) Output(ctx context.Context, id string, follow bool, w io.Writer) error {
	e := r.find(id)
	if e == nil {
		return ErrNotFound
	}
	r.mu.Lock()
	j := e.job
	r.mu.Unlock()
	if j != nil {
		return j.out.copy(ctx, follow, w)
	}
	_, err := io.WriteString(w, r.record(e).Output)
	return err
}

// Watch sends runs that change, without output, until ctx ends or the runner is shut
// down; then the channel is closed. That of a watcher that is 1024 changes behind is
// closed too.
func (r *Runner) Watch(ctx context.Context) <-chan *api.Run { return r.feed.Watch(ctx) }

// Cancel ends a run and waits until its task has returned. Of a run that has
// ended it changes nothing. The error is ErrNotFound, or the cause of ctx when
// that ended before the task.
func (r *Runner) Cancel(ctx context.Context, id, actor string) (api.Run, error) {
	e := r.find(id)
	if e == nil {
		return api.Run{}, ErrNotFound
	}
	reason := "cancelled"
	if actor != "" {
		reason += " by " + redact.String(actor)
	}
	r.mu.Lock()
	r.cancel(e, end{state: api.Cancelled, reason: reason})
	r.mu.Unlock()
	select {
	case <-e.done:
		return r.record(e), nil
	case <-ctx.Done():
		return api.Run{}, context.Cause(ctx)
	}
}

// cancel tells a run to end. It is called with the lock held.
func (r *Runner) cancel(e *entry, o end) {
	if i := slices.Index(r.queue, e); i >= 0 {
		r.queue = slices.Delete(r.queue, i, i+1)
		r.finish(e, o)
	} else if e.job != nil {
		e.job.cancel(o)
	}
}

// Stop refuses new requests, ends the runs under way, records them as Stopped
// and tells who waits for them. It returns when their tasks have returned. When
// ctx ends before, it returns an error that names those which have not: they are
// recorded as Stopped all the same. What is delivered afterwards is recorded
// until Shutdown.
func (r *Runner) Stop(ctx context.Context) error {
	o := end{state: api.Stopped, reason: "the test runner was shut down"}
	r.mu.Lock()
	queue := r.queue
	r.closed, r.queue = true, nil
	for _, e := range queue {
		r.finish(e, o)
	}
	all := slices.Clone(r.all)
	r.mu.Unlock()
	r.stop(o)
	for _, e := range all {
		select {
		case <-e.done:
		case <-ctx.Done():
		}
	}
	o.reason += ", and the task did not end in time"
	var names []string
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range all {
		if r.finish(e, o) {
			names = append(names, fmt.Sprintf("%s of %s/%s (%s)", e.run.Type, e.run.Namespace, e.run.Name, e.run.ID))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("shut down: %d of the runs did not end in time: %s", len(names), strings.Join(names, ", "))
}

// Shutdown is Stop, and the end of the history. No other method that starts or
// changes something may be called afterwards.
func (r *Runner) Shutdown(ctx context.Context) error {
	err := r.Stop(ctx)
	r.feed.Close()
	r.writer.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(err, r.trouble, r.file.Close())
}

// Load returns how many runs are under way, and how many wait for a place.
func (r *Runner) Load() (running, queued int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running, len(r.queue)
}

// Ready returns why the runner cannot take requests or record runs, nil when it can.
func (r *Runner) Ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	return r.trouble
}
